"""What users of other Kafka clients reported, tried with this one: one kind each, where no other test has it."""

from __future__ import annotations

import pytest

from aiogroup import KafkaTimeoutError, TopicPartition, UnknownTopicOrPartitionError
from aiogroup.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, eventually, take


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
