"""Static membership (KIP-345) on a real broker: one name, one member; a restart that nobody notices."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiogroup import FencedInstanceIdError
from aiogroup._core.telemetry import events
from tests.support.group_members import Member, produce, running, shared_out, until

BEAT_MS = 200
NAMED = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
"""The session never ends within a test: who goes, leaves or is fenced."""


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("static")
    kafka_cluster.create_topic(name, partitions=3)
    return name


async def test_a_restart_is_not_noticed_by_the_others(kafka_cluster, topic, group):
    names = ("one", "two", "three")
    async with AsyncExitStack() as stack:

        async def started(name):
            member = Member(kafka_cluster, group, topic, **NAMED, group_instance_id=name)
            await stack.enter_async_context(running(member))
            return member

        members = {name: await started(name) for name in names}
        everyone = list(members.values())
        await shared_out(3, *everyone)
        assert members["one"].is_leader
        sent = await produce(kafka_cluster, topic, 3, 9)
        await until(lambda: set().union(*(each.seen() for each in everyone)) == sent)
        for name in ("two", "one"):  # a follower, then the leader (KIP-814)
            held = members[name].partitions
            others = [members[other] for other in names if other != name]
            rebalances = [each.rebalances for each in others]
            assert (await members[name].stop()).is_clean
            members[name] = back = await started(name)
            everyone.append(back)
            assert back.partitions == held
            more = await produce(kafka_cluster, topic, 3, 9)
            sent |= more
            await until(lambda: set().union(*(each.seen() for each in everyone)) == sent)  # noqa: B023 (awaited)
            assert back.seen() <= more  # what was before is committed
            await asyncio.gather(*(each.beats(3) for each in others))
            assert [each.rebalances for each in others] == rebalances


@pytest.mark.parametrize("leave_group", [None, False, True])
async def test_stop_leaves_the_group_only_when_asked_to(kafka_cluster, topic, group, leave_group):
    static = Member(kafka_cluster, group, topic, **NAMED, group_instance_id="one")
    other = Member(kafka_cluster, group, topic, **NAMED)
    async with running(static, other):
        await shared_out(3, static, other)
        since = len(other.log)
        await static.stop(leave_group=leave_group)
        if leave_group:
            await shared_out(3, other, seconds=15)  # the session would take longer
        else:
            await other.beats(5)
            assert not other.count(events.RebalanceStarted, since=since)


async def test_a_dynamic_member_may_stop_without_leaving(kafka_cluster, topic, group):
    going = Member(kafka_cluster, group, topic, **NAMED)
    staying = Member(kafka_cluster, group, topic, **NAMED)
    async with running(going, staying):
        await shared_out(3, going, staying)
        since = len(staying.log)
        await going.stop(leave_group=False)
        await staying.beats(5)
        assert not staying.count(events.RebalanceStarted, since=since)


async def test_a_commit_carries_the_name_and_is_fenced_by_it(kafka_cluster, topic, group):
    # The older one's heartbeats are so rare that its commit is what meets the newer one first.
    rare = {**NAMED, "heartbeat_interval_ms": 15_000, "enable_auto_commit": False}
    older = Member(kafka_cluster, group, topic, **rare, group_instance_id="one")
    newer = Member(kafka_cluster, group, topic, **NAMED, group_instance_id="one")
    async with running(older):
        sent = await produce(kafka_cluster, topic, 3, 3)
        await until(lambda: older.seen() == sent, what=older.tail)
        async with running(newer):
            await until(lambda: newer.seen() == sent, what=newer.tail)
            async with asyncio.timeout(10):  # the next heartbeat would take longer
                with pytest.raises(FencedInstanceIdError, match="one"):
                    await older.consumer.commit()
            await until(lambda: older.error is not None, what=older.tail)
            assert isinstance(older.error, FencedInstanceIdError)
            assert newer.rebalances == 1


async def test_an_auto_commit_is_fenced_too(kafka_cluster, topic, group):
    rare = {**NAMED, "heartbeat_interval_ms": 15_000, "auto_commit_interval_ms": 100}
    older = Member(kafka_cluster, group, topic, **rare, group_instance_id="one")
    newer = Member(kafka_cluster, group, topic, **NAMED, group_instance_id="one")
    async with running(older):
        await shared_out(3, older)
        async with running(newer):
            await produce(kafka_cluster, topic, 3, 3)  # both read it; only one may commit it
            await until(lambda: older.error is not None, what=older.tail)
            assert isinstance(older.error, FencedInstanceIdError)
            assert newer.error is None
            assert newer.rebalances == 1


async def test_past_the_poll_interval_a_static_member_goes_silent_and_comes_back(kafka_cluster, topic, group):
    slow = {**NAMED, "session_timeout_ms": 1_200, "max_poll_interval_ms": 1_200}
    static = Member(kafka_cluster, group, topic, **slow, group_instance_id="one")
    other = Member(kafka_cluster, group, topic, **NAMED)
    async with running(static, other):
        await shared_out(3, static, other)
        static.hold()
        await produce(kafka_cluster, topic, 3, 3)
        await until(lambda: static.count(events.PollIntervalExceeded), what=static.tail)
        since = len(other.log)
        await shared_out(3, other)
        # No LeaveGroup: the broker waits for the session to end, which the last heartbeat restarted; it was told.
        (exceeded,) = static.all(events.PollIntervalExceeded)
        assert exceeded.broker_acts_within_ms == 1_200
        told_at = other.when(events.RebalanceStarted, since)
        last_beat_at = max(at for what, _, at in static.log if what == "HeartbeatSent" and at < told_at)
        assert told_at - last_beat_at > 1.1
        static.release()
        await shared_out(3, static, other)
        assert static.count("lost") == 1


@pytest.mark.parametrize("stays", [True, False])
async def test_who_comes_back_with_other_topics_has_the_group_rebalance_once(
    kafka_cluster, topic, group, unique_name, stays
):
    """The coordinator answers it with its former share. Its next JoinGroup begins a round, though it only follows."""
    other_topic = unique_name("static-other")
    kafka_cluster.create_topic(other_topic, partitions=2)
    one = Member(kafka_cluster, group, topic, **NAMED, group_instance_id="one")
    two = Member(kafka_cluster, group, topic, **NAMED, group_instance_id="two")
    async with running(one, two):
        await shared_out(3, one, two)
        assert one.is_leader
        since = one.consumer.group_metadata().generation
        assert (await two.stop()).is_clean
        topics = [topic, other_topic] if stays else [other_topic]
        back = Member(kafka_cluster, group, *topics, **NAMED, group_instance_id="two")
        async with running(back):

            def held(*members):
                return sorted((tp.topic, tp.partition) for each in members for tp in each.consumer.assignment())

            everything = sorted(
                [(topic, number) for number in range(3)] + [(other_topic, number) for number in range(2)]
            )
            await until(lambda: held(one, back) == everything and one.is_ready and back.is_ready, what=back.tail)
            assert {(other_topic, 0), (other_topic, 1)} <= set(held(back))
            assert stays or len(held(back)) == 2
            await asyncio.gather(one.beats(5), back.beats(5))
            assert one.consumer.group_metadata().generation == since + 1
