"""What users of other Kafka clients reported, tried with this one: one kind each, where no other test has it."""

from __future__ import annotations

import asyncio
from collections import Counter

import confluent_kafka
import pytest

from aiogroup import KafkaTimeoutError, TopicPartition, UnknownTopicOrPartitionError
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take


async def test_subscribing_to_the_same_again_and_again_costs_the_group_no_round(make_place):
    place, ears, others = make_place(2), Ears(), Ears()
    await place.produce(range(10))
    one = place.consumer(observers=[ears], partition_assignment_strategy=["range"])
    other = place.consumer(observers=[others], partition_assignment_strategy=["range"])
    async with one, other:
        await eventually(lambda: one.assignment() | other.assignment() == {place.tp(0), place.tp(1)})
        await eventually(lambda: len(one.assignment()) == len(other.assignment()) == 1)
        reader = one if place.tp(0) in one.assignment() else other
        rounds = len(ears.heard(events.RebalanceStarted)), len(others.heard(events.RebalanceStarted))
        for number in range(10):
            assert await take(reader, 1) == [str(number)]
            one.subscribe([place.topic])
            other.subscribe([place.topic])
        await reader.commit()
        assert await place.committed() == 10
        assert rounds == (len(ears.heard(events.RebalanceStarted)), len(others.heard(events.RebalanceStarted)))


async def test_subscribing_to_the_same_pattern_again_finds_a_new_topic_at_once(make_place, unique_name):
    place, ears = make_place(), Ears()
    new = f"{place.topic}-{unique_name('new')}"
    consumer = place.unsubscribed(observers=[ears], metadata_max_age_ms=300_000)
    consumer.subscribe(pattern=f"{place.topic}.*")
    async with consumer:
        await eventually(lambda: consumer.assignment() == {place.tp()})
        place.cluster.create_topic(new, 1)
        consumer.subscribe(pattern=f"{place.topic}.*")
        await eventually(lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {place.topic, new}
        assert len(ears.heard(events.RebalanceStarted)) == 2


async def test_a_commit_that_fails_for_a_deleted_topic_names_its_partition_alone(make_place):
    kept, gone, ears = make_place(), make_place(), Ears()
    await kept.produce(range(2))
    await gone.produce(range(2))
    consumer = kept.consumer(kept.topic, gone.topic, observers=[ears], auto_commit_interval_ms=600_000)
    async with consumer:
        await take(consumer, 4)
        await consumer.getmany(timeout_ms=0)
        await gone.delete()
        await eventually(lambda: consumer.assignment() == {kept.tp()})
        assert await kept.committed() == 2
        assert {each.partitions for each in ears.heard(events.CommitFailed)} == {(gone.tp(),)}


async def test_a_partition_that_does_not_exist_is_no_trouble_of_the_brokers(make_place):
    place, ears = make_place(), Ears()
    async with place.consumer(observers=[ears], default_api_timeout_ms=500) as consumer:
        for missing in (place.tp(7), TopicPartition(f"{place.topic}-missing", 0)):
            with pytest.raises(UnknownTopicOrPartitionError, match="no such partitions"):
                await consumer.offsets_for_times({place.tp(): 0, missing: 0})
        assert not ears.heard(events.MetadataFailed)


async def test_silent_brokers_are_not_taken_for_a_missing_partition(make_place):
    place = make_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"default_api_timeout_ms": 500, "request_timeout_ms": 200}
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings) as consumer:
            await eventually(lambda: consumer.assignment() == {place.tp()})
            with proxy.drop("Metadata"), pytest.raises(KafkaTimeoutError, match="did not answer"):
                await consumer.end_offsets([TopicPartition(f"{place.topic}-missing", 0)])


async def test_a_listener_that_was_spoken_to_before_is_not_said_to_speak_another_protocol(make_place):
    """As a broker at its limit of connections does, or a proxy whose broker is down: it takes each, and cuts it."""
    place, ears = make_place(), Ears()

    def told():
        return [each.why for each in ears.heard(events.FetchFailed) if "handshake" in each.why]

    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(bootstrap_servers=proxy.bootstrap_servers, observers=[ears]) as consumer,
    ):
        await eventually(lambda: consumer.assignment() == {place.tp()})
        with proxy.cut():
            proxy.disconnect()
            assert "which succeeded before: the broker is starting or stopping" in (await eventually(told))[0]
        await place.produce(["after"])
        assert await take(consumer, 1) == ["after"]


async def reads(consumer, into):
    while True:
        into += [(record.partition, record.offset) for record in (await consumer.getmany(timeout_ms=100)).all()]


STRATEGIES = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])


@STRATEGIES
@pytest.mark.parametrize("is_paused_again", [False, True])
async def test_a_pause_ends_when_the_partition_is_given_up(make_place, strategy, is_paused_again):
    place, listener, got = make_place(2), Listener(), []
    settings = {"partition_assignment_strategy": [strategy]}
    consumer = place.unsubscribed(**settings)

    async def pause_again(assigned):
        consumer.pause(*assigned)

    consumer.subscribe([place.topic], listener=listener)
    async with consumer:
        await eventually(lambda: len(consumer.assignment()) == 2)
        consumer.pause(place.tp(0), place.tp(1))
        if is_paused_again:
            listener.inside["assigned"] = pause_again
        reading = asyncio.create_task(reads(consumer, got))
        async with place.consumer(**settings) as other:
            asking = asyncio.create_task(reads(other, []))
            await eventually(lambda: len(other.assignment()) == len(consumer.assignment()) == 1)
            is_kept = strategy == "cooperative-sticky"
            left_paused = consumer.assignment() if is_kept or is_paused_again else frozenset()
            await eventually(lambda: consumer.paused() == left_paused)
            asking.cancel()
        await eventually(lambda: len(consumer.assignment()) == 2)
        await place.produce(["0"], partition=0)
        await place.produce(["1"], partition=1)
        paused_count = 2 if is_paused_again else 1 if is_kept else 0
        await eventually(lambda: len(consumer.paused()) == paused_count)
        await eventually(lambda: len(got) == 2 - paused_count)
        consumer.resume(*consumer.paused())
        await eventually(lambda: sorted(got) == [(0, 0), (1, 0)])
        reading.cancel()


@STRATEGIES
async def test_a_member_of_the_later_protocol_comes_and_goes(make_place, strategy):
    """KIP-848's online migration: the coordinator serves members of both protocols in one group, and no record is lost
    or repeated.
    """
    place, ours, theirs = make_place(4), [], []
    their_settings = {"bootstrap.servers": place.cluster.bootstrap_servers, "group.id": place.group}
    later = confluent_kafka.Consumer(
        {
            **their_settings,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer",
            "topic.metadata.refresh.interval.ms": 1_000,
        }
    )

    async def produce():
        for partition in range(4):
            await place.produce(range(50), partition=partition)

    async def theirs_are_read():
        while True:
            for message in await asyncio.to_thread(later.consume, 100, 0.1):
                assert message.error() is None
                theirs.append((message.partition(), message.offset()))

    def all_are_read():
        return len({*ours, *theirs}) == produced

    async with place.consumer(partition_assignment_strategy=[strategy]) as consumer:
        reading = asyncio.create_task(reads(consumer, ours))
        await produce()
        produced = 200
        await eventually(all_are_read)
        later.subscribe([place.topic])
        their_reading = asyncio.create_task(theirs_are_read())
        await eventually(lambda: len(later.assignment()) == len(consumer.assignment()) == 2, 30)
        await produce()
        produced = 400
        await eventually(all_are_read)
        assert (len(ours), len(theirs)) == (300, 100)
        their_reading.cancel()
        await asyncio.wait([their_reading])
        await asyncio.to_thread(later.close)
        await eventually(lambda: len(consumer.assignment()) == 4, 30)
        await produce()
        produced = 600
        await eventually(all_are_read)
        reading.cancel()
    assert {each: count for each, count in Counter(ours + theirs).items() if count > 1} == {}
