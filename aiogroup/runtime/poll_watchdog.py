"""The poll watchdog task: an application that stops asking for records gives its partitions up (KIP-62).

It notices too when the loop itself was blocked, by its own late wake-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiogroup.errors import AiogroupError, PollIntervalExceeded
from aiogroup.membership.facts import PollIntervalPassed
from aiogroup.membership.liveness import PollClock
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.runtime.clock import now_ms
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.telemetry import events

__all__ = ["PollWatchdog"]

TICK_MS: Final = 250
BLOCKED_MS: Final = 500
"""A wake-up later than this is worth telling: another task held the loop."""


class PollWatchdog:
    """`on_expired()` is called once per expiry, at once, when the membership is parked."""

    def __init__(self, context: Context, coordinator: Coordinator, on_expired: Callable[[], None]) -> None:
        self._context = context
        self._coordinator = coordinator
        self._on_expired = on_expired
        self._interval_ms = context.config.effective_poll_interval_ms
        self._warned_for_ms = -1
        self.clock = PollClock(self._interval_ms, now_ms())

    async def run(self) -> None:
        while True:
            now = now_ms()
            if self.clock.is_expired(now):
                await self._expire()
            elif self.clock.is_running and now >= self.clock.warns_at_ms != self._warned_for_ms:
                self._warned_for_ms = self.clock.warns_at_ms
                since_ms = now - (self.clock.expires_at_ms - self._interval_ms)
                self._context.tell(events.PollIntervalWarning(since_ms, self._interval_ms))
            await self._sleep(now)

    async def _sleep(self, now: int) -> None:
        wake_at_ms = now + TICK_MS
        if self.clock.is_running:
            warned = self.clock.warns_at_ms == self._warned_for_ms
            wake_at_ms = min(wake_at_ms, self.clock.expires_at_ms if warned else self.clock.warns_at_ms)
        wake_at_ms = max(wake_at_ms, now + 1)
        await self._context.group_changed.wait(until_ms=wake_at_ms)
        late_ms = now_ms() - wake_at_ms
        if late_ms >= BLOCKED_MS:
            self._context.tell(events.EventLoopBlocked(late_ms, self._context.config.session_timeout_ms))

    async def _expire(self) -> None:
        """Stop being a member under the lock, then tell the coordinator: it must not wait for the session to end."""
        coordinator = self._coordinator
        partitions = tuple(sorted(self._context.assignment.names))
        async with coordinator.lock:
            if not self.clock.is_expired(now_ms()):
                return  # the application came while we waited for the lock
            coordinator.handle(PollIntervalPassed())
            step = coordinator.membership.poll(now_ms())
            self._on_expired()
        # A static member sends no LeaveGroup and no more heartbeats: its name keeps its partitions for a session.
        _, session_ms = coordinator.membership.settings.session_of(coordinator.identity)
        acts_within_ms = 0 if step.requests or not coordinator.identity.is_static else session_ms
        self._context.tell(events.PollIntervalExceeded(partitions, self._interval_ms, acts_within_ms))
        if self._context.config.raise_on_poll_interval:
            self._context.inbox.put(PollIntervalExceeded(partitions, self._interval_ms))
        for leave in step.requests:
            assert isinstance(leave, LeaveGroupRequest)
            try:
                await coordinator.leave(leave)
            except AiogroupError as error:
                self._context.tell(events.HeartbeatMissed(f"LeaveGroup: {error}"))
