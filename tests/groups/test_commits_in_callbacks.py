"""`commit()` without offsets in a rebalance callback: what is in hand is left out, and comes again.

At the hand-over point nothing is in hand. But after `subscribe`, and in a `stop` that did not get there, a callback
runs while the application's handler is at work, or after it has failed.
"""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import ConsumerStoppedError, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.embedded.views import committed_of
from tests.groups.scripted import TOPIC, sleep_ms
from tests.simulation.brokers import GROUP
from tests.support.group_members import until

A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
OTHER = "payments"
AUTO_COMMIT = pytest.mark.parametrize("enable_auto_commit", [True, False])
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
LANES = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}


async def reads(group, *partitions, commits=True, **settings):
    """A member that reads nothing by itself; its callbacks call `commit()`. These partitions get a record each."""
    member = await group.member("m", reads=False, **settings).start()
    await until(lambda: member.count("assigned"), what=member.tail)
    group.produce(*partitions)

    async def commit(_callback):
        await member.consumer.commit()

    if commits:
        member.in_callback = commit
    return member


async def take(member, count, *named):
    """So many records, one by one: the last one is in hand."""
    return [(await member.do(member.consumer.getone(*named))).offset for _ in range(count)]


def committed(group):
    """By partition, as the coordinator knows it."""
    return {(tp.topic, tp.partition): each for tp, each in committed_of(group.brokers.cluster, GROUP).items()}


@AUTO_COMMIT
async def test_at_a_stop_after_a_failed_handler(group, enable_auto_commit):
    member = await reads(group, 0, 0, 0, enable_auto_commit=enable_auto_commit)
    assert await take(member, 3) == [0, 1, 2]
    report = await member.do(member.consumer.stop())
    assert report.in_hand == {A: 1}
    assert member.count("revoked") == 1
    assert not member.count(events.ListenerFailed)
    assert committed(group)[A] == 2


@AUTO_COMMIT
async def test_at_a_stop_whose_drain_is_over_while_another_task_is_at_work(group, enable_auto_commit):
    member = await reads(group, 0, 0, enable_auto_commit=enable_auto_commit)

    async def work():
        await member.consumer.getone()
        await member.consumer.getone()
        await sleep_ms(60_000)

    working = asyncio.create_task(member.do(work()))
    await sleep_ms(1_000)
    report = await member.do(member.consumer.stop(10_000))
    assert report.in_hand == {A: 1}
    assert member.count("revoked") == 1
    assert committed(group)[A] == 1
    working.cancel()


@AUTO_COMMIT
async def test_at_a_subscribe_while_a_record_is_in_hand(group, enable_auto_commit):
    group.brokers.add_partitions(OTHER, 1)
    member = await reads(group, 0, 0, enable_auto_commit=enable_auto_commit)
    assert await take(member, 2) == [0, 1]
    member.call("subscribe", [OTHER])
    await until(lambda: member.count("assigned") == 2, what=member.tail)
    assert (member.count("revoked"), member.count(events.ListenerFailed)) == (1, 0)
    assert committed(group)[A] == 1


@pytest.mark.parametrize(("settings", "says_so", "next_one"), [({}, False, 1), ({}, True, 2), (COOPERATIVE, False, 2)])
async def test_what_comes_after_a_subscribe_that_keeps_the_topic(group, settings, says_so, next_one):
    """docs/delivery.md: the record in hand again, unless its partition is kept, or `commit()` was called before."""
    group.brokers.add_partitions(OTHER, 1)
    member = await reads(group, 0, 0, 0, commits=False, enable_auto_commit=True, **settings)
    assert await take(member, 2) == [0, 1]
    if says_so:
        await member.commit()
    member.call("subscribe", [TOPIC, OTHER])
    await until(lambda: (OTHER, 0) in member.consumer.assignment(), what=member.tail)
    assert await take(member, 1) == [next_one]


async def test_of_a_partition_that_is_kept_too(group):
    """The callback runs at once, and the record in hand is of a partition that it does not name."""
    group.brokers.add_partitions(OTHER, 1)
    member = await reads(group, 0, 0, topics=(TOPIC, OTHER), **COOPERATIVE)
    assert await take(member, 2) == [0, 1]
    member.call("subscribe", [TOPIC])
    await until(lambda: member.count(events.PartitionsRevoked), what=member.tail)
    assert member.all("revoked") == [{TopicPartition(OTHER, 0)}]
    assert committed(group)[A] == 1
    await member.commit()  # the handler says so
    assert committed(group)[A] == 2


async def test_a_listener_that_is_not_async_may_leave_the_commit_to_a_task(group):
    """The task runs when the callback has returned, and auto-commit is under way."""
    group.brokers.add_partitions(OTHER, 1)
    member = await reads(group, 0, 0, commits=False, enable_auto_commit=True)
    listener = NotAsync(member.consumer)
    member.call("subscribe", [TOPIC], None, listener)
    assert await take(member, 2) == [0, 1]
    member.call("subscribe", [OTHER], None, listener)
    await until(lambda: (OTHER, 0) in member.consumer.assignment(), what=member.tail)
    assert len(listener.tasks) >= 2
    await asyncio.wait(listener.tasks)
    assert committed(group)[A] == 1


class NotAsync:
    def __init__(self, consumer):
        self.consumer = consumer
        self.tasks = []

    def on_partitions_revoked(self, _revoked):
        self.tasks.append(asyncio.get_running_loop().create_task(self.consumer.commit()))

    def on_partitions_assigned(self, _assigned):
        self.tasks.append(asyncio.get_running_loop().create_task(self.consumer.commit()))


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_of_a_batch_what_is_acknowledged_is_committed(group, auto_ack):
    member = await reads(group, 0, 0, 0, 0, auto_ack=auto_ack)
    await sleep_ms(100)
    records = list((await member.do(member.consumer.getmany(timeout_ms=1_000))).all())
    assert [each.offset for each in records] == [0, 1, 2, 3]
    for index in (0, 2):
        records[index].ack()
    await member.do(member.consumer.stop())
    assert committed(group)[A] == 1


async def test_each_partition_by_itself(group):
    """A worker for each: that of A has failed, that of B waits for its next record."""
    member = await reads(group, 0, 0, 1, 1)
    assert await take(member, 2, B) == [0, 1]
    waiting = asyncio.create_task(member.do(member.consumer.getone(B)))
    await sleep_ms(100)
    assert await take(member, 2, A) == [0, 1]
    await member.do(member.consumer.stop())
    assert committed(group) == {A: 1, B: 2}
    with pytest.raises(ConsumerStoppedError):
        await waiting


async def test_of_each_lane_too(group):
    """A record of each lane is in hand: neither is passed."""
    leader = await reads(group, 0, 0, 0, 0, commits=False)
    await leader.commit({A: 2})
    await leader.stop()
    member = await reads(group, commits=True, **LANES)
    group.produce(0, 0)
    await sleep_ms(100)
    records = []
    while {each.lane for each in records} != {"live", "catch-up"}:
        records = list((await member.do(member.consumer.getmany(timeout_ms=1_000))).all())
    assert {each.offset for each in records} == {2, 3, 4, 5}
    next(each for each in records if each.offset == 2).ack()
    await member.do(member.consumer.stop())
    assert committed(group)[A] == 3
    again = await reads(group, commits=False, **LANES)
    offsets = [(await member.do(again.consumer.getone())).offset for _ in range(3)]
    assert sorted(offsets) == [3, 4, 5]


async def test_of_a_merge_too(group):
    member = await reads(group, 0, 1, 0, 1)

    records = []

    async def work():
        async for record in member.consumer.merged():
            records.append(record)
            if len(records) == 3:
                break

    await member.do(work())
    record = records[-1]
    await member.do(member.consumer.stop())
    expected = {A: 2, B: 2, (TOPIC, record.partition): record.offset}
    assert committed(group) == expected


async def test_of_partitions_that_were_lost_before_an_unsubscribe_is_no_error(group):
    """The lost callback comes late, and by default it is the revoked one."""
    limits = {"session_timeout_ms": 6_000, "max_poll_interval_ms": 10_000}
    member = await reads(group, 0, enable_auto_commit=False, **limits)
    assert await take(member, 1) == [0]
    await member.commit()
    await until(lambda: member.count(events.PollIntervalExceeded), what=member.tail)
    member.call("unsubscribe")
    await member.do(member.consumer.stop())
    assert (member.count("lost"), member.count(events.ListenerFailed)) == (1, 0)


async def test_offsets_that_the_callback_names_are_the_applications_word(group):
    member = await reads(group, 0, 0, commits=False)
    assert await take(member, 2) == [0, 1]

    async def commit(_callback):
        await member.consumer.commit({A: 2})

    member.in_callback = commit
    await member.do(member.consumer.stop())
    assert committed(group)[A] == 2


async def test_a_worker_that_a_callback_has_started_commits_what_it_holds(group):
    """That callback is over, and the record that the worker holds is its own."""
    member = await reads(group, commits=False)
    done = []

    async def work():
        for _ in range(2):
            record = await member.consumer.getone()
            await member.consumer.commit()
            done.append((record.offset, committed(group)[A]))

    async def start(callback):
        if callback == "assigned":
            asyncio.get_running_loop().create_task(work())

    member.in_callback = start
    member.call("unsubscribe")
    member.call("subscribe", [TOPIC])
    group.produce(0, 0)
    await until(lambda: len(done) == 2, what=member.tail)
    assert done == [(0, 1), (1, 2)]
