"""KIP-62 on the virtual clock, to the millisecond: real consumers. Numbers are kip-62-liveness.md's.

Number 11 is in tests/embedded/test_embedded_coordinator.py: it is about the coordinator alone. The watchdogs and the
heartbeat task by themselves are in tests/runtime/test_heartbeat.py (2, 8, 13).
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import pytest

from aiogroup import CommitFailedError, TopicPartition
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import BEAT_MS, POLL_MS, SESSION_MS, TICKS_MS, TOPIC, sleep_ms
from tests.support.group_members import until

COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
MOMENT_MS = 50
"""A few requests and answers, each of which takes two milliseconds; and the tests look every 20."""


def gaps(sent):
    return [after.at_ms - before.at_ms for before, after in itertools.pairwise(sent)]


def about(at_ms):
    return pytest.approx(at_ms, abs=TICKS_MS)


async def test_1_processing_longer_than_the_session_costs_nothing(group):
    (member,) = await group.joined("m")
    record, since_ms = await group.holding(member)
    await sleep_ms(POLL_MS - 100)
    assert POLL_MS - 100 > 3 * SESSION_MS
    await member.commit({record.tp: record.offset + 1})
    assert await member.do(member.consumer.committed(record.tp)) == record.offset + 1
    assert member.rebalances == len(group.generations) == 1
    assert gaps(group.sent(HeartbeatRequest, since_ms=since_ms)) == [about(BEAT_MS)] * (POLL_MS // BEAT_MS - 2)
    assert not member.count("revoked", "lost", events.PollIntervalExceeded)


async def test_2_processing_longer_than_the_poll_interval_gives_up_once(group):
    slow, quick = await group.joined("slow", "quick")
    record, since_ms = await group.holding(slow)
    await until(lambda: group.sent(LeaveGroupRequest), 60)
    (left,) = group.sent(LeaveGroupRequest)
    assert (left.who, left.at_ms) == ("slow", about(since_ms + POLL_MS))
    assert not slow.partitions  # at once
    await sleep_ms(BEAT_MS + MOMENT_MS)  # the other's next heartbeat shows it
    assert quick.partitions == [0, 1]
    commits = group.sent(OffsetCommitRequest)
    with pytest.raises(CommitFailedError) as refused:
        await slow.commit({record.tp: record.offset + 1})
    assert refused.value.not_owned == {record.tp}
    assert group.sent(OffsetCommitRequest) == commits  # refused by ourselves
    await sleep_ms(POLL_MS)
    assert not group.sent(HeartbeatRequest, "slow", since_ms=left.at_ms)
    assert not slow.count("lost")  # it waits for the next request
    slow.release()
    await group.shared_out(slow, quick)
    assert slow.count("lost") == slow.count(events.PollIntervalExceeded) == len(group.sent(LeaveGroupRequest)) == 1
    assert slow.error is None


async def test_4_a_rebalance_waits_for_the_record_in_hand(group):
    """Up to the largest rebalance time-out: the newcomer's, who has nothing to finish, is shorter."""
    (busy,) = await group.joined("busy")
    record, _ = await group.holding(busy)
    newcomer = group.newcomer("newcomer", rebalance_timeout_ms=2_000)
    joining_ms = group.now_ms
    await sleep_ms(BEAT_MS + 10)
    assert busy.rebalances == 2
    await sleep_ms(9 * BEAT_MS)
    await busy.commit({record.tp: record.offset + 1})  # in the old generation
    assert len(group.generations) == 1
    assert gaps(group.sent(HeartbeatRequest, "busy", since_ms=joining_ms)) == [about(BEAT_MS)] * 9
    assert group.sent(HeartbeatRequest, "busy")[-1].request.generation_id == 1
    released_ms = group.now_ms
    busy.release()
    await group.shared_out(busy, newcomer)
    at_ms, number, members = group.generations[1]
    assert (number, len(members)) == (2, 2)
    assert at_ms - released_ms < MOMENT_MS
    joined = group.sent(JoinGroupRequest, "busy")[-1]
    assert joined.at_ms > group.sent(OffsetCommitRequest, "busy", since_ms=released_ms - MOMENT_MS)[0].at_ms
    assert (busy.count("revoked"), busy.count("lost")) == (1, 0)
    assert record.offset not in {each.offset for each in newcomer.records if each.tp == record.tp}


async def test_4_a_cooperative_rebalance_waits_for_nobody_and_what_is_kept_flows(group):
    busy = await group.member("busy", reads=False, auto_ack=False, **COOPERATIVE).start()
    await group.shared_out(busy)
    group.produce(0, 1)
    in_hand = {record.partition: record for record in [await busy.do(busy.consumer.getone()) for _ in range(2)]}
    newcomer = group.newcomer("newcomer", **COOPERATIVE)
    began_ms = group.now_ms
    await until(lambda: len(group.generations) == 2)
    assert group.generations[1][0] - began_ms <= BEAT_MS + 20  # nothing had to be finished first
    await sleep_ms(MOMENT_MS)
    group.produce(0, 1)
    kept = await busy.do(asyncio.wait_for(busy.consumer.getone(), 0.1))
    leaving = in_hand[1 - kept.partition]
    await sleep_ms(3 * SESSION_MS)
    assert busy.partitions == [0, 1]
    assert not newcomer.partitions
    await busy.commit({leaving.tp: leaving.offset + 1})
    for record in (*in_hand.values(), kept):
        record.ack()
    await sleep_ms(2 * BEAT_MS)
    assert (busy.partitions, newcomer.partitions) == ([kept.partition], [leaving.partition])
    assert (busy.count("revoked"), busy.count("lost"), len(group.generations)) == (1, 0, 3)
    assert [record.offset for record in newcomer.records] == [leaving.offset + 1]


async def test_5_the_others_go_on_without_one_that_does_not_finish(group):
    (stuck,) = await group.joined("stuck", rebalance_timeout_ms=5_000)
    record, _ = await group.holding(stuck)
    other = group.newcomer("other", rebalance_timeout_ms=3_000)
    await until(lambda: len(group.generations) == 2)
    (joined,) = [each for each in group.sent(JoinGroupRequest, "other") if each.request.member_id]
    at_ms, _, members = group.generations[1]
    assert at_ms == about(joined.arrived_ms + 5_000)  # of both time-outs the larger
    assert members == [joined.request.member_id]
    await sleep_ms(MOMENT_MS)
    assert other.partitions == [0, 1]
    await until(lambda: stuck.count("lost"))
    assert stuck.at_ms("lost") - at_ms <= BEAT_MS
    with pytest.raises(CommitFailedError):
        await stuck.commit({record.tp: record.offset + 1})
    stuck.release()
    await group.shared_out(stuck, other)
    assert (stuck.count("lost"), stuck.error) == (1, None)
    assert (record.partition, record.offset) in other.seen()


async def test_5_with_the_cooperative_protocol_only_what_leaves_waits_for_the_poll_interval(group):
    (stuck,) = await group.joined("stuck", rebalance_timeout_ms=5_000, **COOPERATIVE)
    _, since_ms = await group.holding(stuck)
    other = group.newcomer("other", rebalance_timeout_ms=3_000, **COOPERATIVE)
    await sleep_ms(POLL_MS - 1_000)
    assert len(group.generations) == 2  # both are in it
    assert (stuck.partitions, other.partitions) == ([0, 1], [])
    await until(lambda: other.partitions == [0, 1])
    (left,) = group.sent(LeaveGroupRequest)
    assert (left.who, left.at_ms) == ("stuck", about(since_ms + POLL_MS))
    assert group.now_ms - left.at_ms <= BEAT_MS + MOMENT_MS
    stuck.release()
    await group.shared_out(stuck, other)
    assert stuck.count("lost") == 1


async def test_6_a_crash_during_a_rebalance_ends_it_after_the_session(group):
    survivor, crashing = await group.joined("survivor", "crashing")
    await group.holding(crashing)
    newcomer = group.newcomer("newcomer")
    await sleep_ms(BEAT_MS + MOMENT_MS)
    assert len(group.generations) == 2
    crashing.die()
    await group.shared_out(survivor, newcomer)
    last = group.sent(HeartbeatRequest, "crashing")[-1]
    assert group.generations[2][0] == about(last.arrived_ms + SESSION_MS)
    assert [at_ms for at_ms, _ in group.expired] == [group.generations[2][0]]


async def test_7_a_thousand_cancelled_requests_change_nothing(group):
    """Each counts as a request, so the time-out does not pass while they last; after the last of them it does."""
    member = await group.member("m", reads=False, max_poll_interval_ms=SESSION_MS).start()
    await group.shared_out(member)

    async def ask():
        for _ in range(1_000):
            with suppress(TimeoutError):
                await asyncio.wait_for(member.consumer.getone(), 0.01)

    began_ms = group.now_ms
    await member.do(ask())
    last_ms = group.now_ms
    assert last_ms - began_ms > SESSION_MS
    assert not member.count(events.PollIntervalExceeded, events.PollIntervalWarning)
    await sleep_ms(SESSION_MS - TICKS_MS)
    assert not group.sent(LeaveGroupRequest)
    await sleep_ms(10)
    assert [each.at_ms for each in group.sent(LeaveGroupRequest)] == [about(last_ms + SESSION_MS)]
    assert member.count(events.PollIntervalExceeded) == 1
    group.produce(0, 1)
    taken = [await member.do(member.consumer.getone()) for _ in range(2)]  # it joins again, and nothing was taken
    assert {(each.partition, each.offset) for each in taken} == {(0, 0), (1, 0)}


async def test_8_a_coordinator_that_never_answers_is_looked_up_again_within_the_session(group):
    (member,) = await group.joined("m")
    await member.beats(1)
    answered_ms, line = group.now_ms, group.sent(HeartbeatRequest)[-1].line
    group.network.mute.add(line)
    await until(lambda: member.count(events.CoordinatorLost))
    lost_ms = member.at_ms(events.CoordinatorLost)
    assert SESSION_MS - MOMENT_MS < lost_ms - answered_ms <= SESSION_MS + BEAT_MS
    assert member.all(events.HeartbeatMissed)[-1].why == f"no answer for session_timeout_ms={SESSION_MS}"
    assert line.is_closing()
    await member.beats(3)
    assert len(group.sent(FindCoordinatorRequest, since_ms=lost_ms)) == member.count(events.CoordinatorLost) == 1
    assert member.rebalances == len(group.generations) == 1  # nobody said that the generation is over
    assert not member.count("lost")


async def test_9_waiting_for_records_is_progress_and_a_member_without_partitions_never_leaves(group):
    members = [await group.member(name, max_poll_interval_ms=SESSION_MS).start() for name in ("a", "b", "c")]
    await group.shared_out(*members)
    assert sorted(len(member.partitions) for member in members) == [0, 1, 1]
    generations = list(group.generations)
    await sleep_ms(5 * SESSION_MS)
    assert group.generations == generations
    assert not group.sent(LeaveGroupRequest)
    assert not any(member.count(events.PollIntervalWarning, events.PollIntervalExceeded, "lost") for member in members)
    group.produce(0, 1)
    await until(lambda: set().union(*(member.seen() for member in members)) == {(0, 0), (1, 0)})


async def test_10_the_largest_rebalance_timeout_counts(group):
    (hasty,) = await group.joined("hasty", rebalance_timeout_ms=2_000)
    await group.holding(hasty)
    patient = group.newcomer("patient", rebalance_timeout_ms=15_000)
    await sleep_ms(14_500)
    assert len(group.generations) == 1
    hasty.release()
    await group.shared_out(hasty, patient)
    assert not hasty.count("lost")


async def test_12_a_callback_longer_than_the_session_costs_nothing(group):
    member = group.member("m")
    called = []

    async def take_long(callback):
        called.append(callback)
        await sleep_ms(2 * SESSION_MS)

    member.in_callback = take_long
    await member.start()
    await group.shared_out(member)
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: len(group.generations) == 2 and member.is_ready, 60)
    assert called == ["assigned", "revoked", "assigned"]
    assert max(gaps(group.sent(HeartbeatRequest))) <= 2 * BEAT_MS + MOMENT_MS  # while it joins it sends none
    assert not member.count("lost", events.CoordinatorLost)
    assert not group.expired
    member.in_callback = None


@pytest.mark.parametrize("blocked_ms", [2_500, 5_500], ids=["half-the-session", "almost-all-of-it"])
async def test_13_after_a_blocked_loop_the_first_thing_sent_is_a_heartbeat(group, blocked_ms):
    (member,) = await group.joined("m", auto_commit_interval_ms=500, enable_auto_commit=True)
    await member.beats(1)
    group.produce(0, 1)
    await sleep_ms(10)
    group.produce(0, 1)  # a fetch and a commit are due, too, when it wakes
    await member.freeze(blocked_ms)
    woke_ms = group.now_ms
    await sleep_ms(300)
    sent = [each for each in group.network.sent if each.at_ms >= woke_ms]
    assert isinstance(sent[0].request, HeartbeatRequest)
    assert sent[0].at_ms == woke_ms
    assert any(isinstance(each.request, FetchRequest) for each in sent)
    (blocked,) = member.all(events.EventLoopBlocked)
    assert 0 <= blocked_ms - blocked.blocked_ms <= 250
    assert blocked.session_timeout_ms == SESSION_MS
    endangered = member.all(events.SessionEndangered)
    assert len(endangered) == (2 * blocked_ms > SESSION_MS)
    assert all(f"session_timeout_ms={SESSION_MS}" in each.why for each in endangered)
    await member.beats(2)
    assert member.rebalances == 1
    assert not member.count(events.CoordinatorLost, events.HeartbeatMissed)


async def test_13_blocked_for_longer_than_the_session_it_asks_before_it_gives_anything_up(group):
    (member,) = await group.joined("m")
    await member.freeze(2 * SESSION_MS)
    woke_ms, since = group.now_ms, len(member.log)
    await until(lambda: member.count("assigned", since=since))
    sent = [each for each in group.network.sent if each.at_ms >= woke_ms]
    assert isinstance(sent[0].request, HeartbeatRequest)
    assert (member.count("lost"), member.count(events.MemberRemoved, events.CoordinatorLost)) == (1, 1)
    assert len(group.expired) == 1


async def test_14_with_assign_there_are_no_heartbeats_and_no_watchdog(group):
    member = await group.member("m", reads=False, topics=(), max_poll_interval_ms=SESSION_MS).start()
    member.consumer.assign([TopicPartition(TOPIC, 0)])
    group.produce(0, 0)
    first = await member.do(member.consumer.getone())
    await sleep_ms(5 * SESSION_MS)  # a stall, had it a poll interval
    await member.commit({first.tp: 1})
    assert (await member.do(member.consumer.getone())).offset == 1
    assert not group.sent((HeartbeatRequest, JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest))
    assert not member.count(events.PollIntervalWarning, events.PollIntervalExceeded, events.HeartbeatSent, "lost")
