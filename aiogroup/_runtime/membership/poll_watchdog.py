"""The poll watchdog task: when the application stops asking for records, the member gives its partitions up (KIP-62).

It runs in the same loop as the heartbeats: a main loop that is blocked for longer than the poll interval could not run
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.membership.facts import PollIntervalPassed
from aiogroup._core.membership.liveness import PollDeadlines
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError

__all__ = ["PollWatchdog", "StallClock"]


class StallClock(Protocol):
    """A `PollClock`, or what the heartbeat thread makes of one."""

    @property
    def running_since_ms(self) -> int | None: ...
    @property
    def deadlines(self) -> PollDeadlines | None: ...


class PollWatchdog:
    """Watches such a clock. `on_expired()` is called once per expiry, right after the membership got the fact.

    Nothing signals when the clock begins to run, so it is looked at often enough not to miss its warning.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        changes: Changes[Signal],
        emit: Emit,
        coordinator: CoordinatorLine,
        clock: StallClock,
        on_expired: Callable[[], None],
    ) -> None:
        self._changes = changes
        self._emit = emit
        self._coordinator = coordinator
        self._clock = clock
        self._on_expired = on_expired
        self._tick_ms = max(1, min(config.heartbeat_interval_ms, config.effective_poll_interval_ms // 10))
        self._warned_since_ms: int | None = None
        self._expired_since_ms: int | None = None

    async def run(self) -> None:
        while True:
            now = now_ms()
            wake_at_ms = now + self._tick_ms
            stall = self._clock.deadlines
            if stall is not None and stall.since_ms != self._expired_since_ms:
                if now >= stall.expires_at_ms:
                    await self._expire(stall.since_ms)
                elif now >= stall.warns_at_ms and stall.since_ms != self._warned_since_ms:
                    self._warned_since_ms = stall.since_ms
                    self._emit(events.PollIntervalWarning(now - stall.since_ms, stall.interval_ms))
                wake_at_ms = min(wake_at_ms, stall.warns_at_ms if now < stall.warns_at_ms else stall.expires_at_ms)
            await self._changes[Waiter.MEMBER].wait(until_ms=max(wake_at_ms, now + 1))

    async def _expire(self, since_ms: int) -> None:
        """End the membership under the lock, then send LeaveGroup: the group must not wait until the session ends."""
        coordinator = self._coordinator
        async with coordinator.lock:
            if self._clock.running_since_ms != since_ms:
                return  # the application asked for records while this task waited for the lock
            self._expired_since_ms = since_ms
            coordinator.handle(PollIntervalPassed())
            farewells = coordinator.membership.farewells.take()
            self._on_expired()
        for leave in farewells:
            try:
                await coordinator.leave(leave)
            except AiogroupError as error:
                self._emit(events.HeartbeatMissed(f"LeaveGroup: {error}"))
