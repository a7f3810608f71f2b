"""The catch-up lane's cursor: a partition as it is read from the start of one pending range up to its end (KIP-333)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiogroup._core.changes import Change
from aiogroup._core.fetching.lane import PAUSES, Bar, Lane, LaneTally
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.records.decode import Acknowledge, DecodeSettings, PartitionDecoder
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.errors import RecordDeserializationError

if TYPE_CHECKING:
    from aiogroup.records import Record

__all__ = ["BoundedDecoder", "RangeCursor"]


BARRED_TOGETHER: Final = {Bar.HELD, Bar.NEW, Bar.LEAVING}
"""These bars on the live lane bar its ranges, too."""


class RangeCursor(Lane):
    """Its position is neither looked up nor checked: `live`, the partition itself, does that for the whole log.

    `former` is the range before this one; its records come first.
    """

    __slots__ = ("end", "former", "live", "start")

    def __init__(self, live: Partition, start: int, end: int, leader_epoch: int, tally: LaneTally) -> None:
        super().__init__(live.tp, live.ownership, tally)
        self.live = live
        self.start = start
        self.end = end
        self.former: RangeCursor | None = None
        self.bars |= live.bars & PAUSES
        self.topic_id = live.topic_id
        self._begin_at(start, leader_epoch)

    @property
    def is_open(self) -> bool:
        if self.bars or self.live.bars & BARRED_TOGETHER:
            return False
        return self.former is None or self.former.is_delivered

    @property
    def is_delivered(self) -> bool:
        """Whether all records of this range and of those before it are handed out."""
        return self.ledger.position >= self.end and (self.former is None or self.former.is_delivered)

    @property
    def is_done(self) -> bool:
        """Whether all records of the range are processed."""
        return self.ledger.committable >= self.end

    @property
    def poison_offset(self) -> int | None:
        """The offset of the record that cannot be delivered, if the cursor stands on one."""
        if not self.buffer.pieces or self.buffer.ready_count:
            return None
        offset = self.buffer.pieces[0].poison_offset
        return None if offset is None or offset >= self.end else offset

    def decoder(
        self,
        records: bytes | memoryview,
        offset: int,
        aborted: Sequence[tuple[int, int]],
        settings: DecodeSettings,
        acknowledge: Callable[[Ledger], Acknowledge],
    ) -> PartitionDecoder:
        return BoundedDecoder(self.end, self.tp, records, offset, aborted, settings, acknowledge(self.ledger))

    def shorten(self, end: int) -> None:
        """Deliver no record from `end` on, which is not below the position. Records in hand stay in hand."""
        self.end = end
        self.drop_buffer()  # its decoders go up to the former end

    def rise_to(self, offset: int) -> None:
        """Retention removed the undelivered records before `offset`: go on there. Records in hand stay in hand."""
        self.ledger.pass_over(min(offset, self.end))
        self.target.rise_to(min(offset, self.end))
        self.tally.changes.tell(Change.POSITION)


class BoundedDecoder(PartitionDecoder):
    """Returns no record from `end` on, since a batch may reach past the end of the range."""

    __slots__ = ("_end",)

    def __init__(self, end: int, *settings: Any) -> None:  # noqa: ANN401 (those of PartitionDecoder)
        super().__init__(*settings)
        self._end = end

    def read_at_once(self, max_records: int) -> list[Record]:
        """None: what is read at once may reach past the end."""
        return []

    def needs_inflate(self) -> bool:
        return self.next_offset < self._end and super().needs_inflate()

    def next_slice(self, max_records: int) -> list[Record] | None:
        if self.next_offset >= self._end:
            return None
        try:
            # The offsets left in the range bound its records, so hardly any record after it is deserialized.
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
