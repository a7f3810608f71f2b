"""One virtual loop for every process of a simulation: reproducible, and its processes may freeze or die."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import selectors
from itertools import count
from types import SimpleNamespace
from unittest import mock

import aiokafka.conn

import aiogroup.runtime.delivery.requests
import aiogroup.runtime.recovery.catch_up_fetchers

PROCESS = contextvars.ContextVar("process", default=None)
START_SECONDS = 1_000.0


class StuckError(AssertionError):
    """Every task waits, and no timer will wake one; or timers that are due make new ones that are due as well."""


class Process:
    """What runs in one process. While it is frozen nothing of it runs; what was due then runs when it thaws."""

    def __init__(self, name):
        self.name = name
        self.is_halted = False
        self.backlog = []  # (handle that may have been cancelled meanwhile, handle to run)
        self.frozen_ms = 0.0
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


class Task(asyncio.Task):
    """Sets of tasks and futures are walked in the order of their making, not of their places in memory."""

    def __init__(self, coroutine, *, loop, **options):
        self.number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self):
        return self.number


class Future(asyncio.Future):
    def __init__(self, *, loop):
        self.number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self):
        return self.number


class SimLoop(asyncio.SelectorEventLoop):
    """`network` opens connections; nothing else leaves the process."""

    def __init__(self):
        self.jumped_seconds = 0.0
        self.numbers = count()
        self.network = None
        super().__init__(_Clock(self))
        self.set_task_factory(lambda loop, coroutine, **options: Task(coroutine, loop=loop, **options))

    def time(self):
        return START_SECONDS + self.jumped_seconds

    def create_future(self):
        return Future(loop=self)

    async def create_connection(self, protocol_factory, host=None, port=None, **_options):
        return await self.network.connect(protocol_factory, host, port)

    # Freezing.

    def call_soon(self, callback, *args, context=None):
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None and process.is_halted:
            handle = asyncio.Handle(callback, args, self, context)
            process.backlog.append((handle, handle))
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        cell = []
        timer = super().call_at(when, self._fire, process, cell, callback, args, context=context)
        cell.append(timer)
        return timer

    def _fire(self, process, cell, callback, args):
        if process.is_halted:
            handle = asyncio.Handle(self._fire, (process, cell, callback, args), self, contextvars.copy_context())
            process.backlog.append((cell[0], handle))
        elif not cell[0].cancelled():  # as a timer that is due and cancelled by one that was due before it
            callback(*args)

    def thaw(self, process):
        process.is_halted = False
        backlog, process.backlog = process.backlog, []
        for maybe_cancelled, handle in backlog:
            if not maybe_cancelled.cancelled():
                self._ready.append(handle)


TURN_MS = 3_600_000
TURNS_AT_ONE_INSTANT = 100_000
INSTANT_SECONDS = 1e-6
"""A simulation has a few hundred turns in so short a time."""


class _Clock(selectors.DefaultSelector):
    """No socket and no thread takes part: when nothing is ready, time jumps to the next timer."""

    def __init__(self, loop):
        super().__init__()
        self._loop = loop
        self._turns_count = 0  # in this instant
        self._instant_at = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise StuckError("every task waits and no timer will wake one")
        self._loop.jumped_seconds += max(0.0, timeout)
        self._turns_count += 1
        if self._loop.time() > self._instant_at + INSTANT_SECONDS:
            self._instant_at, self._turns_count = self._loop.time(), 0
        if self._turns_count > TURNS_AT_ONE_INSTANT:
            self._turns_count = 0
            raise StuckError(f"time has not gone on for {TURNS_AT_ONE_INSTANT:,} turns of the loop")
        return []


@contextlib.contextmanager
def clock_of(loop, *modules):
    """Whoever asks `time.monotonic()` gets the loop's: the library where it does, and `modules`.

    The cursor of `async for` has the processor's clock: its turns last as long as it may take to run a seed.
    """
    clock = SimpleNamespace(monotonic=loop.time)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(aiogroup.runtime.recovery.catch_up_fetchers, "TURN_MS", TURN_MS))
        for module in (aiogroup.runtime.delivery.requests, aiokafka.conn, *modules):
            stack.enter_context(mock.patch.object(module, "time", clock))
        yield
