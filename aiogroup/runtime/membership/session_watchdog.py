"""The session watchdog task: notices that no heartbeat was answered for a session (KIP-62).

The coordinator may have given the partitions to another member by then. So nothing more of them is handed out until an
answer says that this member still counts, or that it does not. Requests look at the clock themselves: where the event
loop was blocked they may run before this task does. The task closes what was open, tells of the outage once, and wakes
the requests that waited through it.
"""

from __future__ import annotations

from typing import Protocol

from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.loop.clock import FOREVER_MS, now_ms
from aiogroup.telemetry import events

__all__ = ["SessionWatchdog"]


class Answered(Protocol):
    @property
    def counts_until_ms(self) -> int: ...


class SessionWatchdog:
    def __init__(self, context: Context, coordinator: Coordinator, heartbeat: Answered) -> None:
        self._context = context
        self._coordinator = coordinator
        self._heartbeat = heartbeat

    @property
    def is_unanswered(self) -> bool:
        """No answer for a session: whether this member still counts is not known."""
        return now_ms() >= self._heartbeat.counts_until_ms

    async def run(self) -> None:
        context, is_told = self._context, False
        while True:
            until_ms = self._heartbeat.counts_until_ms
            if now_ms() < until_ms:
                if is_told:
                    is_told = False
                    context.changed.pulse()
                await context.group_changed.wait(until_ms if until_ms != FOREVER_MS else None)
                continue
            if not is_told:
                is_told = True
                context.interrupt()
                setting, session_ms = self._coordinator.session
                context.tell(events.SessionUnanswered(setting, session_ms, tuple(sorted(context.assignment.names))))
            await context.group_changed.wait()
