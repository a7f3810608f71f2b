"""Hands records out: asks the queues in their order, opens the cursor, and knows what is in hand.

Theory of operation
-------------------
Records are decoded in slices of one lane. A cursor iterates over the slice that is being delivered: `async for` takes
records from it without any other call, and whatever depends on how far the cursor has advanced (position, commit, lag)
calls `settle` first, which reads the cursor's index. So nothing is done per record that can be done per slice.

Anything that must be handled before the next record is handed out (a rebalance, a seek, a pause, an error) closes the
cursor. The records that the cursor had not given yet stay in the lane's slice.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping

from aiogroup._core.changes import Change
from aiogroup._core.delivery.decode_budget import DecodeBudget
from aiogroup._core.delivery.in_hand import InHand
from aiogroup._core.delivery.queue import Queue, Supply
from aiogroup._core.delivery.source import SliceSource, Source
from aiogroup._core.delivery.weighted import OneQueue, Queues, TwoQueues
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.buffer import Slice
from aiogroup._core.fetching.epochs import NO_EPOCH
from aiogroup._core.fetching.lane import Lane, LaneTally
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.truncation import NO_LEADER, Leader
from aiogroup._core.native import Cursor
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.errors import RecordError
from aiogroup.records import PartitionMetadata, Record
from aiogroup.structs import TopicPartition

__all__ = ["Delivery"]


class Delivery:
    """Records of an assignment, in turns of at most `records_per_turn` of a lane and `turn_ms` milliseconds.

    `max_bytes` bounds what is decoded ahead. With `catch_up`, the tally of the catch-up lanes (KIP-333), those lanes
    get `share` of the records and of the bound.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        auto_ack: bool,
        records_per_turn: int,
        turn_ms: int,
        max_bytes: int = sys.maxsize,
        catch_up: LaneTally | None = None,
        share: float = 0.0,
    ) -> None:
        self.supply = Supply()
        self.opened: dict[TopicPartition, Lane] = {}
        """Lanes with a fetch answer that `take_opened` has not reported yet."""
        self._in_hand = InHand(self.supply, assignment.tally.changes, auto_ack=auto_ack)
        self._slices = SliceSource(self._in_hand)
        self._source: Source | None = None
        """What the cursor was opened on since `close_cursor`, if it was: a `take` opens none."""
        self._assignment = assignment
        beside = {} if catch_up is None else {"catch-up": catch_up}
        self.tallies = {"live": assignment.tally, **beside}
        """What the lanes have handed out, by the kind of lane."""
        self._records_per_turn = records_per_turn
        self._turn_ns = turn_ms * 1_000_000

        def queue(tally: LaneTally, part: float) -> Queue:
            most = max_bytes if part == 1 else int(max_bytes * part)
            return Queue(tally, self.supply, records_per_turn=records_per_turn, max_bytes=most)

        if catch_up is None:
            self._queues: Queues = OneQueue(queue(assignment.tally, 1))
        else:
            self._queues = TwoQueues(queue(assignment.tally, 1 - share), queue(catch_up, share), share)

    @property
    def cursor(self) -> Cursor:
        """What `async for` iterates over, outside of a merge."""
        return self._slices.cursor

    @property
    def handed_out(self) -> Mapping[str, tuple[int, int]]:
        """How many records of each topic were handed out, and their bytes."""
        return self._in_hand.handed_out

    # What is in hand.

    @property
    def auto_ack(self) -> bool:
        """Whether a request for records marks those in hand as processed; if so, it matters which task makes the
        request.
        """
        return self._in_hand.auto_ack

    @property
    def taken_back_from(self) -> Lane | None:
        """The lane whose record was taken back last."""
        return self._in_hand.taken_back_from

    def settle(self) -> None:
        """Record in the ledgers of the lanes under the cursor which records it has handed out."""
        if self._source is not None:
            self._source.settle()

    def close_cursor(self) -> None:
        """Make the next request check for pending work (a rebalance, an error) before it gets a record."""
        if self._source is not None:
            self._source.settle()
            self._source.close()
            self._source = None

    def interrupt(self) -> None:
        """As `close_cursor`, and a request that waits checks for pending work, too."""
        self.close_cursor()
        self._assignment.tally.changes.tell(Change.INTERRUPTED)

    def open_source(self, source: Source) -> None:
        """Take records from this source until the cursor is closed."""
        self._source = source

    def look_again(self, change: Change) -> None:
        """This change may have brought records: a request that waits looks for them, and if a merge chose its order
        without them, it chooses again.
        """
        if self._source is not None and self._source.is_enforced:
            self.close_cursor()
        self._assignment.tally.changes.tell(change)

    def is_in_hand(self, tps: Collection[TopicPartition] | None = None) -> bool:
        """The application holds a record (of one of these partitions) that is not processed, and may be processing it:
        it is not one that `Consumer.paused` sets aside.
        """
        self.settle()
        return self._in_hand.holds(tps, self._assignment.blocks.set_aside)

    def in_hand(self) -> dict[TopicPartition, int]:
        """How many records are in hand, by partition."""
        self.settle()
        return self._in_hand.counts()

    def process_all(self, only: Collection[TopicPartition] = ()) -> None:
        """The application asks for more records (`only` of these partitions, if any are named), so with auto_ack the
        records that it held are processed.
        """
        if only:
            self.close_cursor()
        elif self._source is not None:
            if self._source.put_off():
                return
            self._source.settle()
            self._source.end_turn()
        self._in_hand.process(only)

    def ack(self, ledger: Ledger, offset: int) -> None:
        """The application has processed this record of the lane with this ledger, by `record.ack()`."""
        self.settle()
        self._in_hand.ack(ledger, offset)

    def forget(self, lanes: Collection[Lane]) -> None:
        """These lanes are no longer ours, or their position was moved, so none of their records is in hand any more."""
        self.close_cursor()
        self._in_hand.forget(lanes)

    def hand_out_merged(self, taken: Iterable[tuple[Lane, Slice, int]], last: tuple[Lane, Record] | None) -> None:
        """A merge's cursor gave these numbers of records from each slice; `last` is the last record that it gave."""
        self._in_hand.hand_out_merged(taken, last)

    # Moves.

    def seek(
        self,
        partition: Partition,
        offset: int,
        *,
        leader_epoch: int = NO_EPOCH,
        leader: Leader = NO_LEADER,
        keeps_buffer: bool = True,
    ) -> None:
        """The application moves the partition: its records in hand are taken back, and those buffered from `offset` on
        stay if it `keeps_buffer`.

        With `leader_epoch`, the epoch of the record before `offset`, `leader` must confirm the position first, and the
        whole buffer is dropped.
        """
        self.forget([partition])
        partition.reset.sought = offset
        pieces = partition.buffer.pieces
        is_in_thread = bool(pieces) and pieces[0] is self.supply.inflating
        can_keep = keeps_buffer and leader_epoch == NO_EPOCH and not is_in_thread
        if can_keep and partition.go_on_at(offset):
            return
        partition.start_at(offset, leader_epoch=leader_epoch, leader=leader)
        partition.tally.was_moved(partition.tp)

    def pass_over(self, lane: Lane, offset: int, end: int | None = None) -> bool:
        """Go on after the record at `offset`, which could not be delivered. Returns False if that is not the lane's
        next record.

        If its bytes were dropped meanwhile, to free memory or because the leader changed, only the caller knows: `end`
        is where the lane goes on then. Records in hand stay in hand. A damaged batch is passed over as a whole, since
        none of its records can be delivered.
        """
        self.close_cursor()
        lane.tally.changes.tell(Change.POSITION)
        buffer = lane.buffer
        slice_ = buffer.slice
        if buffer.ready_count and slice_ is not None:
            if slice_.records[slice_.index].offset != offset:
                return False
            slice_.index += 1
            is_last = slice_.index == len(slice_.records)
            lane.ledger.pass_over(slice_.end if is_last else offset + 1)
            buffer.weigh()
            self.supply.has_freed = self.supply.has_freed or is_last
            return True
        decoder = buffer.pieces[0] if buffer.pieces and buffer.pieces[0] is not self.supply.inflating else None
        if decoder is not None and decoder.poison_offset == offset:
            end = decoder.poison_end or offset + 1
        elif end is None or lane.ledger.position > offset:  # the record could be delivered later
            return False
        lane.ledger.pass_over(end)
        if decoder is not None and decoder.skip_to(end):
            buffer.weigh()
        else:
            lane.drop_buffer()
            lane.tally.was_moved(lane.tp)
        return True

    def take_back_iterated(self) -> Record | None:
        """Make the record that an ended `async for` left in hand the next one again."""
        self.close_cursor()
        taken_back = self._in_hand.take_back()
        if taken_back is None:
            return None
        lane, record = taken_back
        slice_ = lane.buffer.slice
        if slice_ is None or not slice_.take_back(record):
            lane.drop_buffer()  # the slice was dropped meanwhile to free memory: fetch its records again
            self.supply.note_more_wanted()
            return record
        lane.buffer.weigh()
        self._queues.of(lane).put_first(lane)
        return record

    # What is next.

    def decode_ahead(self, count: int, only: Collection[TopicPartition] = ()) -> bool:
        """Decode, for one turn, records for a `take` of `count`, which then only copies. Returns whether to call
        again.
        """
        self.close_cursor()
        budget = DecodeBudget(self._records_per_turn)
        ready: dict[Queue, int] = {}
        for queue, part in self._queues.divide(count):  # as `take` divides them: it finds all decoded
            others = sum(ready.values()) - ready.pop(queue, 0)
            ready[queue] = queue.decode_towards(min(part, count - others), only, budget)
        return sum(ready.values()) < count and budget.is_spent

    def open_cursor(self) -> Record | None:
        """Return the next record and open the cursor after it; `None` when no record is ready.

        Raises:
            RecordError: the next lane in turn cannot go on.
        """
        self.close_cursor()
        for queue in self._queues.in_order():
            if not queue.turns:
                continue
            try:
                for lane in queue.by_turn(()):
                    slice_ = queue.ready(lane, self._records_per_turn)
                    if slice_ is not None:
                        self.open_source(self._slices)
                        return self._slices.open(lane, slice_, self._turn_ns)
            except RecordError:
                self._queues.put_last(queue)
                raise
        return None

    def take(self, max_count: int | None, only: Collection[TopicPartition] = ()) -> dict[TopicPartition, list[Record]]:
        """Hand out up to `max_count` records of the partitions that have some.

        Raises:
            RecordError: the first lane in turn cannot go on, and nothing was taken yet.
        """
        self.close_cursor()
        taken: dict[TopicPartition, list[Record]] = {}
        left = max_count if max_count is not None else sys.maxsize
        for queue, part in self._queues.divide(left):
            if min(part, left) > 0:
                left -= self._take_from(queue, min(part, left), only, taken)
        return taken

    def _take_from(
        self, queue: Queue, count: int, only: Collection[TopicPartition], taken: dict[TopicPartition, list[Record]]
    ) -> int:
        """Add up to `count` records of this queue to `taken`. Returns the number of records added."""
        left, is_first = count, not taken
        try:
            for lane in queue.by_turn(only):
                while left > 0 and (slice_ := queue.ready(lane, self._records_per_turn)) is not None:
                    since = slice_.index
                    upto = min(len(slice_.records), since + left)
                    self._in_hand.hand_out(lane, slice_, upto, keep_last_only=False)
                    records = slice_.give(since)
                    left -= len(records)
                    if (before := taken.setdefault(lane.tp, records)) is not records:
                        before += records
                if left <= 0:
                    break
        except RecordError:
            if left < count:
                queue.put_failed_first()  # the records before the failure are delivered first
            elif is_first:
                self._queues.put_last(queue)
                raise
            # Otherwise the other queue gave some records. This queue has received less, so it will soon be asked first.
        return count - left

    def take_opened(self, *, read_committed: bool) -> dict[TopicPartition, PartitionMetadata]:
        """The partition metadata from the fetch answers that were opened since the last call (KIP-695)."""
        opened, self.opened = self.opened, {}
        metadata = {}
        for tp, lane in opened.items():
            if self._assignment.get(tp) is not lane:
                continue  # the partition was revoked, and perhaps assigned again, since that answer
            position, log = lane.position, lane.log
            end = log.last_offset(read_committed=read_committed)
            if position is not None and log.received_at_ms is not None:
                lag = None if end is None else max(0, end - position)
                metadata[tp] = PartitionMetadata(log.received_at_ms, position, lag, log.begin_offset, end)
        return metadata

    # For a merge and the inflater.

    def head(self, lane: Lane, max_count: int) -> Slice | None:
        """The lane's slice with records left, decoded if necessary even when the memory bound is reached.

        Raises:
            RecordError: the lane cannot go on.
        """
        return self._queues.of(lane).head(lane, max_count)

    def lengthen(self, lane: Lane, count: int) -> bool:
        """Decode more records into a slice that has records left; those already handed out are removed from it."""
        return self._queues.of(lane).decode_behind(lane, count)

    def has_room(self, lane: Lane) -> bool:
        """Whether the memory bound allows more to be decoded or decompressed."""
        return self._queues.of(lane).has_room
