"""When a consumer that has ended is started again, and when it has ended too often. Time is an argument."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Restarts", "doubled_ms"]

FIRST_MS: Final = 1_000
MOST_MS: Final = 60_000
MEMORY_MS: Final = 600_000
"""An end counts for ten minutes; after a consumer that lived that long, the waits begin with the shortest again."""
MANY: Final = 5


def doubled_ms(count: int, most_ms: int) -> int:
    """The wait after failure number `count` in a row: 1 s after the first, then twice as long each time."""
    return min(FIRST_MS << min(count - 1, 20), most_ms)


class Restarts:
    """The ends of one consumer."""

    def __init__(self) -> None:
        self._ended_at_ms: deque[int] = deque(maxlen=MANY)
        self._in_a_row_count = 0

    def wait_ms(self, now: int) -> int:
        """Note that the consumer has ended, and how long to wait before it is started again."""
        if self._ended_at_ms and now - self._ended_at_ms[-1] >= MEMORY_MS:
            self._in_a_row_count = 0
        self._ended_at_ms.append(now)
        self._in_a_row_count += 1
        return doubled_ms(self._in_a_row_count, MOST_MS)

    def are_many(self, now: int) -> bool:
        """Whether it has ended five times within ten minutes."""
        return len(self._ended_at_ms) == MANY and now - self._ended_at_ms[0] < MEMORY_MS
