"""A stop while the group rebalances: both wait for the same hand-over point, and one of them hands over."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import CommitFailedError, ConsumerStoppedError, StopReport, TopicPartition
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import BEAT_MS, POLL_MS, SESSION_MS, TOPIC, sleep_ms
from tests.support.group_members import until

COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}


@pytest.mark.parametrize("later_ms", range(0, 60, 5))
async def test_a_commit_in_the_revoked_callback_is_of_what_is_still_owned(group, later_ms):
    (member,) = await group.joined("m")
    record, _ = await group.holding(member)
    committed = []

    async def commit(callback):
        assert callback == "revoked"
        await member.consumer.commit({record.tp: record.offset + 1})
        committed.append(record.tp)

    member.in_callback = commit
    stopping = asyncio.create_task(member.do(member.consumer.stop(20_000)))
    newcomer = group.newcomer("newcomer")
    await until(lambda: member.count(events.RebalanceStarted) == 2, what=member.tail)
    await sleep_ms(BEAT_MS + later_ms)
    member.release()
    report = await stopping
    assert report.problems == ()
    assert committed == [record.tp]
    assert (member.count("revoked"), member.count("lost")) == (1, 0)
    assert not member.count(events.ListenerFailed)
    await group.shared_out(newcomer)


async def test_who_stops_before_it_was_told_of_its_partitions_is_told_of_no_end(group):
    """The round is over, and the assigned callback still to come: there is nothing that a callback could revoke."""
    (member,) = await group.joined("m")

    async def withhold(_callback):
        group.network.withheld = (OffsetFetchRequest,)

    member.in_callback = withhold
    newcomer = group.newcomer("newcomer")
    await until(lambda: group.network.withheld and member.all(events.MemberMoved)[-1].new == "adopting")
    group.network.withheld = ()
    assert await member.stop() == StopReport()
    told = [(what, bool(tps)) for what, tps, _ in member.log if what in ("assigned", "revoked", "lost")]
    assert told == [("assigned", True), ("revoked", True)]
    await group.shared_out(newcomer)


async def test_a_commit_that_waits_for_a_rebalance_says_that_the_consumer_was_stopped(group):
    away = await group.member("away", member_name="one", **COOPERATIVE).start()
    member = await group.member("m", **COOPERATIVE).start()
    await group.shared_out(away, member)
    record, _ = await group.holding(member)
    failed = []

    async def commit(_record):
        with pytest.raises(CommitFailedError, match=r"stopped.*timeout_ms") as raised:
            await member.consumer.commit()
        failed.append(raised.value)

    member.at_record = commit
    group.network.withheld = (SyncGroupRequest,)
    newcomer = group.newcomer("newcomer", **COOPERATIVE)
    await until(lambda: member.all(events.MemberMoved)[-1].new == "syncing", what=member.tail)
    member.release()
    report = await member.do(member.consumer.stop(SESSION_MS // 2))
    assert [each.not_owned for each in failed] == [{record.tp}]
    assert report.problems == ("hand-over: not done in time", "a join that was running: not done in time")
    assert report.in_hand == {record.tp: 1}
    group.network.withheld = ()
    await group.shared_out(away, newcomer)


async def test_a_commit_that_a_rebalance_held_back_goes_out_when_stop_ends_the_rebalance(group):
    """The rebalance waits for the commit before it, whose answer is lost."""
    (member,) = await group.joined("m", **COOPERATIVE)
    group.produce(0, 1)
    await until(lambda: len(member.records) == 2, what=member.tail)
    group.network.withheld = (OffsetCommitRequest,)
    unanswered = asyncio.create_task(member.commit({TopicPartition(TOPIC, 0): 1}))
    newcomer = group.newcomer("newcomer", **COOPERATIVE)
    await until(lambda: member.count(events.RebalanceStarted) == 2, what=member.tail)
    group.network.withheld = ()
    held_back = asyncio.create_task(member.commit({TopicPartition(TOPIC, 1): 1}))
    await sleep_ms(BEAT_MS)
    assert not held_back.done()
    assert await member.do(member.consumer.stop(20_000)) == StopReport()
    await held_back
    await unanswered  # sent again: the answer to the later one showed that its own was lost
    await group.shared_out(newcomer)


async def test_a_commit_of_a_round_that_stop_did_not_wait_for_is_refused_at_once(group):
    """The group has gone on without the member: no later round can make its commit acceptable."""
    away = await group.member("away", member_name="one", **COOPERATIVE).start()
    member = await group.member("m", **COOPERATIVE).start()
    await group.shared_out(away, member)
    await away.stop()  # a static member stays in the group until its session ends
    group.newcomer("newcomer", **COOPERATIVE)
    await until(lambda: member.all(events.MemberMoved)[-1].new == "joining", what=member.tail)
    began_at_ms, took_ms, failed = group.now_ms, [], []

    async def commit(callback):
        assert callback == "revoked"
        back = group.newcomer("back", member_name="one", **COOPERATIVE)
        await until(lambda: back.count(events.RebalanceCompleted), what=back.tail)
        called_at_ms = group.now_ms
        with pytest.raises(CommitFailedError, match=r"stopped.*timeout_ms") as raised:
            await member.consumer.commit(dict.fromkeys(member.consumer.assignment(), 1))
        failed.append(raised.value.not_owned)
        took_ms.append(group.now_ms - called_at_ms)

    member.in_callback = commit
    stop_ms = SESSION_MS // 2
    report = await member.do(member.consumer.stop(stop_ms))
    assert report.problems == ("a join that was running: not done in time",)
    assert failed
    assert took_ms[0] < BEAT_MS
    assert group.now_ms - began_at_ms < stop_ms


async def test_a_callback_that_hangs_leaves_stop_the_time_to_commit(group):
    member = await group.member("m", enable_auto_commit=True, auto_commit_interval_ms=600_000).start()
    group.produce(0)
    await until(lambda: member.records, what=member.tail)
    hangs = asyncio.Event()

    async def hang(callback):
        assert callback == "revoked"
        hangs.set()
        await asyncio.Event().wait()

    member.in_callback = hang
    group.newcomer("newcomer")
    await hangs.wait()
    began_at_ms = group.now_ms
    report = await member.do(member.consumer.stop(POLL_MS // 2))
    assert (report.not_committed, report.problems) == ({}, ("a callback that was running: not done in time",))
    assert group.now_ms - began_at_ms <= POLL_MS // 2


async def test_after_a_callback_that_stop_waited_for_no_other_round_is_begun(group):
    member = await group.member("m", **COOPERATIVE).start()
    await group.shared_out(member)
    called = []

    async def take_long(callback):
        called.append(callback)
        if called == ["revoked", "assigned"]:
            await sleep_ms(500)

    member.in_callback = take_long
    newcomer = group.newcomer("newcomer", **COOPERATIVE)
    await until(lambda: called == ["revoked", "assigned"], what=member.tail)
    since_ms = group.now_ms
    report = await member.do(member.consumer.stop())
    assert report == StopReport()
    assert called == ["revoked", "assigned", "revoked"]
    assert not group.sent(JoinGroupRequest, "m", since_ms=since_ms)
    await group.shared_out(newcomer)


async def test_a_call_that_stop_cuts_off_tells_of_no_lost_coordinator(group):
    (member,) = await group.joined("m")
    group.network.mute.add(group.sent(OffsetFetchRequest)[-1].line)
    asking = asyncio.create_task(member.do(member.consumer.committed(TopicPartition(TOPIC, 0))))
    await until(lambda: len(group.sent(OffsetFetchRequest)) == 2)
    assert await member.stop() == StopReport()
    with pytest.raises(ConsumerStoppedError):
        await asking
    assert not member.count(events.CoordinatorLost)


async def test_a_stop_without_a_time_out_leaves_room_in_the_30_s_that_kubernetes_gives(group):
    (member,) = await group.joined("m")
    record, _ = await group.holding(member)
    group.network.mute.update(each.line for each in group.network.sent)
    since_ms = group.now_ms
    report = await member.do(member.consumer.stop())
    assert report.in_hand == {record.tp: 1}
    assert 10_000 <= group.now_ms - since_ms <= 20_000
    member.release()


async def test_a_stop_whose_tasks_were_cancelled_with_all_others_is_over_at_once(group):
    """So ends `asyncio.run` when its main function returns, and at a second Ctrl-C."""
    member = await group.member("m", enable_auto_commit=True).start()
    record, _ = await group.holding(member)
    member.release()
    await until(lambda: len(member.records) == len(member.partitions) and member.in_hand is None, what=member.tail)
    ours = [task for task in asyncio.all_tasks() if task.get_name().startswith("aiogroup")]
    since_ms = group.now_ms
    stopping = asyncio.create_task(member.do(member.consumer.stop()))
    for task in ours:
        task.cancel()
    report = await stopping
    assert report.not_committed[record.tp] == record.offset + 1
    assert group.now_ms - since_ms < 100


async def test_a_second_stop_has_a_time_out_of_its_own(group):
    (member,) = await group.joined("m")
    group.network.withheld = (OffsetCommitRequest, LeaveGroupRequest)
    group.produce(0)
    await until(lambda: member.records, what=member.tail)
    first = asyncio.create_task(member.do(member.consumer.stop(20_000)))
    await sleep_ms(100)
    began_at_ms = group.now_ms
    second = await member.do(member.consumer.stop(1_000))
    assert 1_000 <= group.now_ms - began_at_ms < 1_100
    assert second.problems == ("an earlier stop() with a longer time-out: not done in time",)
    report = await first
    assert report is await member.do(member.consumer.stop(0)) is not second
