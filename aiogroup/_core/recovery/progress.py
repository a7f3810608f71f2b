"""How far the catch-up lane of a partition is, at what rate, and how long it will still take (KIP-333)."""

from __future__ import annotations

from collections import deque
from typing import Final

from aiogroup._core.recovery.ranges import Ranges, count
from aiogroup.records import CatchUpProgress

__all__ = ["LOOK_MS", "Progress"]

LOOK_MS: Final = 200
"""How often the ranges are checked for done ones, while some are pending."""
RATE_MS: Final = 10_000
"""The rate of catching up is measured over this time."""


class Progress:
    """Counts the offsets that are `pending`, from the beginning or the last seek on."""

    def __init__(self, pending: Ranges) -> None:
        self._begun_count = count(pending)
        # pairs: an instant, and the count of offsets that were pending then
        self._left: deque[tuple[int, int]] = deque()

    def start_over(self, pending: Ranges) -> None:
        """A seek has changed what is pending."""
        self._begun_count = count(pending)
        self._left.clear()

    def note(self, pending: Ranges, now_ms: int) -> None:
        """This is pending now. Call it regularly."""
        self._left.append((now_ms, count(pending)))
        while len(self._left) > 2 and now_ms - self._left[1][0] >= RATE_MS:
            self._left.popleft()

    def at(self, pending: Ranges, live: int, now_ms: int) -> CatchUpProgress:
        """The progress now; `live` is the position of the live lane."""
        self.note(pending, now_ms)
        (since_ms, before), (until_ms, left) = self._left[0], self._left[-1]
        is_known = until_ms - since_ms >= LOOK_MS and before > left
        per_second = (before - left) * 1_000 / (until_ms - since_ms) if is_known else None
        return CatchUpProgress(
            tuple((each.start, each.end) for each in pending),
            live,
            max(0, self._begun_count - left),
            left,
            per_second,
            0 if not left else None if per_second is None else round(left * 1_000 / per_second),
        )
