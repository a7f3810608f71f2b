"""The one place that knows seconds: everything else counts whole milliseconds of the loop's own clock."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from aiogroup.errors import KafkaTimeoutError

__all__ = [
    "FOREVER_MS",
    "Alarm",
    "Signal",
    "are_done",
    "mono_ms",
    "now_ms",
    "processor_ms",
    "running_loop",
    "sleep_ms",
    "steady_ms",
    "steady_ns",
    "thread_ms",
    "timeout_ms",
    "wall_ms",
    "wall_ns",
    "within_ms",
]


FOREVER_MS: Final = 2**62
"""An instant that never comes."""
_monotonic, _process_time = time.monotonic, time.process_time
"""Not those of virtual time, which is put in the place of `time`."""


class _Here(threading.local):
    loop: asyncio.AbstractEventLoop | None = None
    time: Callable[[], float] = time.monotonic


_here = _Here()


@cache
def _forget_in_forked_processes() -> None:
    """In a forked process, forget the parent's loop, which would count as running for ever."""
    os.register_at_fork(after_in_child=lambda: setattr(_here, "loop", None))


def running_loop() -> asyncio.AbstractEventLoop:
    """As `asyncio.get_running_loop`, which before Python 3.12 asks the system for the process id each time.

    The clock is read ten times per request: these system calls took a twelfth of a drain's time.
    """
    loop = _here.loop
    if loop is None or not loop.is_running():
        loop = _here.loop = asyncio.get_running_loop()
        is_usual = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
        _here.time = time.monotonic if is_usual else loop.time
        _forget_in_forked_processes()
    return loop


def now_ms() -> int:
    """The running loop's clock in whole milliseconds. It is monotonic; a test may replace it."""
    loop = _here.loop
    if loop is None or not loop.is_running():
        running_loop()
    return int(_here.time() * 1000)


def mono_ms() -> int:
    """As `now_ms` where an event loop runs, and the usual loop's clock in a thread without one."""
    try:
        return now_ms()
    except RuntimeError:
        return int(time.monotonic() * 1000)


def steady_ms() -> int:
    """Milliseconds of a clock that is never set, and the same in all threads, whatever loop runs there."""
    return int(time.monotonic() * 1000)


def steady_ns() -> int:
    """As `steady_ms`, in nanoseconds."""
    return int(time.monotonic() * 1e9)


def thread_ms() -> int:
    """As `steady_ms`, also in virtual time: the clock by which threads wait."""
    return int(_monotonic() * 1000)


def processor_ms() -> int:
    """How much processor time all threads of this process have used."""
    return int(_process_time() * 1000)


def wall_ms() -> int:
    """Milliseconds since the epoch, for what brokers compare with record timestamps."""
    return time.time_ns() // 1_000_000


def wall_ns() -> int:
    """Nanoseconds since the epoch, for spans."""
    return time.time_ns()


async def sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


def timeout_ms(duration_ms: int | None) -> asyncio.Timeout:
    """`async with timeout_ms(n)`: `TimeoutError` when the block takes longer; `None` never ends it."""
    return asyncio.timeout(None if duration_ms is None else max(0, duration_ms) / 1000)


@asynccontextmanager
async def within_ms(duration_ms: int, late: str) -> AsyncIterator[None]:
    """`async with within_ms(n, "...")`: `KafkaTimeoutError` with this text when the block takes longer.

    A `KafkaTimeoutError` that the block itself raises keeps its own text, which says more.
    """
    try:
        async with timeout_ms(duration_ms):
            yield
    except KafkaTimeoutError:
        raise
    except TimeoutError as error:
        raise KafkaTimeoutError(late) from error


async def are_done(futures: Collection[asyncio.Future[Any]], limit_ms: int | None) -> bool:
    """Wait until all are done, at most so long, and cancel none. Returns whether they are."""
    _, left = await asyncio.wait(futures, timeout=None if limit_ms is None else limit_ms / 1000)
    return not left


class Alarm:
    """One timer for many waits that mostly end before it: it stays where the first of them set it.

    So `ring` must look whether it is time, and call `ring_by` again for what is left.
    """

    __slots__ = ("_ring", "_timer")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def ring_by(self, at_ms: int) -> None:
        """Call `ring` at this instant, or before."""
        at = (at_ms + 1) / 1000
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._on_time)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        self._ring()


class Signal:
    """Wakes waiters when something has changed, so that they check again. A pulse wakes every waiter, the oldest first;
    without a waiter it is forgotten.

    Check your condition, then `await wait()`. If there is no await in between, no pulse is missed. Whoever may pulse
    while it checks takes `pulses_count` first, and waits for what came `since` then.
    """

    __slots__ = ("_waiters", "pulses_count")

    def __init__(self) -> None:
        self.pulses_count = 0
        self._waiters: dict[asyncio.Future[None], None] = {}

    def pulse(self) -> None:
        self.pulses_count += 1
        if self._waiters:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def wait(self, until_ms: int | None = None, *, since: int | None = None) -> bool:
        """Wait for a pulse, at most until the instant `until_ms`. Returns whether one came, be it in the same turn of
        the loop in which the time ended. Lets the loop run in any case.
        """
        loop, before_count = running_loop(), self.pulses_count if since is None else since
        waiter: asyncio.Future[None] = loop.create_future()
        if before_count != self.pulses_count:
            loop.call_soon(_wake, waiter)
        self._waiters[waiter] = None
        timer = loop.call_at((until_ms + 1) / 1000, _wake, waiter) if until_ms is not None else None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()
        return self.pulses_count != before_count


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
