"""The stages of a stop: each has the time that the stages before it left of the time-out, and reports what it could not
do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Final

from aiogroup._core.telemetry.event import repr_of
from aiogroup._runtime.loop.clock import are_done, now_ms, timeout_ms
from aiogroup._runtime.loop.supervisor import start_task
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

    async def run_apart(self, what: str, work: Coroutine[Any, Any, object], limit_ms: int) -> None:
        """As `run`, for code of the application. If it does not end, though cancelled, it is left behind; whatever it
        raises is noted as a problem.
        """
        task = start_task(what, lambda: work)
        try:
            if not await are_done([task], min(limit_ms, self.until_ms - now_ms())):
                self.problems.append(f"{what}: not done in time")
            elif task.cancelled():
                self.problems.append(f"{what}: it was cancelled")
            elif (error := task.exception()) is not None:
                self.problems.append(f"{what}: {repr_of(error)}")
        finally:
            task.cancel()

    async def close(self, work: Awaitable[object]) -> None:
        """The last stage, which has the reserved time."""
        left_ms = max(50, self.started_at_ms + self.timeout - now_ms())
        try:
            async with timeout_ms(left_ms):
                await work
        except TimeoutError:
            self.problems.append("closing: a task did not end in time")
