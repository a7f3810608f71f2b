"""The loop watchdog task: when something in this process blocks the event loop, it wakes up late and reports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup.config import ConsumerConfig

__all__ = ["LoopWatchdog"]

TICK_MS: Final = 250
BLOCKED_MS: Final = 500
"""A wake-up that is later than this is reported: another task held the loop."""


class LoopWatchdog:
    def __init__(self, config: ConsumerConfig, emit: Emit, coordinator: Coordinator, meters: Sequence[Meter]) -> None:
        self._config = config
        self._emit = emit
        self._coordinator = coordinator
        self._meters = meters

    async def run(self) -> None:
        while True:
            wake_at_ms = now_ms() + TICK_MS
            await sleep_ms(TICK_MS)
            late_ms = now_ms() - wake_at_ms
            for meter in self._meters:
                meter.loop_late_ms.note(late_ms)
            if late_ms >= BLOCKED_MS:
                self._report(late_ms)

    def _report(self, blocked_ms: int) -> None:
        setting, session_ms = self._coordinator.membership.session
        self._emit(events.EventLoopBlocked(blocked_ms, session_ms))
        if 2 * blocked_ms > session_ms and not self._config.heartbeat_thread:
            why = (
                f"no heartbeat for {blocked_ms} ms of {setting}={session_ms}, because a call did not await, or the "
                f"process stood still; run such a call in a thread, set heartbeat_thread=True, or raise {setting}"
            )
            self._emit(events.SessionEndangered(blocked_ms, session_ms, why))
