"""The ledger of one partition's offsets during one ownership: delivered -> processed -> committable.

Theory of operation
-------------------
`position` is the next offset that could be delivered. Delivering a record puts its offset in hand and moves the
position after it. An offset leaves the hand when it is processed: the application asked for the next records, a
commit covered it, or it was acknowledged. Acknowledgements come in any order; only the gap-free part leaves.

    committable = the lowest offset in hand, or the position when nothing is

Acknowledgements behind a gap are noted, and now and then they are taken out of what is in hand. So the memory is that
of the records which are still in hand, however long one of them holds the committable offset back.

Offsets that hold no record for the application (control batches, aborted transactions, compaction) are never in hand,
so the committable offset passes them together with the position.

A ledger belongs to one uninterrupted ownership. When that ends it is closed: acknowledgements of its records, which may
still come from the application's tasks, then change nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

__all__ = ["Ledger"]

MOST_NOTED: Final = 1_000
"""How many acknowledgements behind a gap are noted before they are taken out; more where many runs are in hand."""


class Ledger:
    __slots__ = ("_acked", "_done_count", "_is_closed", "_runs", "_since", "delivered", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._since = position  # where the application put it
        self.delivered = position  # after the last record that was handed out; `position` may be further
        self._runs: deque[Sequence[int]] = deque()  # in hand: mostly ranges, so that a batch costs one entry
        self._done_count = 0  # how many offsets of the first run are processed, never all of them
        self._acked: set[int] = set()
        self._is_closed = False

    @property
    def committable(self) -> int:
        """The offset below which everything is processed."""
        return self._runs[0][self._done_count] if self._runs else self.position

    @property
    def in_hand_count(self) -> int:
        """Records that were delivered and are not processed."""
        self._take_out_acked()
        return sum(map(len, self._runs)) - self._done_count

    @property
    def has_unprocessed(self) -> bool:
        """The application holds a record that it has not acknowledged."""
        return bool(self._runs)

    @property
    def has_processed(self) -> bool:
        """A record that was handed out is processed; none of those before the last seek counts."""
        return min(self.committable, self.delivered) > self._since

    def deliver(self, offsets: Sequence[int], position: int) -> None:
        """Records with these ascending offsets were handed out; `position` is the next offset that could be."""
        assert not offsets or (offsets[0] >= self.position and position > offsets[-1])
        if offsets:
            self._runs.append(offsets)
            self.delivered = offsets[-1] + 1
        self.position = position

    def pass_over(self, position: int) -> None:
        """Nothing below `position` is left to deliver."""
        self.position = max(self.position, position)

    def ack(self, offset: int) -> None:
        if self._is_closed or not self._runs or not self.committable <= offset <= self._runs[-1][-1]:
            return
        self._acked.add(offset)
        self._pass_acked()
        if len(self._acked) > MOST_NOTED and len(self._acked) > len(self._runs) // 2:
            self._take_out_acked()

    def process_all(self) -> None:
        """Everything in hand is processed."""
        self._runs.clear()
        self._done_count = 0
        self._acked.clear()

    def process_below(self, offset: int) -> None:
        """A commit of `offset` covers what lies below it."""
        while self._runs and self._runs[0][-1] < offset:
            self._runs.popleft()
            self._done_count = 0
        if self._runs:
            self._done_count = max(self._done_count, bisect_left(self._runs[0], offset))
        if self._acked:
            self._acked = {each for each in self._acked if each >= offset}
            self._pass_acked()

    def move(self, position: int) -> None:
        """The application seeks to `position`: records in hand are taken back, and do not count as processed."""
        self.process_all()
        self.position = self._since = position
        self.delivered = min(self.delivered, position)

    def close(self) -> None:
        """The ownership ended."""
        self._is_closed = True

    def _pass_acked(self) -> None:
        runs, acked = self._runs, self._acked
        while acked and runs and (first := runs[0][self._done_count]) in acked:
            acked.remove(first)
            self._done_count += 1
            if self._done_count == len(runs[0]):
                runs.popleft()
                self._done_count = 0

    def _take_out_acked(self) -> None:
        """Leave in the runs only what is in hand. The gap at the front stays, so the committable offset does, too."""
        acked, self._acked = sorted(self._acked), set()
        if not acked:
            return
        runs: deque[Sequence[int]] = deque()
        for number, run in enumerate(self._runs):
            at = self._done_count if number == 0 else 0
            for offset in acked[bisect_left(acked, run[at]) : bisect_right(acked, run[-1])]:
                found = bisect_left(run, offset, at)
                if run[found] == offset:
                    if found > at:
                        runs.append(run[at:found])
                    at = found + 1
            if at < len(run):
                runs.append(run[at:])
        self._runs, self._done_count = runs, 0
