"""The session watchdog task: it notices when no heartbeat was answered for a session (KIP-62).

By then the coordinator may have given the partitions to another member. So no more records are handed out until an
answer says whether this member still counts. Requests for records look at the clock themselves, because they may run
before this task when the event loop was blocked. The task closes an open iteration, reports the outage once, and wakes
the requests that have waited through it.
"""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, now_ms

__all__ = ["SessionWatchdog"]


class Answered(Protocol):
    @property
    def counts_until_ms(self) -> int: ...


class SessionWatchdog:
    def __init__(
        self,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        coordinator: Coordinator,
        heartbeat: Answered,
    ) -> None:
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._coordinator = coordinator
        self._heartbeat = heartbeat

    @property
    def is_unanswered(self) -> bool:
        """No heartbeat was answered for a session, so it is not known whether this member still counts."""
        return now_ms() >= self._heartbeat.counts_until_ms

    async def run(self) -> None:
        is_reported = False
        while True:
            until_ms = self._heartbeat.counts_until_ms
            if now_ms() < until_ms:
                if is_reported:
                    is_reported = False
                    self._changes.tell(Change.INTERRUPTED)
                await self._changes[Waiter.MEMBER].wait(until_ms if until_ms != FOREVER_MS else None)
                continue
            if not is_reported:
                is_reported = True
                self._delivery.interrupt()
                setting, session_ms = self._coordinator.membership.session
                self._emit(events.SessionUnanswered(setting, session_ms, tuple(sorted(self._assignment.names))))
            await self._changes[Waiter.MEMBER].wait()
