"""What KIP-62's tasks tell: each event at its moment, with its fields, and at no other."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import FencedInstanceIdError, TopicPartition
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import BEAT_MS, POLL_MS, SESSION_MS, TICKS_MS, TOPIC, WAY_MS, sleep_ms
from tests.support.group_members import until

BOTH = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
TROUBLE = (
    events.HeartbeatMissed,
    events.PollIntervalWarning,
    events.PollIntervalExceeded,
    events.RebalanceWaitingForApplication,
    events.RebalanceFailed,
    events.MemberRemoved,
    events.EventLoopBlocked,
    events.SessionEndangered,
)


def about(value):
    return pytest.approx(value, abs=TICKS_MS)


async def test_while_nothing_is_wrong_nothing_of_it_is_reported(group):
    first, second = await group.joined("first", "second")
    for _ in range(20):
        group.produce(0, 1)
        await sleep_ms(BEAT_MS)
    report = await second.stop()
    await group.shared_out(first)
    assert report.problems == ()
    assert not first.count(*TROUBLE)
    assert not second.count(*TROUBLE)


async def test_heartbeats_are_reported_as_they_are_sent_and_answered(group):
    (member,) = await group.joined("m")
    await sleep_ms(5 * BEAT_MS + 10)
    sent = [each.at_ms for each in group.sent(HeartbeatRequest)]
    assert len(sent) == 5
    told = [round(at * 1000) - 1_000_000 for at in member.all_at(events.HeartbeatSent)]
    answered = [round(at * 1000) - 1_000_000 for at in member.all_at(events.HeartbeatAcknowledged)]
    assert told == sent
    assert answered == [about(at_ms + 2 * WAY_MS) for at_ms in sent]
    assert set(member.all(events.HeartbeatSent)) == {events.HeartbeatSent(generation=1)}
    assert {(each.generation, each.latency_ms) for each in member.all(events.HeartbeatAcknowledged)} <= {
        (1, latency_ms) for latency_ms in range(2 * WAY_MS - 1, 2 * WAY_MS + 2)
    }


async def test_a_heartbeat_that_fails_is_missed_and_repeated_before_the_next_is_due(group):
    (member,) = await group.joined("m")
    await member.beats(1)
    line = group.sent(HeartbeatRequest)[-1].line
    group.network.mute.add(line)
    await until(lambda: len(group.sent(HeartbeatRequest)) == 2)
    cut_ms, since = group.now_ms, len(member.log)
    group.network.cut(line)
    await until(lambda: member.count(events.HeartbeatAcknowledged, since=since))
    (missed,) = member.all(events.HeartbeatMissed)
    assert missed.why == "the connection to node1.virtual.invalid:9092 broke"
    assert member.at_ms(events.HeartbeatMissed) == about(cut_ms + WAY_MS)
    assert group.now_ms - cut_ms < BEAT_MS / 2
    assert not member.count(events.MemberRemoved, "lost")


async def test_the_poll_interval_warns_at_80_percent_once_for_each_stall(group):
    (member,) = await group.joined("m")
    for stall in (1, 2):
        _, since_ms = await group.holding(member)
        await sleep_ms(POLL_MS * 4 // 5 - 20)
        assert member.count(events.PollIntervalWarning) == stall - 1
        await sleep_ms(40)
        warning = member.all(events.PollIntervalWarning)[-1]
        assert (warning.since_request_ms, warning.max_poll_interval_ms) == (about(POLL_MS * 4 // 5), POLL_MS)
        await sleep_ms(POLL_MS // 5 - 100)
        member.release()
        await until(lambda: member.in_hand is None)
        await sleep_ms(10)
        assert member.count(events.PollIntervalWarning) == stall
        assert group.now_ms - since_ms < POLL_MS
    assert not member.count(events.PollIntervalExceeded)


async def test_the_poll_interval_exceeded_says_what_was_given_up_and_until_when(group):
    (member,) = await group.joined("m")
    _, since_ms = await group.holding(member)
    await sleep_ms(3 * POLL_MS)
    assert member.all(events.PollIntervalExceeded) == [events.PollIntervalExceeded(BOTH, POLL_MS, 0)]
    assert member.at_ms(events.PollIntervalExceeded) == about(since_ms + POLL_MS)


async def test_the_poll_interval_of_a_static_member_says_when_the_broker_will_act(group):
    settings = {"member_name": "one", "registration_timeout_ms": 30_000}
    (member,) = await group.joined("m", **settings)
    _, since_ms = await group.holding(member)
    await sleep_ms(POLL_MS + 100)
    assert member.all(events.PollIntervalExceeded) == [events.PollIntervalExceeded(BOTH, POLL_MS, 30_000)]
    assert not group.expired
    await sleep_ms(30_000)
    ((at_ms, _),) = group.expired
    last = group.sent(HeartbeatRequest)[-1]
    assert last.at_ms < since_ms + POLL_MS
    assert at_ms == about(last.arrived_ms + 30_000)


async def test_a_rebalance_is_reported_from_its_start_through_waiting_to_its_end(group):
    (busy,) = await group.joined("busy", rebalance_timeout_ms=10_000)
    (first,) = busy.all(events.RebalanceCompleted)
    assert (first.why, first.generation, first.partitions, first.is_leader) == ("joining", 1, BOTH, True)
    await group.holding(busy)
    newcomer = group.newcomer("newcomer")
    await sleep_ms(9_500)
    since_ms = round(busy.all_at(events.RebalanceStarted)[1] * 1000) - 1_000_000
    assert busy.all(events.RebalanceStarted)[1] == events.RebalanceStarted(
        "the group rebalances", generation=1, reason="group"
    )
    waiting = busy.all(events.RebalanceWaitingForApplication)
    assert [(each.why, each.waited_ms, each.rebalance_timeout_ms) for each in waiting] == [
        ("the group rebalances", about(5_000), 10_000),
        ("the group rebalances", about(8_000), 10_000),
    ]
    assert busy.count(events.RebalanceCompleted) == 1
    busy.release()
    await group.shared_out(busy, newcomer)
    for member, why in ((busy, "the group rebalances"), (newcomer, "joining")):
        done = member.all(events.RebalanceCompleted)[-1]
        assert (done.why, done.generation, len(done.partitions), done.is_leader) == (why, 2, 1, member is busy)
        started_ms = round(member.all_at(events.RebalanceStarted)[-1] * 1000) - 1_000_000
        completed_ms = round(member.all_at(events.RebalanceCompleted)[-1] * 1000) - 1_000_000
        assert done.duration_ms == about(completed_ms - started_ms)
    assert busy.at_ms("revoked") - since_ms == about(group.generations[1][0] - since_ms)
    assert not busy.count(events.RebalanceFailed) + newcomer.count(events.RebalanceFailed)


async def waits_for_a_slow_member(group):
    """A member with a record in hand, and another whose JoinGroup waits for it, longer than its own time-outs allow."""
    settings = {"request_timeout_ms": 3_000, "fetch_max_wait_ms": 500}
    slow = await group.member("slow", **settings, rebalance_timeout_ms=120_000).start()
    hasty = await group.member("hasty", **settings, rebalance_timeout_ms=2_000).start()
    await group.shared_out(slow, hasty)
    await group.holding(slow)
    joins = len(group.sent(JoinGroupRequest, "hasty"))
    await hasty.do(hasty.consumer.enforce_rebalance())
    await until(lambda: len(group.sent(JoinGroupRequest, "hasty")) > joins, what=hasty.tail)
    return slow, hasty


async def test_a_join_that_waits_for_a_slow_member_says_so_and_does_not_blame_the_coordinator(group):
    slow, hasty = await waits_for_a_slow_member(group)
    await until(lambda: hasty.count(events.RebalanceFailed), 60, hasty.tail)
    (failed,) = hasty.all(events.RebalanceFailed)
    assert "no answer within 7000 ms: group 'billing' waits for another member, whose max_poll_interval" in failed.why
    slow.release()
    await group.shared_out(slow, hasty)
    assert not slow.count(events.CoordinatorLost) + hasty.count(events.CoordinatorLost)


async def test_a_coordinator_that_falls_silent_while_a_join_waits_is_lost_at_the_next_connection(group):
    slow, hasty = await waits_for_a_slow_member(group)
    (*_, joining) = group.sent(JoinGroupRequest, "hasty")
    group.network.mute.add(joining.line)
    group.network.move(group.brokers.coordinator_node, "dropped", told_after_ms=30_000)
    await until(lambda: hasty.count(events.RebalanceFailed), 60, hasty.tail)
    assert not hasty.count(events.CoordinatorLost)
    await until(lambda: hasty.count(events.CoordinatorLost), 60, hasty.tail)
    slow.release()
    await group.shared_out(slow, hasty)


async def test_a_step_that_fails_is_reported_with_its_reason_and_the_time_since_the_start(group):
    (busy,) = await group.joined("busy")
    await group.holding(busy)
    newcomer = group.newcomer("newcomer")
    await sleep_ms(2_000)
    waiting = group.sent(JoinGroupRequest, "newcomer")[-1]
    group.network.cut(waiting.line)
    await until(lambda: newcomer.count(events.RebalanceFailed))
    (failed,) = newcomer.all(events.RebalanceFailed)
    assert failed.duration_ms == about(newcomer.at_ms(events.RebalanceFailed) - newcomer.at_ms(events.RebalanceStarted))
    assert failed.why == "the connection to node1.virtual.invalid:9092 broke"
    busy.release()
    await group.shared_out(busy, newcomer)
    assert newcomer.count(events.RebalanceStarted, events.RebalanceCompleted) == 2  # repeated, not started again


async def test_a_step_that_the_coordinator_refuses_for_now_is_reported_and_repeated(group):
    group.brokers.move_coordinator(1, 1_500)
    member = group.newcomer("m")
    await group.shared_out(member)
    told = member.all(events.RebalanceFailed)
    assert {each.why for each in told} == {"JOIN_GROUP: COORDINATOR_LOAD_IN_PROGRESS"}
    assert [each.duration_ms for each in told] == sorted({each.duration_ms for each in told})
    assert told[-1].duration_ms <= 1_500
    assert member.count(events.RebalanceStarted, events.RebalanceCompleted) == 2


async def test_a_coordinator_that_is_not_ready_when_a_member_starts_is_a_warning_only_after_ten_seconds(group):
    group.brokers.move_coordinator(1, 12_000)
    member = group.newcomer("m")
    await group.shared_out(member)
    failed = member.all(events.RebalanceFailed)
    assert {each.level for each in failed} == {"info", "warning"}
    assert all(each.level == ("info" if each.duration_ms < 10_000 else "warning") for each in failed)


async def test_a_coordinator_that_a_member_finds_in_another_place_when_it_starts_is_no_warning(group):
    group.brokers.move_coordinator(1, 5_000)
    member = group.newcomer("m")
    await until(lambda: member.count(events.RebalanceFailed))
    group.brokers.move_coordinator(2, 500)
    await group.shared_out(member)
    (lost,) = member.all(events.CoordinatorLost)
    assert (lost.why, lost.level) == ("JOIN_GROUP: NOT_COORDINATOR", "info")
    assert {each.level for each in member.all(events.RebalanceFailed)} == {"info"}


async def test_a_coordinator_that_is_not_ready_is_a_warning_to_a_member_of_the_group(group):
    (member,) = await group.joined("m")
    group.brokers.move_coordinator(2, 1_500)
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: member.count(events.RebalanceCompleted) == 2, what=member.tail)
    lost, failed = member.all(events.CoordinatorLost), member.all(events.RebalanceFailed)
    assert {each.level for each in (*lost, *failed)} == {"warning"}
    assert lost
    assert failed


async def test_a_leader_that_does_not_answer_is_no_failed_rebalance(group):
    group.network.withheld = (ListOffsetsRequest,)
    member = await group.member("m", reads=False, auto_offset_reset="earliest", request_timeout_ms=SESSION_MS).start()
    await until(lambda: member.count(events.RebalanceCompleted), what=member.tail)
    assert not member.count(events.RebalanceFailed)
    assert "looking up positions" in member.all(events.FetchFailed)[0].why


async def test_a_generation_that_ends_in_the_assigned_callback_is_no_completed_rebalance(group):
    member = group.member("m")
    ended = []

    async def be_dropped(_callback):
        member.in_callback = None
        group.brokers.remove(member.consumer.group_metadata().member_id)
        await until(lambda: member.count(events.MemberRemoved))
        ended.append(member.count(events.RebalanceCompleted))

    member.in_callback = be_dropped
    await member.start()
    await group.shared_out(member)
    assert ended == [0]
    (failed,) = member.all(events.RebalanceFailed)
    assert failed.why == "generation 1 ended before its partitions were taken over"
    (completed,) = member.all(events.RebalanceCompleted)
    assert completed.generation == group.generations[-1][1] > 1


@pytest.mark.parametrize("heard_by", ["a heartbeat", "a commit", "JoinGroup"])
async def test_a_member_that_the_coordinator_dropped_learns_it_once(group, heard_by):
    (member,) = await group.joined("m", heartbeat_interval_ms=2_000)
    record, _ = await group.holding(member)
    member_id = member.consumer.group_metadata().member_id
    await member.beats(1)

    async def drop(_callback="revoked"):
        member.in_callback = None
        group.brokers.remove(member_id)

    if heard_by == "JoinGroup":
        member.in_callback = drop
        await member.do(member.consumer.enforce_rebalance())
    else:
        await drop()
    assert not member.count(events.MemberRemoved)
    if heard_by == "a commit":
        with pytest.raises(Exception, match="not committed"):
            await member.commit({record.tp: record.offset + 1})
    member.release()
    await group.shared_out(member)
    await until(lambda: member.count("assigned") == 2)
    await sleep_ms(2 * SESSION_MS)
    why = {
        "a heartbeat": "HEARTBEAT: UNKNOWN_MEMBER_ID",
        "a commit": "OFFSET_COMMIT: UNKNOWN_MEMBER_ID",
        "JoinGroup": "JOIN_GROUP: UNKNOWN_MEMBER_ID",
    }[heard_by]
    assert member.all(events.MemberRemoved) == [events.MemberRemoved(member_id, why)]
    assert member.count("lost") == (heard_by != "JoinGroup")


async def test_leaving_of_ones_own_accord_is_no_removal(group):
    (member,) = await group.joined("m")
    await group.holding(member)
    await sleep_ms(2 * POLL_MS)
    member.release()
    await group.shared_out(member)
    await member.stop()
    assert member.count(events.PollIntervalExceeded) == 1
    assert not member.count(events.MemberRemoved)


async def test_a_round_that_ended_in_its_callback_is_not_reported_as_completed(group):
    member = group.member("m", reads=False)
    slow = [True]

    async def sleep(callback):
        if callback == "assigned" and slow:
            slow.clear()
            await sleep_ms(POLL_MS + 2_000)

    member.in_callback = sleep
    await member.start()
    (given_up,) = member.all(events.PollIntervalExceeded)
    assert given_up.partitions == BOTH
    await until(lambda: member.count(events.RebalanceFailed), 60, member.tail)
    (failed,) = member.all(events.RebalanceFailed)
    assert failed.why == "generation 1 ended before its partitions were taken over"
    assert not member.count(events.RebalanceCompleted)
    await member.do(member.consumer.getmany())
    await until(lambda: member.count(events.RebalanceCompleted), 60, member.tail)
    (completed,) = member.all(events.RebalanceCompleted)
    assert completed.partitions == BOTH
    assert member.consumer.metrics()["rebalance_total"] == 1


async def test_who_is_fenced_in_a_callback_hears_of_it_also_when_that_outlasts_the_poll_interval(group):
    old = group.member("old", member_name="one")

    async def take_long(_callback):
        old.in_callback = None
        await sleep_ms(POLL_MS + 5_000)

    old.in_callback = take_long
    starting = asyncio.create_task(old.start())
    await until(lambda: old.count("assigned"))
    (new,) = await group.joined("new", member_name="one")
    with pytest.raises(FencedInstanceIdError):
        await asyncio.wait_for(starting, 2 * POLL_MS / 1000)
    await until(lambda: old.count("lost"), what=old.tail)
    assert old.count("lost") == old.count(events.MemberFailed) == 1
    assert not old.count(events.PollIntervalExceeded, events.RebalanceCompleted)
    assert new.partitions == [0, 1]
