"""The figures of a consumer: what is counted on the way, read in steps, and absent where it is not known."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import BOUNDS_MS, Counts, Durations
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.embedded import stable

pytestmark = pytest.mark.virtual_time
SETTINGS = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 1_000}


def taken(consumer):
    """The figures, and the number of times that the loop could have run meanwhile."""
    steps, count = consumer.figures(), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def made(broker, *topics, **settings):
    given = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", **SETTINGS, **settings}
    return Consumer(*topics, **given)


@pytest.fixture
def broker(virtual_broker):
    virtual_broker.create_topic("orders", 2)
    virtual_broker.produce_many("orders", [b"0123456789"] * 8, partition=0)
    return virtual_broker


async def test_before_the_start_nothing_is_known(broker):
    figures, _ = taken(made(broker, "orders"))
    assert (figures.group_id, figures.client_id) == ("billing", "aiogroup")
    assert (figures.group, figures.topics, figures.buffered_bytes, figures.since_heartbeat_ms) == (None,) * 4
    assert figures.partitions == ()


@pytest.mark.parametrize("way", ["loop", "getone", "getmany", "merged"])
async def test_what_was_handed_out_is_counted_by_topic(broker, way):
    async with made(broker, "orders") as consumer:
        if way == "getmany":
            assert (await consumer.getmany(timeout_ms=1_000, max_records=5)).count == 5
        elif way == "getone":
            for _ in range(5):
                await consumer.getone()
        else:
            records = consumer if way == "loop" else consumer.merged()
            seen = 0
            async for _ in records:
                seen += 1
                if seen == 5:
                    break
        figures, _ = taken(consumer)
        assert figures.topics["orders"].records == 5
        assert 50 <= figures.topics["orders"].size_bytes <= 500
        by_place = {(each.topic, each.partition): each for each in figures.partitions}
        first, second = by_place["orders", 0], by_place["orders", 1]
        assert (first.lag, first.live, first.catch_up, first.end) == (3, 3, None, 8)
        assert (first.committed, second.committed) == (None, None)
        await consumer.commit()
        figures, _ = taken(consumer)
        assert [each.committed for each in figures.partitions if each.partition == 0] == [5]


async def test_the_age_of_a_record_is_that_of_its_hand_out(broker, monkeypatch):
    async with made(broker, "orders") as consumer:
        await consumer.getmany(timeout_ms=1_000)
        first, _ = taken(consumer)
        later_ms = wall_ms() + 3_600_000
        monkeypatch.setattr("aiogroup._runtime.delivery.requests.wall_ms", lambda: later_ms)
        await consumer.getmany(timeout_ms=1_000)
        second, _ = taken(consumer)
    assert first.record_ages_ms.keys() == {"live"}
    assert first.record_ages_ms == second.record_ages_ms, "an idle topic makes no record older"


async def test_what_the_group_knows(broker):
    async with made(broker, "orders") as consumer:
        await consumer.getmany(timeout_ms=1_000)
        await broker.clock.pass_s(3)
        figures, _ = taken(consumer)
        assert figures.status is HealthStatus.READY
        assert figures.group.rebalances_count == 1
        assert 3_000 <= figures.group.since_rebalance_ms < 60_000
        assert figures.group.deadlines_used.keys() == {"session", "poll", "rebalance"}
        assert 0 < figures.group.deadlines_used["poll"] < 0.1, "the application holds records and asks for none"
        assert figures.group.deadlines_used["rebalance"] == 0
        assert sum(figures.rebalances["joining"].counts) == 1
        assert figures.events["heartbeat_acknowledged", "debug"] >= 2
        async with made(broker, "orders", client_id="second") as second:
            asking = asyncio.ensure_future(second.getmany(timeout_ms=60_000))
            await broker.clock.pass_s(5)
            waiting, _ = taken(consumer)
            assert waiting.group.deadlines_used["rebalance"] > 0, "a record is in hand"
            await consumer.getmany(timeout_ms=1_000)
            await broker.until(stable("billing", members=2))
            figures, _ = taken(consumer)
            assert figures.group.hand_overs["group"].sum_ms >= 4_000
            asking.cancel()


async def test_a_consumer_without_a_group_has_no_figures_of_one(broker):
    async with made(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        await consumer.getmany(timeout_ms=1_000)
        figures, _ = taken(consumer)
    assert figures.group is None
    assert [each.lag for each in figures.partitions] == [0]


async def test_commits_that_fail_have_their_durations(broker):
    async with made(broker, "orders", default_api_timeout_ms=3_000, request_timeout_ms=1_000) as consumer:
        await consumer.getmany(timeout_ms=1_000)
        broker.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(Exception, match="billing"):
            await consumer.commit()
        await consumer.commit()
        figures, _ = taken(consumer)
    assert sum(figures.group.failed_commits.counts) == 1
    assert sum(figures.commits.counts) == figures.events["offsets_committed", "debug"] == 1


@pytest.mark.parametrize(("count", "steps"), [(1, 0), (200, 0), (201, 1), (1_000, 4)])
async def test_many_partitions_are_read_in_short_steps(virtual_broker, count, steps):
    virtual_broker.create_topic("wide", count)
    async with made(virtual_broker, group_id=None) as consumer:
        consumer.assign([TopicPartition("wide", number) for number in range(count)])
        figures, between = taken(consumer)
    assert (len(figures.partitions), between) == (count, steps)


async def test_a_partition_that_is_given_up_between_two_steps_is_left_out(virtual_broker):
    virtual_broker.create_topic("wide", 300)
    async with made(virtual_broker, group_id=None) as consumer:
        consumer.assign([TopicPartition("wide", number) for number in range(300)])
        steps = consumer.figures()
        next(steps)
        consumer.unsubscribe()
        with pytest.raises(StopIteration) as end:
            next(steps)
    assert len(end.value.value.partitions) == 200


async def test_after_the_stop_the_counts_stay(broker):
    async with made(broker, "orders") as consumer:
        await consumer.getmany(timeout_ms=1_000)
    figures, _ = taken(consumer)
    assert figures.topics["orders"].records == 8
    assert figures.partitions == ()
    assert figures.events["consumer_stopped", "info"] == 1


def test_a_duration_is_counted_under_its_bound():
    durations = Durations()
    for each in (0, 5, 6, BOUNDS_MS[-1], BOUNDS_MS[-1] + 1):
        durations.note(each)
    assert (durations.counts[0], durations.counts[1], durations.counts[-2], durations.counts[-1]) == (2, 1, 1, 1)
    assert durations.sum_ms == 11 + 2 * BOUNDS_MS[-1] + 1


def test_an_event_is_counted_by_the_level_that_it_has():
    counts = Counts()
    for is_expected in (True, False, False):
        counts.on_event(events.RebalanceFailed("why", 5, is_expected))
    assert counts.events == {("rebalance_failed", "info"): 1, ("rebalance_failed", "warning"): 2}
