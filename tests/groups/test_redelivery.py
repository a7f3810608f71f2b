"""An exception around `async for`, and the loop entered again: the record comes again, later each time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry import events
from tests.groups.scripted import TICKS_MS
from tests.support.group_members import until

KEPT, GONE = TopicPartition("kept", 0), TopicPartition("gone", 0)
BACKOFF = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000}


class Handler:
    """Fails at every record of partition 0 until it is told otherwise."""

    def __init__(self, group, member):
        self.attempts = []
        self.others = []
        self.failures_left = 10**9
        self._group, self._consumer = group, member.consumer

    async def run(self):
        while len(self.attempts) < 100:  # without a wait the clock would stand still for ever
            try:
                async for record in self._consumer:
                    if record.partition:
                        self.others.append(self._group.now_ms)
                    else:
                        self.handle(record)
            except ZeroDivisionError:
                pass

    def handle(self, record):
        self.attempts.append((record.offset, self._group.now_ms))
        if self.failures_left:
            self.failures_left -= 1
            raise ZeroDivisionError


@pytest.fixture
async def failing(group):
    member = await group.member("m", reads=False, **BACKOFF).start()
    handler = Handler(group, member)
    running = asyncio.create_task(member.do(handler.run()))
    yield group, member, handler
    running.cancel()
    await asyncio.wait({running})


async def test_the_same_record_comes_again_later_each_time_and_that_is_reported_ever_more_rarely(failing):
    group, member, handler = failing
    group.produce(0, 0)
    await until(lambda: len(handler.attempts) == 13, seconds=30)
    assert {offset for offset, _ in handler.attempts} == {0}
    at_ms = [at for _, at in handler.attempts]
    waits = [later - earlier for earlier, later in itertools.pairwise(at_ms)]
    expected = [0, 100, 200, 400, 800] + [1_000] * 7
    assert all(0 <= wait - most <= TICKS_MS for wait, most in zip(waits, expected, strict=True)), waits
    told = member.all(events.RecordRedelivered)
    assert [(each.partition, each.offset, each.redelivered_count) for each in told] == [(0, 0, 1), (0, 0, 10)]


async def test_other_partitions_do_not_wait_for_it(failing):
    group, _, handler = failing
    group.produce(0)
    await until(lambda: len(handler.attempts) == 8, seconds=30)
    for _ in range(5):
        group.produce(1)
        began_ms, before = group.now_ms, len(handler.others)
        await until(lambda before=before: len(handler.others) > before)
        assert handler.others[-1] - began_ms <= 2 * TICKS_MS


async def test_the_next_record_that_fails_comes_again_at_once(failing):
    group, member, handler = failing
    handler.failures_left = 5
    group.produce(0)
    await until(lambda: len(handler.attempts) == 6, seconds=30)
    group.produce(0)
    handler.failures_left = 1
    await until(lambda: len(handler.attempts) == 8, seconds=30)
    (first, first_ms), (second, second_ms) = handler.attempts[-2:]
    assert (first, second) == (1, 1)
    assert second_ms - first_ms <= TICKS_MS
    assert [each.redelivered_count for each in member.all(events.RecordRedelivered)] == [1, 1]


async def test_a_seek_ends_the_wait(failing):
    group, member, handler = failing
    group.produce(0, 0)
    await until(lambda: len(handler.attempts) == 8, seconds=30)
    handler.failures_left = 0
    asked_ms = group.now_ms
    member.call("seek", *seek_to(member, 1))
    await until(lambda: len(handler.attempts) == 9)
    offset, at_ms = handler.attempts[-1]
    assert offset == 1
    assert at_ms - asked_ms <= 2 * TICKS_MS


def seek_to(member, offset):
    return next(tp for tp in member.consumer.assignment() if tp.partition == 0), offset


async def test_a_stop_does_not_wait_for_it(failing):
    group, member, handler = failing
    group.produce(0)
    await until(lambda: len(handler.attempts) == 8, seconds=30)
    began_ms = group.now_ms
    await member.stop()
    assert group.now_ms - began_ms <= 10 * TICKS_MS


@pytest.mark.virtual_time
async def test_a_partition_that_goes_during_the_delay_is_not_asked_for(virtual_broker):
    """Its lag was unknown at the last look, so it was looked up again although it was not there any more."""
    for tp in (KEPT, GONE):
        virtual_broker.create_topic(tp.topic)
        virtual_broker.produce(tp.topic, b"x")
    servers = virtual_broker.bootstrap_servers
    consumer = Consumer(bootstrap_servers=servers, retry_backoff_ms=2_000, auto_offset_reset="earliest")
    consumer.assign([KEPT, GONE])
    with virtual_broker.error("ListOffsets", "LEADER_NOT_AVAILABLE", topic="gone", times=None):
        async with consumer:
            merged, attempts = consumer.merged(-1), []

            def fail(record):
                attempts.append(record)
                if len(attempts) == 2:
                    asyncio.get_running_loop().call_later(0.5, consumer.assign, [KEPT])
                raise ZeroDivisionError

            while len(attempts) < 4:
                with suppress(ZeroDivisionError):
                    async with asyncio.timeout(60):
                        async for record in merged:
                            fail(record)
