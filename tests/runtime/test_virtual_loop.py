"""The loop that the tests of this room stand on."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiogroup._runtime.loop.clock import now_ms, sleep_ms, timeout_ms
from aiogroup.embedded import VirtualLoop


async def test_hours_pass_in_no_time():
    began, now = time.monotonic(), now_ms()
    await sleep_ms(7_200_000)
    assert now_ms() - now == pytest.approx(7_200_000, abs=2)
    assert time.monotonic() - began < 7_200


async def test_timers_end_in_their_order():
    ended = []

    async def wait(duration_ms):
        await sleep_ms(duration_ms)
        ended.append(duration_ms)

    await asyncio.gather(wait(3_000), wait(1_000), wait(2_000))
    assert ended == [1_000, 2_000, 3_000]


async def test_time_stands_still_while_something_runs():
    now = now_ms()
    for _ in range(100):
        await asyncio.sleep(0)
    assert now_ms() == now


async def test_time_out_ends_a_wait():
    now = now_ms()
    with pytest.raises(TimeoutError):
        async with timeout_ms(60_000):
            await asyncio.Event().wait()
    assert now_ms() - now == pytest.approx(60_000, abs=2)


async def test_worker_threads_are_waited_for():
    assert await asyncio.to_thread(sum, [1, 2]) == 3


def test_each_loop_has_a_clock_of_its_own():
    with asyncio.Runner(loop_factory=VirtualLoop) as one, asyncio.Runner(loop_factory=VirtualLoop) as other:
        one.run(asyncio.sleep(10))
        assert one.get_loop().time() - other.get_loop().time() == pytest.approx(10)
