"""Whose turn it is: the application's, or the event loop's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiogroup.config import RECORDS_PER_TURN, TURN_MS

__all__ = ["Turn"]

TURN_SECONDS: Final = TURN_MS / 1000
BLOCKED_SECONDS: Final = 0.05
"""A turn that ends this late was held up by a call that blocks, or by a handler that awaited something."""


class Turn:
    """What the application is given before the loop runs again: requests that never wait must not occupy it."""

    def __init__(self, give_way: Callable[[], Awaitable[None]]) -> None:
        self.given_count = 0
        """The records given since the loop ran, without those of the slice that is open."""
        self._give_way = give_way
        self._ends_at = 0.0

    def begin(self) -> None:
        """The loop has just run."""
        self._ends_at = time.monotonic() + TURN_SECONDS
        self.given_count = 0

    def left_ns(self) -> int:
        return max(0, int((self._ends_at - time.monotonic()) * 1e9))

    def has_time(self) -> bool:
        return time.monotonic() < self._ends_at

    def has_room(self, count: int) -> bool:
        """Whether `count` more records may be given in it."""
        return (not self.given_count or self.given_count + count <= RECORDS_PER_TURN) and self.has_time()

    async def end(self) -> None:
        """Let the loop run, and begin the next turn. If a call has blocked the loop, one round is too few for a
        heartbeat: the next record may block it for as long, and three such records outlast the session.
        """
        was_blocked = time.monotonic() > self._ends_at + BLOCKED_SECONDS
        await asyncio.sleep(0)
        if was_blocked:
            await self._give_way()
        self.begin()
