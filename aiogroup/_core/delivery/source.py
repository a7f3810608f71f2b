"""The sources of a cursor's records: the slices of one lane after another, or a merge of all lanes (KIP-695)."""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.delivery.in_hand import InHand
from aiogroup._core.fetching.buffer import Slice
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.native import Cursor
from aiogroup.records import Record

__all__ = ["SliceSource", "Source"]


class Source(Protocol):
    """Gives records to the application through a cursor, without any other call until the cursor is empty."""

    @property
    def is_enforced(self) -> bool:
        """Whether the next records were chosen while some partition had none: then records that arrive may belong
        before them.
        """

    def settle(self) -> None:
        """Record in the ledgers which records the cursor gave."""

    def put_off(self) -> bool:
        """A request marks the records given as processed. Returns whether that can be settled later."""

    def end_turn(self) -> None:
        """Close the cursor; the next request goes on after the records that it gave. Call `settle` first."""

    def close(self) -> None:
        """As `end_turn`, and forget the records that were chosen ahead. Call `settle` first."""


class SliceSource:
    """One lane's slice."""

    is_enforced = False

    def __init__(self, in_hand: InHand) -> None:
        self.cursor = Cursor(is_shared=not in_hand.auto_ack)
        self._in_hand = in_hand
        self._lane: Lane | None = None

    def open(self, lane: Lane, slice_: Slice, turn_ns: int) -> Record:
        """Return the slice's next record and open the cursor after it."""
        self._lane = lane
        return self.cursor.open(slice_.records, slice_.index, turn_ns)

    def settle(self) -> None:
        lane = self._lane
        if lane is None or lane.buffer.slice is None:
            return
        slice_, done_count = lane.buffer.slice, self.cursor.index
        if done_count > slice_.index:
            self._in_hand.hand_out(lane, slice_, done_count, keep_last_only=self._in_hand.auto_ack)
            self._in_hand.iterated = (lane, slice_.records[done_count - 1])

    def put_off(self) -> bool:
        return False

    def end_turn(self) -> None:
        lane = self._lane
        if lane is None:  # it is closed
            return
        self._lane = None
        self.cursor.close()
        if lane.buffer.slice is not None:
            lane.buffer.slice.let_go()
        if not lane.is_due:  # mostly at the head: so the next request need not look at it
            lane.tally.turns.pop(lane, None)

    def close(self) -> None:
        if self._lane is not None:
            self.end_turn()
