"""Signals: no pulse is missed, every waiter wakes, time ends a wait."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading

import pytest

from aiogroup import KafkaTimeoutError
from aiogroup._runtime.loop.clock import Alarm, Signal, now_ms, sleep_ms, timeout_ms, wall_ms, within_ms


async def test_pulse_wakes_every_waiter():
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    signal.pulse()
    assert await asyncio.gather(*waiting) == [True] * 3


async def test_pulse_without_a_waiter_is_forgotten():
    signal = Signal()
    signal.pulse()
    assert await signal.wait(now_ms() + 10) is False


async def test_pulse_of_the_waiter_itself_is_not_forgotten_where_it_says_since_when():
    signal, ran = Signal(), []
    seen_count = signal.pulses_count
    signal.pulse()
    asyncio.get_running_loop().call_soon(ran.append, True)
    assert await signal.wait(now_ms() + 3_600_000, since=seen_count) is True
    assert ran, "the loop runs in between: who pulses each time holds up nobody"
    assert await signal.wait(now_ms() + 10, since=signal.pulses_count) is False


@pytest.mark.parametrize("wait_ms", [0, 1, 250, 3_600_000])
async def test_wait_ends_at_its_instant_and_not_before(wait_ms):
    until_ms = now_ms() + wait_ms
    assert await Signal().wait(until_ms) is False
    assert until_ms <= now_ms() <= until_ms + 2


async def test_pulse_between_the_look_and_the_wait_cannot_be_missed():
    signal, looked = Signal(), []

    async def waiter():
        while len(looked) < 3:
            looked.append(now_ms())
            await signal.wait()

    task = asyncio.create_task(waiter())
    for _ in range(3):
        await asyncio.sleep(0)
        signal.pulse()
    await task
    assert len(looked) == 3


async def test_cancelled_waiter_is_forgotten_and_the_others_wake():
    signal = Signal()
    gone, there = asyncio.create_task(signal.wait()), asyncio.create_task(signal.wait(now_ms() + 1_000))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    signal.pulse()
    assert await there is True
    assert gone.cancelled()


async def test_pulse_and_end_at_once_wake_once():
    signal = Signal()
    task = asyncio.create_task(signal.wait(now_ms()))
    await asyncio.sleep(0)
    signal.pulse()
    signal.pulse()
    assert await task is True


async def test_no_time_out_waits_for_ever_and_a_past_one_ends_at_once():
    async with timeout_ms(None):
        await asyncio.sleep(1_000)
    now = now_ms()
    with pytest.raises(TimeoutError):
        async with timeout_ms(-5):
            await asyncio.sleep(1_000)
    assert now_ms() == now


def test_wall_clock_counts_milliseconds_since_the_epoch():
    assert 1_700_000_000_000 < wall_ms() < 5_000_000_000_000


class LoopAt(asyncio.SelectorEventLoop):
    """Its clock stands still."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def time(self):
        return self.seconds


def told_by(loop):
    """What instant it is on `loop`."""

    async def ask():
        return now_ms()

    try:
        return loop.run_until_complete(ask())
    finally:
        loop.close()


def test_the_instant_is_that_of_the_loop_that_runs_now():
    assert [told_by(LoopAt(seconds)) for seconds in (5, 70, 5)] == [5_000, 70_000, 5_000]


def test_each_thread_has_the_instant_of_its_own_loop():
    told = {}
    both_run = threading.Barrier(2, timeout=10)

    def run(seconds):
        async def ask():
            now_ms()
            both_run.wait()
            told[seconds] = now_ms()
            both_run.wait()

        loop = LoopAt(seconds)
        try:
            loop.run_until_complete(ask())
        finally:
            loop.close()

    threads = [threading.Thread(target=run, args=(seconds,)) for seconds in (3, 4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert told == {3: 3_000, 4: 4_000}


def refuse_without_a_loop():
    with pytest.raises(RuntimeError):
        now_ms()


def test_a_forked_process_asks_its_own_loop():
    """That of its parent seems to run for ever."""

    async def fork():
        now_ms()
        child = multiprocessing.get_context("fork").Process(target=refuse_without_a_loop)
        child.start()
        return child

    loop = LoopAt(5)
    try:
        child = loop.run_until_complete(fork())
        child.join(30)
        assert child.exitcode == 0
    finally:
        loop.close()


def test_without_a_loop_there_is_no_instant():
    told_by(LoopAt(5))
    refuse_without_a_loop()


async def test_an_alarm_rings_at_the_first_of_its_instants_and_once():
    began_ms, rang = now_ms(), []
    alarm = Alarm(lambda: rang.append(now_ms() - began_ms))
    for wait_ms in (500, 200, 300):
        alarm.ring_by(began_ms + wait_ms)
    await sleep_ms(1_000)
    assert len(rang) == 1
    assert 200 <= rang[0] <= 202


async def test_an_alarm_that_rang_can_be_set_again_from_its_ring():
    began_ms, rang = now_ms(), []

    def ring():
        rang.append(now_ms() - began_ms)
        if len(rang) == 1:
            alarm.ring_by(began_ms + 700)

    alarm = Alarm(ring)
    alarm.ring_by(began_ms + 100)
    await sleep_ms(1_000)
    assert len(rang) == 2
    assert 700 <= rang[1] <= 702


async def test_an_alarm_that_is_cancelled_is_silent_until_it_is_set_again():
    rang = []
    alarm = Alarm(lambda: rang.append(True))
    alarm.ring_by(now_ms() + 100)
    alarm.cancel()
    await sleep_ms(300)
    assert rang == []
    alarm.ring_by(now_ms() + 100)
    await sleep_ms(300)
    assert rang == [True]


async def test_a_block_that_takes_longer_raises_kafkas_time_out_with_its_text():
    with pytest.raises(KafkaTimeoutError, match=r"^too late$"):
        async with within_ms(10, "too late"):
            await sleep_ms(1_000)


async def test_a_time_out_of_the_block_itself_keeps_its_text():
    with pytest.raises(KafkaTimeoutError, match=r"^of a request$"):
        async with within_ms(10_000, "too late"):
            raise KafkaTimeoutError("of a request")


async def test_a_pulse_in_the_turn_in_which_the_time_ends_is_no_time_out():
    signal, loop = Signal(), asyncio.get_running_loop()
    until_ms = now_ms() + 5
    waiting = asyncio.create_task(signal.wait(until_ms))
    await asyncio.sleep(0)
    loop.call_at((until_ms + 1) / 1000, signal.pulse)  # behind the timer of the wait
    assert await waiting is True
