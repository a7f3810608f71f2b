"""An event loop whose clock jumps to the next timer as soon as nothing else is ready: hours pass in no time."""

from __future__ import annotations

import asyncio
import selectors

STUCK_AFTER_SECONDS = 5


class StuckError(AssertionError):
    """Every task waits, and no timer will wake one."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while something runs. Worker threads work: the loop waits for them on the real clock."""

    def __init__(self) -> None:
        self.jumped_seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return 1_000.0 + self.jumped_seconds

    async def shutdown_default_executor(self, timeout=None):
        """Without the time-out that Python 3.12 brought: it passes in no time, and threads end on the real clock."""
        await super().shutdown_default_executor()


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        if ready := super().select(0):
            return ready
        if timeout is None:
            ready = super().select(STUCK_AFTER_SECONDS)
            if not ready:
                raise StuckError("every task waits and no timer will wake one")
            return ready
        self._loop.jumped_seconds += max(0.0, timeout)
        return []
