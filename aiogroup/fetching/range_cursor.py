"""The catch-up lane's cursor: a partition as it is read from the start of one pending range up to its end (KIP-333)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from aiogroup.config import ResetPolicy
from aiogroup.errors import RecordDeserializationError
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.position import Partition, Tally

if TYPE_CHECKING:
    from aiogroup.records import Record

__all__ = ["BoundedDecoder", "RangeCursor"]


class RangeCursor(Partition):
    """Never looked up, reset or validated: it stands in a log that `live`, the partition itself, answers for.

    `former` is the range before, whose records come first.
    """

    __slots__ = ("end", "former", "live", "start")

    def __init__(self, live: Partition, start: int, end: int, leader_epoch: int, tally: Tally) -> None:
        super().__init__(live.tp, live.ownership, ResetPolicy("none"), tally)
        self.live = live
        self.start = start
        self.end = end
        self.former: RangeCursor | None = None
        self.is_paused = live.is_paused
        self.topic_id = live.topic_id
        self.start_at(start, leader_epoch=leader_epoch)

    @property
    def is_open(self) -> bool:
        live = self.live
        if self.is_paused or self.is_delayed or live.is_held or live.is_new or live.is_leaving:
            return False
        return self.former is None or self.former.is_delivered

    @property
    def is_delivered(self) -> bool:
        """Nothing of the range, nor of one before it, is left to hand out."""
        return self.ledger.position >= self.end and (self.former is None or self.former.is_delivered)

    @property
    def is_done(self) -> bool:
        """Everything in the range is processed."""
        return self.ledger.committable >= self.end

    @property
    def poison_offset(self) -> int | None:
        """The cursor stands on a record that cannot be delivered."""
        piece = self.slice
        if not self.buffer or (piece is not None and piece.index < len(piece.records)):
            return None
        offset = self.buffer[0].poison_offset
        return None if offset is None or offset >= self.end else offset

    def shorten(self, end: int) -> None:
        """Deliver nothing from `end` on, which is not below the position; what is in hand stays there."""
        self.end = end
        self.drop_buffer()  # decoders go up to the former end

    def rise_to(self, offset: int) -> None:
        """Retention removed what stands before `offset` and was not delivered; what is in hand stays there."""
        self.ledger.pass_over(min(offset, self.end))
        self.fetch_offset = max(self.fetch_offset, min(offset, self.end))
        self.changes_count += 1


class BoundedDecoder(PartitionDecoder):
    """Gives no record from `end` on: a batch may reach over the end of the range."""

    __slots__ = ("_end",)

    def __init__(self, end: int, *settings: Any) -> None:  # noqa: ANN401 (those of PartitionDecoder)
        super().__init__(*settings)
        self._end = end

    def needs_inflate(self) -> bool:
        return self.next_offset < self._end and super().needs_inflate()

    def next_slice(self, max_records: int) -> list[Record] | None:
        if self.next_offset >= self._end:
            return None
        try:
            # So many offsets are left that not more records can be: a deserializer sees hardly one of the others.
            records = super().next_slice(min(max_records, self._end - self.next_offset))
        except RecordDeserializationError as error:
            if error.offset < self._end:
                raise
            records = None
        if records and records[-1].offset >= self._end:
            del records[bisect_left(records, self._end, key=lambda record: record.offset) :]
        if records is None or self.next_offset >= self._end:
            self.next_offset = min(self.next_offset, self._end)
        return records or None
