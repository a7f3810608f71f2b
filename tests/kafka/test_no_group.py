"""Reading without a group, and with partitions that the consumer assigns to itself (delivery.md, "Without a group")."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from aiogroup import Consumer, IllegalOperation, IllegalStateError
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import QUICK, Ears, eventually, take

ALONE = {"group_id": None, "metadata_max_age_ms": 300}


async def test_subscribe_takes_every_partition_of_every_topic(make_place):
    place, more = make_place(3), make_place(2)
    for partition in range(3):
        await place.produce([f"a{partition}"], partition)
    async with place.consumer(place.topic, more.topic, **ALONE) as consumer:
        assert consumer.assignment() == {place.tp(p) for p in range(3)} | {more.tp(p) for p in range(2)}
        assert consumer.subscription() == {place.topic, more.topic}
        assert sorted(await take(consumer, 3)) == ["a0", "a1", "a2"]


async def test_new_partitions_and_topics_are_followed_from_their_earliest_record(make_place):
    place, ears = make_place(), Ears()
    await place.produce(["old"])
    settings = {"group_id": None, "metadata_max_age_ms": 1_500}  # so long that the records are there before it looks
    async with place.consumer(**settings, auto_offset_reset="latest", observers=[ears]) as consumer:
        assert await consumer.position(place.tp()) == 1
        await place.add_partitions(3)
        await place.produce(["one"], 1)
        await place.produce(["two"], 2)
        assert sorted(await take(consumer, 2)) == ["one", "two"]
        assert {event.partition for event in ears.heard(events.NewPartitionFromEarliest)} == {1, 2}
        assert await consumer.position(place.tp()) == 1  # what was there goes on


async def test_a_pattern_follows_topics_that_come(make_place, unique_name):
    place = make_place()
    consumer = Consumer(bootstrap_servers=place.cluster.bootstrap_servers, **{**QUICK, **ALONE})
    prefix = unique_name("pattern")
    consumer.subscribe(pattern=f"{prefix}-.*")
    async with consumer:
        assert consumer.assignment() == frozenset()
        await asyncio.to_thread(place.cluster.create_topic, f"{prefix}-new", 2)
        await eventually(lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {f"{prefix}-new"}


async def test_there_are_no_commits_and_no_membership(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    async with place.consumer(**ALONE, observers=[ears]) as consumer:
        assert await take(consumer, 3) == ["0", "1", "2"]
        for call in (
            consumer.commit,
            lambda: consumer.commit({place.tp(): 1}),
            lambda: consumer.committed(place.tp()),
            consumer.seek_to_committed,
            consumer.enforce_rebalance,
        ):
            with pytest.raises(IllegalOperation, match="group_id"):
                await call()
        with pytest.raises(IllegalOperation):
            consumer.group_metadata()
        consumer.seek(place.tp(), 1)
        assert await take(consumer, 2) == ["1", "2"]
        assert (await consumer.stop()).not_committed == {}
    assert not ears.heard(events.HeartbeatSent)
    assert not ears.heard(events.OffsetsCommitted)


@pytest.mark.parametrize("group", [None, "a group"])
async def test_assign_works_with_and_without_a_group(make_place, group):
    place, ears = make_place(2), Ears()
    for partition in (0, 1):
        await place.produce([f"{partition}a", f"{partition}b"], partition)
    settings = {"group_id": group and place.group, "session_timeout_ms": 500, "heartbeat_interval_ms": 100}
    consumer = place.unsubscribed(**settings, max_poll_interval_ms=500, observers=[ears])
    consumer.assign([place.tp(1)])
    async with consumer:
        assert consumer.assignment() == {place.tp(1)}
        assert await take(consumer, 1) == ["1a"]
        if group:
            await consumer.commit()
            assert await place.committed(1) == 1
        with pytest.raises(IllegalStateError):
            consumer.subscribe([place.topic])
        consumer.assign([place.tp(0), place.tp(1)])
        assert await consumer.position(place.tp(1)) == 1  # what stays keeps its place
        assert sorted(await take(consumer, 3)) == ["0a", "0b", "1b"]
        await asyncio.sleep(0.7)  # neither a poll interval nor a session: nothing to lose
        assert await consumer.getmany() == {}
        assert consumer.assignment() == {place.tp(0), place.tp(1)}
    assert not ears.heard(events.HeartbeatSent)
    assert not ears.heard(events.PollIntervalExceeded)


@pytest.mark.parametrize("group", [None, "a group"])
async def test_an_assigned_topic_that_is_made_later_is_read_from_its_first_record(make_place, unique_name, group):
    """Its records are written before the consumer hears of it, as where the producer makes the topic."""
    place = dataclasses.replace(make_place(), topic=unique_name("late"))
    ears = Ears()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "group_id": group and place.group}
        consumer = place.unsubscribed(**settings, auto_offset_reset="latest", observers=[ears])
        consumer.assign([place.tp()])
        async with consumer:
            held = proxy.hold(MetadataRequest)
            await asyncio.to_thread(place.cluster.create_topic, place.topic)
            await place.produce(["one", "two"])
            held.remove()
            assert await take(consumer, 2) == ["one", "two"]
            await place.produce(["three"])
            assert await take(consumer, 1) == ["three"]
    assert ears.heard(events.NewPartitionFromEarliest) == [events.NewPartitionFromEarliest(place.topic, 0)]


async def test_self_assigned_what_is_processed_is_committed_and_found_again(make_place):
    place = make_place()
    await place.produce(range(3))
    for expected in (["0", "1"], ["1", "2"]):
        consumer = place.unsubscribed()
        consumer.assign([place.tp()])
        async with consumer:
            assert await take(consumer, 2) == expected


async def test_a_group_with_members_refuses_commits_of_who_is_no_member(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer():
        consumer = place.unsubscribed(enable_auto_commit=False)
        consumer.assign([place.tp()])
        async with consumer:
            await take(consumer, 1)
            with pytest.raises(Exception, match="use subscribe"):
                await consumer.commit()


async def test_switching_between_self_assignment_and_topics_while_a_request_waits(make_place):
    place = make_place()
    consumer = place.unsubscribed()
    consumer.assign([place.tp()])
    async with consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        consumer.unsubscribe()
        consumer.subscribe([place.topic])
        await eventually(lambda: consumer.health().status == "ready" and consumer.assignment())
        await place.produce(["later"])
        assert (await asyncio.wait_for(waiting, 10)).value == b"later"


async def test_self_assignment_after_topics_that_were_never_asked_for(make_place):
    """Between two turns of the loop: the group never heard of the subscription."""
    place = make_place()
    await place.produce(range(2))
    async with place.unsubscribed() as consumer:
        consumer.subscribe([place.topic])
        consumer.unsubscribe()
        consumer.assign([place.tp()])
        assert await take(consumer, 2) == ["0", "1"]


async def test_a_topic_that_a_broker_would_not_describe_keeps_its_positions(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(10))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "group_id": None, "metadata_max_age_ms": 100}
        async with place.consumer(**settings, observers=[ears]) as consumer:
            await take(consumer, 5)

            def refuse(exchange):
                topics = [dataclasses.replace(each, error_code=5, partitions=()) for each in exchange.response.topics]
                return dataclasses.replace(exchange.response, topics=tuple(topics))

            proxy.rewrite(MetadataRequest, refuse)
            asked_count = proxy.count(MetadataRequest)
            await eventually(lambda: proxy.count(MetadataRequest) >= asked_count + 3)
            assert consumer.assignment() == {place.tp()}
            proxy.clear()
            assert await take(consumer, 5) == ["5", "6", "7", "8", "9"]
            assert ears.heard(events.NewPartitionFromEarliest) == []
