"""The stages of a stop: each has the time that the stages before it left of the time-out, and reports what it could not
do.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from aiogroup._runtime.loop.clock import now_ms, timeout_ms
from aiogroup.errors import AiogroupError

__all__ = ["Stages"]

LEAVE_RESERVE_MS: Final = 1_000
CLOSE_RESERVE_MS: Final = 250
"""The time reserved for closing sockets and ending tasks."""


class Stages:
    def __init__(self, timeout: int) -> None:
        self.problems: list[str] = []
        self.timeout = timeout
        self.started_at_ms = now_ms()
        self.until_ms = self.started_at_ms + max(0, timeout - min(CLOSE_RESERVE_MS, timeout // 4))

    def left_ms(self) -> int:
        """The time left for all stages but LeaveGroup and closing."""
        return max(0, self.until_ms - min(LEAVE_RESERVE_MS, self.timeout // 4) - now_ms())

    async def run(self, what: str, work: Awaitable[object], limit_ms: int | None = None) -> None:
        """Await the work. A time-out or an `AiogroupError` is noted as a problem."""
        until_ms = self.until_ms if limit_ms is None else min(self.until_ms, now_ms() + limit_ms)
        try:
            async with timeout_ms(until_ms - now_ms()):
                await work
        except TimeoutError:
            self.problems.append(f"{what}: not done in time")
        except AiogroupError as error:
            self.problems.append(f"{what}: {error}")

    async def close(self, work: Awaitable[object]) -> None:
        """The last stage, which has the reserved time."""
        left_ms = max(50, self.started_at_ms + self.timeout - now_ms())
        try:
            async with timeout_ms(left_ms):
                await work
        except TimeoutError:
            self.problems.append("closing: a task did not end in time")
