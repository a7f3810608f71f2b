"""KIP-62 on real Kafka: three deadlines, each seen from the group's other members. Numbers are kip-62-liveness.md's."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from aiogroup import CommitFailedError, Consumer
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.group_members import Member, named, produce, running, shared_out, until
from tests.support.member_process import spawned

SESSION_MS = 3_000
BEAT_MS = 250
SHORT = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
STALL_MS = 3_000
STALLS = {**SHORT, "session_timeout_ms": STALL_MS, "max_poll_interval_ms": STALL_MS}
BOTH_WAYS = pytest.mark.parametrize("thread", [False, True], ids=["loop", "thread"])
OVER_A_SESSION = 2 * SESSION_MS // BEAT_MS
"""So many answered heartbeats take twice the session timeout."""


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("liveness")
    kafka_cluster.create_topic(name, partitions=2)
    return name


async def holding(member, cluster, topic):
    """The member's application has a record in hand and does not finish it."""
    member.hold()
    await produce(cluster, topic, 2, 2)
    await until(lambda: member.in_hand is not None, what=member.tail)


@BOTH_WAYS
async def test_1_processing_longer_than_the_session_costs_nothing(kafka_cluster, topic, group, thread):
    member = Member(kafka_cluster, group, topic, **SHORT, enable_auto_commit=False, heartbeat_thread=thread)
    async with running(member):
        await holding(member, kafka_cluster, topic)
        rebalances = member.rebalances
        await member.beats(OVER_A_SESSION)
        record = member.in_hand
        await member.consumer.commit()
        assert await member.consumer.committed(record.tp) == record.offset + 1
        assert member.rebalances == rebalances
        assert not member.count("lost", "revoked")


@BOTH_WAYS
async def test_2_processing_longer_than_the_poll_interval_gives_up_once(kafka_cluster, topic, group, thread):
    slow = Member(kafka_cluster, group, topic, **STALLS, heartbeat_thread=thread)
    quick = Member(kafka_cluster, group, topic, **SHORT)
    async with running(slow, quick):
        await shared_out(2, slow, quick)
        since = len(quick.log)
        await holding(slow, kafka_cluster, topic)
        record = slow.in_hand
        await until(lambda: slow.count(events.PollIntervalExceeded), what=slow.tail)
        await until(lambda: quick.count(events.RebalanceStarted, since=since), what=quick.tail)
        # LeaveGroup, and not the end of the session, which is as long again: the other's next heartbeat shows it.
        noticed = quick.when(events.RebalanceStarted, since) - slow.when(events.PollIntervalExceeded)
        assert noticed < STALL_MS / 1000 - 0.5
        await shared_out(2, quick)
        with pytest.raises(CommitFailedError) as refused:
            await slow.consumer.commit({record.tp: record.offset + 1})
        assert refused.value.not_owned == {record.tp}
        assert not slow.count("lost")  # the callback waits for the next request
        slow.release()
        await shared_out(2, slow, quick)
        assert slow.count("lost") == slow.count(events.PollIntervalExceeded) == 1
        assert slow.error is None


async def test_3_a_crash_is_noticed_after_the_session(kafka_cluster, topic, group, tmp_path):
    survivor = Member(kafka_cluster, group, topic, **SHORT)
    async with running(survivor), spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as process:
        await until(lambda: len(survivor.partitions) == 1 and process.assigned(), what=survivor.tail)
        since, killed_at = len(survivor.log), time.monotonic()
        process.kill()
        await until(lambda: survivor.count(events.RebalanceStarted, since=since), what=survivor.tail)
        took_ms = (survivor.when(events.RebalanceStarted, since) - killed_at) * 1000
        # The session began with a heartbeat that nobody saw, not long before.
        assert SESSION_MS / 2 < took_ms < SESSION_MS + 5_000
        await shared_out(2, survivor)


async def test_4_a_rebalance_waits_for_the_record_in_hand(kafka_cluster, topic, group):
    busy = Member(kafka_cluster, group, topic, **SHORT, enable_auto_commit=False)
    newcomer = Member(kafka_cluster, group, topic, **SHORT, request_timeout_ms=1_000)
    async with running(busy):
        await holding(busy, kafka_cluster, topic)
        record = busy.in_hand
        async with running(newcomer):
            await until(lambda: busy.count(events.RebalanceStarted) == 2, what=busy.tail)
            await busy.beats(OVER_A_SESSION)
            assert not newcomer.partitions
            assert not busy.count("revoked")
            await busy.consumer.commit()  # the broker still takes the old generation's
            busy.release()
            await shared_out(2, busy, newcomer)
            assert busy.count("revoked") == 1
            assert not busy.count("lost")
            assert await busy.consumer.committed(record.tp) == record.offset + 1
            assert record.offset not in {r.offset for r in newcomer.records if r.tp == record.tp}


async def test_4_with_the_cooperative_protocol_what_is_kept_flows_while_a_record_is_in_hand(
    kafka_cluster, topic, group
):
    """Acknowledged record by record: only the partition that leaves waits for its record."""
    cooperative = {**SHORT, "enable_auto_commit": False, "partition_assignment_strategy": ("cooperative-sticky",)}
    busy = Member(kafka_cluster, group, topic, **cooperative, auto_ack=False)
    newcomer = Member(kafka_cluster, group, topic, **cooperative)
    consumer = busy.consumer
    async with consumer:
        await produce(kafka_cluster, topic, 2, 2)
        in_hand = {record.partition: record for record in [await consumer.getone() for _ in range(2)]}
        async with running(newcomer):
            await until(lambda: busy.count(events.RebalanceStarted) == 2 and newcomer.is_ready, what=busy.tail)
            await produce(kafka_cluster, topic, 2, 2, first=2)
            kept = await asyncio.wait_for(consumer.getone(), 5)
            leaving = in_hand[1 - kept.partition]
            await busy.beats(OVER_A_SESSION)
            assert (busy.partitions, newcomer.partitions) == ([0, 1], [])
            await consumer.commit({leaving.tp: leaving.offset + 1})
            for record in (*in_hand.values(), kept):
                record.ack()
            await until(lambda: newcomer.partitions == [leaving.partition], what=busy.tail)
            await until(lambda: newcomer.records, what=newcomer.tail)
            assert newcomer.records[0].offset == leaving.offset + 1
            assert (busy.partitions, busy.count("lost")) == ([kept.partition], 0)


async def test_5_the_others_go_on_without_one_that_does_not_finish(kafka_cluster, topic, group):
    short = {**SHORT, "rebalance_timeout_ms": 1_000}
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        stuck = Member(kafka_cluster, group, topic, **short, bootstrap_servers=proxy.bootstrap_servers)
        other = Member(kafka_cluster, group, topic, **short)
        async with running(stuck):
            await holding(stuck, kafka_cluster, topic)
            record = stuck.in_hand
            is_away = proxy.cut(JoinGroupRequest, before=True)
            async with running(other):
                await shared_out(2, other)
                await until(lambda: stuck.count("lost"), what=stuck.tail)
                with pytest.raises(CommitFailedError):
                    await stuck.consumer.commit({record.tp: record.offset + 1})
                await until(lambda: (record.partition, record.offset) in other.seen(), what=other.tail)
                is_away.remove()  # it comes back by itself, and could have the partition before the other has read it
                stuck.release()
                await shared_out(2, stuck, other)
                assert stuck.count("lost") == 1
                assert stuck.error is None


async def test_6_a_crash_during_a_rebalance_ends_it_after_the_session(kafka_cluster, topic, group, tmp_path):
    survivor = Member(kafka_cluster, group, topic, **SHORT)
    newcomer = Member(kafka_cluster, group, topic, **SHORT, request_timeout_ms=1_000)
    crashing = spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT, hold_first=True)
    async with running(survivor), crashing as process:
        await until(lambda: len(survivor.partitions) == 1 and process.assigned(), what=survivor.tail)
        await produce(kafka_cluster, topic, 2, 2)
        await until(process.records)
        since = len(survivor.log)
        async with running(newcomer):
            await until(lambda: survivor.count(events.RebalanceStarted, since=since), what=survivor.tail)
            assert not newcomer.partitions
            process.kill()
            killed_at = time.monotonic()
            await shared_out(2, survivor, newcomer)
            assert time.monotonic() - killed_at < SESSION_MS / 1000 + 5


@BOTH_WAYS
async def test_7_a_thousand_cancelled_requests_change_nothing(kafka_cluster, topic, group, thread):
    member = Member(kafka_cluster, group, topic, **STALLS, heartbeat_thread=thread)
    consumer = member.consumer
    async with consumer:
        assert member.partitions == [0, 1]
        began_at = time.monotonic()
        for _ in range(1_000):
            with suppress(TimeoutError):
                await asyncio.wait_for(consumer.getone(), 1.1 * STALL_MS / 1_000_000)
            last_at = time.monotonic()
        assert last_at - began_at > STALL_MS / 1000
        assert not member.count(events.PollIntervalExceeded)
        await until(lambda: member.count(events.PollIntervalExceeded), what=member.tail)
        stalled_ms = (member.when(events.PollIntervalExceeded) - last_at) * 1000
        assert STALL_MS - 50 < stalled_ms < STALL_MS + 2_000
        sent = await produce(kafka_cluster, topic, 2, 4)
        taken = [await asyncio.wait_for(consumer.getone(), 20) for _ in sent]
        assert {(each.partition, each.offset) for each in taken} == sent
        assert member.count("lost") == member.count(events.PollIntervalExceeded) == 1


async def test_9_waiting_for_records_is_progress(kafka_cluster, topic, group):
    short = {**SHORT, "max_poll_interval_ms": SESSION_MS}
    members = [Member(kafka_cluster, group, topic, **short) for _ in range(3)]  # one of them gets no partition
    async with running(*members):
        await shared_out(2, *members)
        rebalances = [member.rebalances for member in members]
        await asyncio.gather(*(member.beats(OVER_A_SESSION) for member in members))
        assert [member.rebalances for member in members] == rebalances
        assert not any(member.count(events.PollIntervalExceeded, "lost") for member in members)
        sent = await produce(kafka_cluster, topic, 2, 4)
        await until(lambda: set().union(*(member.seen() for member in members)) == sent)


async def test_10_the_largest_rebalance_timeout_counts(kafka_cluster, topic, group):
    hasty = Member(kafka_cluster, group, topic, **SHORT, rebalance_timeout_ms=500)
    patient = Member(kafka_cluster, group, topic, **SHORT, rebalance_timeout_ms=20_000, request_timeout_ms=1_000)
    async with running(hasty):
        await holding(hasty, kafka_cluster, topic)
        async with running(patient):
            await until(lambda: hasty.count(events.RebalanceStarted) == 2, what=hasty.tail)
            await hasty.beats(2_000 // BEAT_MS)  # four times its own
            assert not patient.partitions
            hasty.release()
            await shared_out(2, hasty, patient)
            assert not hasty.count("lost")


async def test_12_a_callback_longer_than_the_session_costs_nothing(kafka_cluster, topic, group):
    member = Member(kafka_cluster, group, topic, **SHORT)
    called = []

    async def take_long(callback):
        await member.beats(OVER_A_SESSION)
        called.append(callback)

    member.in_callback = take_long
    async with running(member):
        await shared_out(2, member)
        await member.consumer.enforce_rebalance()
        await until(lambda: called == ["assigned", "revoked", "assigned"], what=member.tail)
        await shared_out(2, member)
        assert member.rebalances == 2
        sent = await produce(kafka_cluster, topic, 2, 4)
        await until(lambda: member.seen() == sent, what=member.tail)
        assert not member.count("lost")
        member.in_callback = None


@pytest.mark.parametrize("session_ms", [10_000, 1_500], ids=["in-the-session", "beyond-the-session"])
async def test_13_a_blocked_loop_is_reported_and_beats_first(kafka_cluster, topic, group, session_ms):
    member = Member(kafka_cluster, group, topic, **{**SHORT, "session_timeout_ms": session_ms})
    async with running(member):
        await shared_out(2, member)
        await member.beats(1)
        rebalances, since = member.rebalances, len(member.log)
        slept_at = time.monotonic()
        time.sleep(2.5)  # noqa: ASYNC251 (a library that blocks)
        woke_at = time.monotonic()
        await until(lambda: member.count(events.EventLoopBlocked, since=since), what=member.tail)
        blocked = member.all(events.EventLoopBlocked, since)[0]
        assert blocked.session_timeout_ms == session_ms
        told_at = member.when(events.EventLoopBlocked, since)
        assert 1_000 < blocked.blocked_ms < (told_at - slept_at) * 1000 + 1_000
        told = [what for what, _, at in member.log if at >= woke_at and what in ("HeartbeatSent", "CoordinatorLost")]
        assert told[0] == "HeartbeatSent"
        if session_ms > 2_500:
            await member.beats(3)
            assert member.rebalances == rebalances
        else:  # the broker has removed it
            await until(lambda: member.count("lost", "assigned", since=since) == 2, what=member.tail)
            assert not member.count(events.CoordinatorLost)
        await shared_out(2, member)


async def test_records_that_each_block_for_less_than_the_session_cost_nothing(kafka_cluster, topic, group):
    """A library that blocks for longer than a heartbeat interval: with each record, and one record after the other."""
    await produce(kafka_cluster, topic, 2, 8)
    member = Member(kafka_cluster, group, topic, **{**SHORT, "session_timeout_ms": 2_000}, auto_commit_interval_ms=500)

    async def block(_record):
        time.sleep(0.9)  # noqa: ASYNC251 (a library that blocks)

    member.at_record = block
    async with running(member):
        await until(lambda: len(member.records) >= 6, what=member.tail)
        assert not member.count("lost", events.MemberRemoved)
        assert len({(record.partition, record.offset) for record in member.records}) == len(member.records)
        member.at_record = None


async def test_14_with_assign_there_are_no_heartbeats_and_no_watchdog(kafka_cluster, topic, group):
    told = []

    class Ears:
        def on_event(self, event):
            told.append(type(event))

    sent = await produce(kafka_cluster, topic, 1, 2)
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        settings = {**STALLS, "bootstrap_servers": proxy.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with Consumer(group_id=group, enable_auto_commit=False, observers=[Ears()], **settings) as consumer:
            consumer.assign(named(topic, 0))
            first = await consumer.getone()
            began_at, fetches_count = time.monotonic(), proxy.count("Fetch")
            await until(lambda: time.monotonic() - began_at > 1.5 * STALL_MS / 1000)
            await consumer.commit({first.tp: 1})
            second = await asyncio.wait_for(consumer.getone(), 20)
            assert {(each.partition, each.offset) for each in (first, second)} == sent
            assert (await consumer.committed(first.tp), proxy.count("OffsetCommit")) == (1, 1)
            assert proxy.count("Fetch") > fetches_count
        counts = {api: proxy.count(api) for api in ("Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup")}
        assert set(counts.values()) == {0}, counts
    assert not {events.PollIntervalWarning, events.PollIntervalExceeded, events.PartitionsLost} & set(told)
