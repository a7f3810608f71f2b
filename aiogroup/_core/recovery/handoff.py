"""Watches ranges that are left to batch jobs (KIP-333), and says which of them the member must read itself.

A job works on a range from its start, so a range is known by its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiogroup._core.recovery.ranges import Ranges, subtract, union

__all__ = ["HandOffWatch"]


class HandOffWatch:
    """Watches ranges that are left to jobs, and says which of them the member must read itself.

    These are ranges of a partition on which no job has worked for `timeout_ms`, or that retention is about to reach.
    Instants are milliseconds since the epoch, as they are kept in the token beyond the life of the member.
    """

    def __init__(self, timeout_ms: int, since_s: Iterable[tuple[int, int]] = ()) -> None:
        """`since_s` is from the last token: for each range, by its end, the second since which it has been waiting."""
        self._timeout_ms = timeout_ms
        self._since_ms = {end: at_s * 1_000 for end, at_s in since_s}
        self._log_start: int | None = None
        self.taken_back: Ranges = ()

    def note_progress(self, pending: Ranges, now_ms: int, at_s: int = 0) -> None:
        """A job works on the partition: it wrote so in the second `at_s` (0: not known when, so now).

        A job reads one range after the other, and repeats the entry each minute. So no range of `pending` has waited
        since before that second.
        """
        at_ms = min(now_ms, at_s * 1_000) if at_s else now_ms
        for each in pending:
            self._since_ms[each.end] = max(at_ms, min(now_ms, self._since_ms.get(each.end, 0)))

    def note_waiting(self, ends: Iterable[int], now_ms: int) -> None:
        """The ranges with these ends wait from now on, unless they have been waiting already."""
        for end in ends:
            self._since_ms[end] = self._since(end, now_ms)

    def since_s(self, pending: Ranges, now_ms: int) -> tuple[int, ...]:
        """For each range the second since which it has been waiting."""
        return tuple(self._since(each.end, now_ms) // 1_000 for each in pending)

    def take_back(self, pending: Ranges, now_ms: int, log_start: int | None = None) -> Ranges:
        """Take back the ranges that are `overdue`; returns those that were not taken back before."""
        overdue = self.overdue(pending, now_ms, log_start)
        news = subtract(overdue, self.taken_back)
        if news:
            self.taken_back = union(self.taken_back, news)
        return news

    def has_taken_back(self, start: int, end: int) -> bool:
        """Whether a part of this range was taken back."""
        return any(each.start < end and start < each.end for each in self.taken_back)

    def overdue(self, pending: Ranges, now_ms: int, log_start: int | None = None) -> Ranges:
        """The ranges that jobs have left alone for too long.

        Call it regularly, with the ranges pending at that time.
        """
        moved = 0 if log_start is None or self._log_start is None else log_start - self._log_start
        self._log_start = self._log_start if log_start is None else log_start
        self.note_waiting((each.end for each in pending), now_ms)
        return tuple(
            each
            for each in pending
            if now_ms - self._since(each.end, now_ms) >= self._timeout_ms
            or (log_start is not None and moved > 0 and each.start - log_start <= moved)
        )

    def _since(self, end: int, now_ms: int) -> int:
        """Since when the range with this end has been waiting: since now if it is new, and never since a future
        instant, which may come from another clock.
        """
        return min(now_ms, self._since_ms.get(end, now_ms))
