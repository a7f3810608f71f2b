"""The book of one partition's offsets during one ownership: delivered -> processed -> committable.

Theory of operation
-------------------
`position` is the next offset that could be delivered. Delivering a record puts its offset in hand and moves the
position behind it. An offset leaves the hand when it is processed: the application asked for the next records, a
commit covered it, or it was acknowledged. Acknowledgements come in any order; only the gap-free part leaves.

    committable = the lowest offset in hand, or the position when nothing is

Offsets that hold no record for the application (control batches, aborted transactions, compaction) are never in hand,
so the committable offset passes them together with the position.

A ledger belongs to one uninterrupted ownership. When that ends it is closed: acknowledgements of its records, which may
still come from the application's tasks, then change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["Ledger"]


class Ledger:
    __slots__ = ("_acked", "_hand", "_is_closed", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self._hand: deque[int] = deque()
        self._acked: set[int] = set()
        self._is_closed = False

    @property
    def committable(self) -> int:
        """The offset below which everything is processed."""
        return self._hand[0] if self._hand else self.position

    @property
    def in_hand_count(self) -> int:
        """Records that were delivered and are not processed (acknowledged ones behind a gap included)."""
        return len(self._hand)

    @property
    def has_unprocessed(self) -> bool:
        """The application holds a record that it has not acknowledged."""
        return bool(self._hand)

    def deliver(self, offsets: Sequence[int], position: int) -> None:
        """Records with these offsets were handed out; the next that could be is at `position`."""
        assert not offsets or (offsets[0] >= self.position and position > offsets[-1])
        self._hand.extend(offsets)
        self.position = position

    def pass_over(self, position: int) -> None:
        """Nothing below `position` is left to deliver."""
        self.position = max(self.position, position)

    def ack(self, offset: int) -> None:
        hand, acked = self._hand, self._acked
        if self._is_closed or not hand or not hand[0] <= offset <= hand[-1]:
            return
        acked.add(offset)
        self._pass_acked()

    def process_all(self) -> None:
        """Everything in hand is processed."""
        self._hand.clear()
        self._acked.clear()

    def process_below(self, offset: int) -> None:
        """A commit of `offset` covers what lies below it."""
        hand = self._hand
        while hand and hand[0] < offset:
            self._acked.discard(hand.popleft())
        self._pass_acked()

    def move(self, position: int) -> None:
        """Seek: what is in hand is taken back, not processed."""
        self.process_all()
        self.position = position

    def close(self) -> None:
        """The ownership ended."""
        self._is_closed = True

    def _pass_acked(self) -> None:
        hand, acked = self._hand, self._acked
        while hand and hand[0] in acked:
            acked.remove(hand.popleft())
