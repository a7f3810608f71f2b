"""What the application holds: records that were handed out and are not processed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from aiogroup._core.changes import Bell, Change, Changes
from aiogroup._core.delivery.queue import Supply
from aiogroup._core.fetching.buffer import Slice
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["InHand"]

_NOTHING = (0, 0)


class InHand:
    """The records in hand. With `auto_ack`, asking for more records marks all of them as processed.

    Whoever waits until fewer of them are in hand hears of it by `changes`.
    """

    def __init__(self, supply: Supply, changes: Changes[Bell], *, auto_ack: bool) -> None:
        self.auto_ack = auto_ack
        self._supply = supply
        self._changes = changes
        self.iterated: tuple[Lane, Record] | None = None
        """The last record that a cursor gave, and its lane: if the iteration ends there, the record was not
        processed.
        """
        self.taken_back_from: Lane | None = None
        """The lane whose record was taken back last."""
        self.handed_out: dict[str, tuple[int, int]] = {}
        """How many records of each topic were handed out, and their bytes."""
        self._lanes: dict[int, Lane] = {}

    def hand_out(self, lane: Lane, slice_: Slice, upto: int, *, keep_last_only: bool) -> None:
        """Hand out the slice's records up to the index `upto`. With `keep_last_only`, only the last of them is in
        hand.
        """
        if upto == slice_.index:
            return
        records, ledger = slice_.records, lane.ledger
        first, last = records[slice_.index].offset, records[upto - 1].offset
        if keep_last_only:
            if ledger.has_unprocessed:
                ledger.process_all()
            run: Sequence[int] = (last,)
        elif last - first == upto - 1 - slice_.index:  # offsets only rise, so none is missing in between
            run = range(first, last + 1)
        else:
            run = [record.offset for record in records[slice_.index : upto]]
        lane.tally.handed_out_count += upto - slice_.index
        ledger.deliver(run, self._advance(lane, slice_, upto))
        self._lanes[id(lane)] = lane

    def _advance(self, lane: Lane, slice_: Slice, upto: int) -> int:
        """Count the slice's records up to the index `upto`, with the average size of all its records. From now on they
        are handed out, and if they are all, their bytes count no more. Returns the position after them.
        """
        records, count = slice_.records, upto - slice_.index
        records_count, size_bytes = self.handed_out.get(lane.tp.topic, _NOTHING)
        more_bytes = slice_.size_bytes * count // len(records)
        self.handed_out[lane.tp.topic] = records_count + count, size_bytes + more_bytes
        lane.tally.newest_timestamp = records[upto - 1].timestamp
        slice_.index = upto
        if upto < len(records):
            return records[upto - 1].offset + 1
        lane.buffer.weigh()
        self._supply.has_freed = True
        if lane.is_left_out and not lane.is_due:
            lane.target.changed()  # it gave way to others because it had records
        return slice_.end

    def hand_out_merged(self, taken: Iterable[tuple[Lane, Slice, int]], last: tuple[Lane, Record] | None) -> None:
        """The application got these numbers of records from each slice. With auto_ack all but the `last` one are
        processed.
        """
        last_lane = None if last is None else last[0]
        if self.auto_ack:
            for lane in self._lanes.values():
                lane.ledger.process_all()
            self._lanes.clear()
            self._changes.tell(Change.HAND)
        for lane, slice_, count in taken:
            upto = slice_.index + count
            if lane is last_lane or not self.auto_ack:
                self.hand_out(lane, slice_, upto, keep_last_only=self.auto_ack)
                continue
            lane.ledger.deliver((), self._advance(lane, slice_, upto))
        self.iterated = last

    def holds(self, tps: Collection[TopicPartition] | None, but: Collection[TopicPartition]) -> bool:
        """Whether a record (of one of the partitions `tps`) is in hand, and not of one of `but`."""
        return any(
            each.ledger.has_unprocessed and each.tp not in but
            for each in self._lanes.values()
            if tps is None or each.tp in tps
        )

    def counts(self) -> dict[TopicPartition, int]:
        """How many records are in hand, by partition."""
        counts: dict[TopicPartition, int] = {}
        for each in self._lanes.values():
            if each.ledger.has_unprocessed:
                counts[each.tp] = counts.get(each.tp, 0) + each.ledger.in_hand_count
        return counts

    def process(self, only: Collection[TopicPartition]) -> None:
        """The application asks for more records, so those in hand are processed: all, or those of the partitions in
        `only`.
        """
        if self.iterated is not None and (not only or self.iterated[0].tp in only):
            self.iterated = None
        if self.auto_ack and self._lanes:
            for lane in tuple(self._lanes.values()):
                if not only or lane.tp in only:
                    lane.ledger.process_all()
                    del self._lanes[id(lane)]
            self._changes.tell(Change.HAND)

    def ack(self, ledger: Ledger, offset: int) -> None:
        """The application has processed the record at this offset, which may be in hand no longer."""
        ledger.ack(offset)
        self._changes.tell(Change.HAND)

    def forget(self, lanes: Collection[Lane]) -> None:
        """These lanes are no longer ours, or were moved, so none of their records is in hand any more."""
        for lane in lanes:
            self._lanes.pop(id(lane), None)
            if self.iterated is not None and self.iterated[0] is lane:
                self.iterated = None
        self._changes.tell(Change.HAND)

    def take_back(self) -> tuple[Lane, Record] | None:
        """Take back the record that an ended iteration left in hand; its lane's position is moved back to it."""
        iterated, self.iterated = self.iterated, None
        if iterated is None or not self.auto_ack:
            return None
        lane, record = iterated
        if not lane.ledger.has_unprocessed or lane.position is None:
            return None
        self.taken_back_from = lane
        lane.ledger.move(record.offset)
        self._lanes.pop(id(lane), None)
        self._changes.tell(Change.HAND)
        return iterated
