"""One virtual loop for every process of a simulation: reproducible, and its processes may freeze or die."""

from __future__ import annotations

import asyncio
import contextvars

from aiogroup.embedded import VirtualLoop

PROCESS = contextvars.ContextVar("process", default=None)
START_SECONDS = 1_000.0


class Process:
    """What runs in one process. While it is frozen nothing of it runs; what was due then runs when it thaws."""

    def __init__(self, name):
        self.name = name
        self.is_halted = False
        self.backlog = []  # (handle that may have been cancelled meanwhile, handle to run)
        self.frozen_ms = 0.0
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


class SimLoop(VirtualLoop):
    """Its brokers count the same milliseconds as it does itself."""

    def __init__(self):
        super().__init__(begin_ms=int(START_SECONDS * 1000))

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
