"""What was fetched for one lane and is not delivered: pieces that wait to be decoded, and the decoded slice."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import attrgetter
from typing import Final

from aiogroup._core.fetching.records.decode import PartitionDecoder
from aiogroup._core.fetching.tally import Tally
from aiogroup.records import Record

__all__ = ["Buffer", "Slice"]

_OFFSET: Final = attrgetter("offset")


class Slice:
    """Decoded records that are not all delivered. Those from `index` on come next; when all are delivered the position
    is `end`.
    """

    __slots__ = ("end", "index", "keys", "last_offset", "records", "size_bytes")

    def __init__(self, records: list[Record], end: int, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.records = records
        self.keys: list[int] = []  # for a merge: the times of the first records; more are read when needed
        self.index = 0
        self.end = end
        self.last_offset: int | None = None
        """The offset of the last record, when all were handed out and none is kept here."""

    def let_go(self) -> None:
        """When all records are handed out, keep none of them."""
        if self.index and self.index == len(self.records):
            self.last_offset = self.records[-1].offset
            self.cut()

    def give(self, since: int) -> list[Record]:
        """The records from `since` on that are handed out, in a list that the caller may keep and change."""
        if since or self.index < len(self.records):
            given = self.records[since : self.index]
            self.let_go()
            return given
        given, self.records = self.records, []  # moved: a copy would be three passes
        self.last_offset = given[-1].offset
        self.cut()
        return given

    def take_back(self, record: Record) -> bool:
        """Make the record that was handed out last the next one again. Returns False if it was another one."""
        if self.index and self.records[self.index - 1] is record:
            self.index -= 1
            return True
        if self.records or self.last_offset != record.offset:
            return False
        self.records.append(record)
        return True

    def cut(self) -> None:
        """Remove the records that are handed out."""
        del self.records[: self.index]
        del self.keys[: self.index]
        self.index = 0


class Buffer:
    """The fetched `pieces` of one lane; the first of them is decoded into one `slice` after another. `tally` counts the
    bytes of all.
    """

    __slots__ = ("_behind_bytes", "decoded_bytes", "fetched_bytes", "pieces", "slice", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.pieces: deque[PartitionDecoder] = deque()
        self.slice: Slice | None = None
        self.fetched_bytes = self.decoded_bytes = 0
        self._behind_bytes = 0  # of all pieces but the first, whose size changes while it is decoded

    @property
    def size_bytes(self) -> int:
        return self.fetched_bytes + self.decoded_bytes

    @property
    def ready_count(self) -> int:
        """Records that are decoded and not handed out."""
        return 0 if self.slice is None else len(self.slice.records) - self.slice.index

    def put(self, piece: PartitionDecoder) -> None:
        """Append a fetched piece."""
        size_bytes, tally = piece.fetched_bytes, self.tally
        if self.pieces:
            self._behind_bytes += size_bytes
        self.pieces.append(piece)
        if piece.first_batch_bytes > tally.batch_bytes:
            tally.batch_bytes = piece.first_batch_bytes
        self.fetched_bytes += size_bytes  # as `weigh` would find: nothing of a new piece is decoded
        tally.fetched_bytes += size_bytes

    def use_up(self) -> None:
        """Remove the first piece, which has nothing left."""
        self.pieces.popleft()
        if self.pieces:
            self._behind_bytes -= self.pieces[0].fetched_bytes
        self.weigh()

    def clear(self) -> None:
        self.pieces.clear()
        self._behind_bytes = 0
        self.slice = None
        self.weigh()

    def go_on_at(self, offset: int) -> bool:
        """Drop the records below `offset`. Returns False if the rest cannot be read from there."""
        slice_ = self.slice
        if slice_ is not None:
            slice_.index = bisect_left(slice_.records, offset, slice_.index, key=_OFFSET)
            slice_.cut()
            if not slice_.records:
                self.slice, offset = None, max(offset, slice_.end)
        while len(self.pieces) > 1 and self.pieces[1].next_offset <= offset:
            self.use_up()
        if self.pieces and not self.pieces[0].skip_to(offset):
            return False
        self.weigh()
        return True

    def weigh(self) -> None:
        """The bytes held here have changed: update the tally."""
        slice_ = self.slice
        fetched_bytes = decoded_bytes = 0
        if self.pieces:
            fetched_bytes = self.pieces[0].fetched_bytes + self._behind_bytes
            decoded_bytes = self.pieces[0].inflated_bytes
        if slice_ is not None and slice_.index < len(slice_.records):
            decoded_bytes += slice_.size_bytes
        self.tally.fetched_bytes += fetched_bytes - self.fetched_bytes
        self.tally.decoded_bytes += decoded_bytes - self.decoded_bytes
        self.fetched_bytes, self.decoded_bytes = fetched_bytes, decoded_bytes

    def count_in(self, tally: Tally) -> None:
        """From now on this tally counts what is buffered here."""
        self.tally.fetched_bytes -= self.fetched_bytes
        self.tally.decoded_bytes -= self.decoded_bytes
        self.tally = tally
        tally.fetched_bytes += self.fetched_bytes
        tally.decoded_bytes += self.decoded_bytes
