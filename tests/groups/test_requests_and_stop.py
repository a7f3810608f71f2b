"""What a request for records and a stop say when they cannot do what they are for."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest

from aiogroup import CommitFailedError, IllegalStateError, KafkaTimeoutError
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import POLL_MS, TOPIC, sleep_ms
from tests.support.group_members import named, until
from tests.support.kafka import Listener


@pytest.mark.parametrize("group_id", ["billing", None])
async def test_a_request_without_a_subscription_says_what_is_missing(group, group_id):
    member = await group.member("m", reads=False, topics=(), group_id=group_id).start()
    consumer = member.consumer
    for ask in (consumer.getone, consumer.getmany, consumer.poll, consumer.__anext__):
        with pytest.raises(IllegalStateError, match=r"subscribe\(\) or assign\(\)"):
            await member.do(ask())
    assert (consumer.health().status, consumer.health().is_ready) == ("joining", False)
    assert consumer.health().why == "nothing is subscribed or assigned"
    member.call("assign", named(TOPIC, 0))
    group.produce(0)
    assert (await member.do(consumer.getone())).offset == 0
    assert consumer.health().is_ready
    member.call("unsubscribe")
    with pytest.raises(IllegalStateError, match=r"subscribe\(\) or assign\(\)"):
        await member.do(consumer.getone())


async def test_a_request_that_waits_outlives_a_change_of_the_subscription_by_another_task(group):
    member = await group.member("m", reads=False).start()
    waiting = asyncio.create_task(member.do(member.consumer.getone()))
    await sleep_ms(100)
    member.call("unsubscribe")
    await sleep_ms(1_000)
    assert not waiting.done()
    member.call("subscribe", [TOPIC])
    group.produce(0)
    assert (await waiting).offset == 0


@pytest.mark.parametrize(("count", "asked_count"), [(1, 1), (100, 2)], ids=["the last", "not all"])
async def test_what_the_log_ends_with_is_handed_out_before_more_is_asked_for(group, count, asked_count):
    for _ in range(count):
        group.produce(0)
    member = await group.member("m", reads=False, topics=(), max_partition_fetch_bytes=1_000).start()
    member.call("assign", named(TOPIC, 0))

    async def take():
        taken = await member.consumer.getmany(timeout_ms=10_000)
        return taken.count, len(group.sent(FetchRequest))

    taken_count, asked_until_then = await member.do(take())
    assert (taken_count == count, asked_until_then) == (count == 1, asked_count)
    await until(lambda: len(group.sent(FetchRequest)) > asked_count, what=member.tail)


async def test_the_constructors_listener_hears_of_a_later_subscription_that_brings_none(group):
    member = await group.member("m", reads=False, topics=()).start()
    other = Listener()
    member.call("subscribe", [TOPIC])
    await until(lambda: member.count("assigned") == 1, 60, member.tail)
    member.call("subscribe", [TOPIC], None, other)
    await until(lambda: "assigned" in other.names(), 60, member.tail)
    assert member.count("assigned") == 1
    member.call("subscribe", [TOPIC])
    await until(lambda: member.count("assigned") == 2, 60, member.tail)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stop_whose_caller_is_cancelled_goes_on_commits_and_leaves(group, times):
    (member,) = await group.joined("m", enable_auto_commit=True)
    record, _ = await group.holding(member)
    stopping = asyncio.create_task(member.do(member.consumer.stop()))
    await sleep_ms(1_000)
    assert not stopping.done()  # the record is in hand
    for _ in range(times):
        stopping.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({stopping})
    assert stopping.cancelled()
    member.release()
    report = await member.do(member.consumer.stop())
    assert report.is_clean
    assert len(group.sent(LeaveGroupRequest, "m")) == 1
    (topic,) = group.sent(OffsetCommitRequest, "m")[-1].request.topics
    assert topic.partitions[0].committed_offset == record.offset + 1
    assert member.count(events.ConsumerStopped) == 1


async def test_a_stop_that_is_cancelled_with_all_tasks_says_that_it_knows_nothing(group):
    (member,) = await group.joined("m")
    await group.holding(member)
    stopping = asyncio.create_task(member.do(member.consumer.stop()))
    await sleep_ms(1_000)
    (own,) = [task for task in asyncio.all_tasks() if task.get_name() == "aiogroup stop"]
    own.cancel()
    report = await stopping
    (problem,) = report.problems
    assert problem == "stop() was cancelled: what was not committed, and what was in hand, is not known"
    assert member.count(events.StopIncomplete) == member.count(events.ConsumerStopped) == 1
    assert await member.consumer.stop() == report


async def test_a_stop_that_is_cancelled_before_it_has_begun_can_be_called_again(group):
    """With all tasks of the loop, right after the call."""
    (member,) = await group.joined("m")
    stopping = member.consumer.stop()
    stopping.send(None)  # up to where it waits for its own task
    (own,) = [task for task in asyncio.all_tasks() if task.get_name() == "aiogroup stop"]
    own.cancel()
    with pytest.raises(asyncio.CancelledError):
        stopping.throw(asyncio.CancelledError)
    await asyncio.wait({own})
    assert (await member.do(member.consumer.stop())).is_clean
    assert len(group.sent(LeaveGroupRequest, "m")) == 1


async def test_a_stop_does_not_wait_for_a_callback_that_swallows_its_cancellation(group):
    (member,) = await group.joined("m")
    returned = asyncio.Event()

    async def stay(_):
        while not returned.is_set():
            with suppress(asyncio.CancelledError):
                await returned.wait()

    member.in_callback = stay
    began_at_ms = group.now_ms
    report = await member.do(member.consumer.stop(3_000))
    assert group.now_ms - began_at_ms <= 3_000
    assert report.problems == ("revoked callback: not done in time",)
    assert len(group.sent(LeaveGroupRequest, "m")) == 1
    returned.set()


async def test_a_stop_leaves_the_group_whatever_a_callback_raises(group):
    (member,) = await group.joined("m")

    class NoException(BaseException):
        pass

    async def fail(_):
        raise NoException("of the application")

    member.in_callback = fail
    report = await member.do(member.consumer.stop())
    assert report.problems == ("revoked callback: NoException('of the application')",)
    assert len(group.sent(LeaveGroupRequest, "m")) == 1


async def test_a_callback_that_hangs_parks_the_member_also_if_its_requests_have_time_outs(group):
    member = await group.member("m", reads=False, rebalance_timeout_ms=3_000).start()
    await group.shared_out(member)
    returned = asyncio.Event()

    async def hang(_):
        await returned.wait()

    member.in_callback = hang
    group.newcomer("other", rebalance_timeout_ms=3_000)
    until_ms, states = group.now_ms + 3 * POLL_MS, []
    while group.now_ms < until_ms:
        await member.do(member.consumer.getmany(timeout_ms=200))
        states.append(member.consumer.health().status)
    assert set(states[states.index("parked") :]) == {"parked"}
    assert states.index("parked") < len(states) / 2
    returned.set()
    until_ms = group.now_ms + 3 * POLL_MS
    while not member.partitions and group.now_ms < until_ms:
        await member.do(member.consumer.getmany(timeout_ms=200))
    assert member.partitions


async def test_a_commit_in_the_lost_callback_is_refused_and_says_who_repeats_the_records(group):
    (member,) = await group.joined("m")
    refused = []

    async def commit(callback):
        if callback == "lost":
            for offsets in (None, {record.tp: record.offset + 1}):
                with pytest.raises(CommitFailedError) as caught:
                    await member.consumer.commit(offsets)
                refused.append(caught.value)

    member.in_callback = commit
    record, _ = await group.holding(member)
    await sleep_ms(POLL_MS + 100)
    member.release()
    await until(lambda: len(refused) == 2, 60, member.tail)
    assert [each.not_owned for each in refused] == [{record.tp}, {record.tp}]
    assert all("another member" not in str(each) for each in refused)
    assert "perhaps to this member" in str(refused[1])
    await until(lambda: [each.tp for each in member.records].count(record.tp) == 2, 60, member.tail)  # and so it is
    assert not member.count(events.ListenerFailed)


async def test_a_commit_that_timed_out_is_in_the_report_of_stop_also_without_auto_commit(group):
    timeouts = {"request_timeout_ms": 30_000, "default_api_timeout_ms": 60_000, "max_poll_interval_ms": 120_000}
    member = await group.member("m", reads=False, **timeouts).start()
    await group.shared_out(member)
    group.produce(0, 0, 0)
    record = await member.do(member.consumer.getone())
    group.network.withheld = (OffsetCommitRequest,)
    with pytest.raises(KafkaTimeoutError) as raised:
        await member.do(member.consumer.commit({record.tp: 1}))
    assert re.search(r"the commit was tried \d times in 6\d{4} ms; the last time ", str(raised.value))
    report = await member.stop()
    assert report.not_committed == {record.tp: 1}
    assert not report.is_clean


async def test_a_commit_that_succeeds_later_is_in_no_report(group):
    member = await group.member("m", reads=False, request_timeout_ms=6_000, default_api_timeout_ms=7_000).start()
    await group.shared_out(member)
    group.produce(0)
    record = await member.do(member.consumer.getone())
    group.network.withheld = (OffsetCommitRequest,)
    with pytest.raises(KafkaTimeoutError):
        await member.do(member.consumer.commit())
    group.network.withheld = ()
    await member.do(member.consumer.commit())
    assert await member.do(member.consumer.committed(record.tp)) == 1
    assert (await member.stop()).not_committed == {}


@pytest.mark.parametrize("how", ["directly", "in_a_task", "in_wait_for", "in_a_handler"])
async def test_a_skip_leaves_the_record_to_the_task_that_holds_it(group, how):
    """However the other one calls it, whose own record then is processed."""
    member = await group.member("m", reads=False).start()
    group.produce(0, 1)
    first, second = named(TOPIC, 0, 1)
    consumer, holds, at_work, done = member.consumer, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work():
        await consumer.getone(first)
        holds.set()
        await at_work.wait()

    async def handle():
        await consumer.skip()

    async def skip():
        await consumer.getone(second)
        await holds.wait()
        if how == "directly":
            await consumer.skip()
        elif how == "in_a_task":
            await asyncio.create_task(consumer.skip())
        elif how == "in_wait_for":
            await asyncio.wait_for(consumer.skip(), 1)
        else:
            await asyncio.create_task(handle())
        done.set()
        await at_work.wait()

    tasks = [asyncio.create_task(member.do(each())) for each in (work, skip)]
    await done.wait()
    report = await member.do(consumer.stop(1_000))
    assert report.in_hand == {first: 1}
    at_work.set()
    await asyncio.gather(*tasks)


async def test_a_skip_that_names_the_partition_is_of_what_another_task_holds_too(group):
    member = await group.member("m", reads=False).start()
    group.produce(0, 1)
    first, second = named(TOPIC, 0, 1)
    consumer, at_work = member.consumer, asyncio.Event()

    async def work(tp):
        await consumer.getone(tp)
        await at_work.wait()

    tasks = [asyncio.create_task(member.do(work(each))) for each in (first, second)]
    await sleep_ms(100)
    await member.do(consumer.skip())
    await member.do(consumer.skip(first))
    report = await member.do(consumer.stop(1_000))
    assert report.in_hand == {second: 1}
    at_work.set()
    await asyncio.gather(*tasks)


async def test_a_skip_is_of_what_a_task_held_that_has_ended(group):
    member = await group.member("m", reads=False).start()
    group.produce(0)
    await member.do(member.consumer.getone())
    await member.do(member.consumer.skip())
    assert (await member.stop()).in_hand == {}
