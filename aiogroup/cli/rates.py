"""How fast a group processes, and when it will be at the head, from looks at different instants."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from aiogroup.cli.looks import PartitionLook
from aiogroup.structs import TopicPartition

__all__ = ["Rate", "Rates", "sum_of_rates"]

RATE_MS: Final = 30_000
"""The rate is measured over this time. Members commit every few seconds, so a shorter time would show jumps."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Offsets in a second: `processed` by the group, and `written` to the log; `left_count` are not processed yet."""

    processed: float
    written: float
    left_count: int

    @property
    def left_ms(self) -> int | None:
        """The time until nothing is left, `None` if the group falls behind or stands still."""
        if not self.left_count:
            return 0
        gain = self.processed - self.written
        return round(self.left_count * 1_000 / gain) if gain > 0 else None


@dataclass(frozen=True, slots=True)
class _Seen:
    at_ms: int
    processed: int
    end: int


class Rates:
    """Remembers the looks of the last 30 seconds."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, deque[_Seen]] = {}

    def note(self, each: PartitionLook, at_ms: int) -> Rate | None:
        """The rate of this partition by now; `None` at its first look, and after its offset was set back."""
        if each.current is None or each.log_end is None or each.left_count is None:
            self._seen.pop(each.tp, None)
            return None
        now = _Seen(at_ms, each.current + (each.ahead_count or 0), each.log_end)
        seen = self._seen.setdefault(each.tp, deque())
        if seen and (now.processed < seen[-1].processed or now.end < seen[-1].end):
            seen.clear()
        seen.append(now)
        while len(seen) > 2 and at_ms - seen[1].at_ms >= RATE_MS:
            seen.popleft()
        first, took_ms = seen[0], at_ms - seen[0].at_ms
        if took_ms <= 0:
            return None
        return Rate(
            (now.processed - first.processed) * 1_000 / took_ms,
            (now.end - first.end) * 1_000 / took_ms,
            each.left_count,
        )


def sum_of_rates(rates: list[Rate | None]) -> Rate | None:
    """The rate of several partitions together, `None` if none of them has one."""
    known = [each for each in rates if each is not None]
    if not known:
        return None
    return Rate(
        sum(each.processed for each in known),
        sum(each.written for each in known),
        sum(each.left_count for each in known),
    )
