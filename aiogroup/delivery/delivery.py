"""Hands records out: asks the queues in their order, opens the cursor, and knows what is in hand.

Theory of operation
-------------------
Records are decoded in slices of one lane. A cursor iterates over the slice that is being delivered: `async for` takes
records from it without any other call, and everything that depends on how far it came (position, commit, lag) calls
`settle` first, which reads the place off the cursor. So nothing is done per record that can be done per slice.

Whatever must be looked at before the next record is handed out (a rebalance, a seek, a pause, an error) closes the
cursor: what it had not given yet stays in the lane's slice.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable

from aiogroup.delivery.in_hand import InHand
from aiogroup.delivery.queue import Queue, Supply
from aiogroup.delivery.source import SliceSource, Source
from aiogroup.delivery.turn import Turn
from aiogroup.delivery.weighted import OneQueue, Queues, TwoQueues
from aiogroup.errors import RecordError
from aiogroup.fetching.assignment import Assignment
from aiogroup.fetching.buffer import Slice
from aiogroup.fetching.epochs import NO_EPOCH
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.tally import Tally
from aiogroup.fetching.truncation import NOBODY, Leader
from aiogroup.native import Cursor
from aiogroup.records import PartitionMetadata, Record
from aiogroup.structs import TopicPartition

__all__ = ["Delivery"]


class Delivery:
    """Records of an assignment, in turns of at most `records_per_turn` of a lane and `turn_ms` milliseconds.

    `max_bytes` bounds what is decoded ahead. With `catch_up`, the tally of the catch-up lanes (KIP-333), these get
    `share` of the records, and of the bound.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        auto_ack: bool,
        records_per_turn: int,
        turn_ms: int,
        max_bytes: int = sys.maxsize,
        catch_up: Tally | None = None,
        share: float = 0.0,
    ) -> None:
        self.supply = Supply()
        self.opened: dict[TopicPartition, Lane] = {}
        """Lanes whose fetch answers nobody was told of yet."""
        self._in_hand = InHand(auto_ack=auto_ack)
        self._slices = SliceSource(self._in_hand)
        self._source: Source = self._slices
        self._assignment = assignment
        self._records_per_turn = records_per_turn
        self._turn_ns = turn_ms * 1_000_000

        def queue(tally: Tally, part: float) -> Queue:
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

    # What is in hand.

    @property
    def auto_ack(self) -> bool:
        """A request says that what was in hand is processed; so it matters who makes it."""
        return self._in_hand.auto_ack

    @property
    def taken_back_from(self) -> Lane | None:
        """The lane whose record was taken back last."""
        return self._in_hand.taken_back_from

    def settle(self) -> None:
        """Bring the ledgers of the lanes under the cursor up to what was handed out."""
        self._source.settle()

    def close_cursor(self) -> None:
        """The next request must look around before it gets a record."""
        self._source.settle()
        self._source.close()
        self._source = self._slices

    def open_source(self, source: Source) -> None:
        """Until the cursor is closed the records come from there."""
        self._source = source

    def look_again(self) -> None:
        """Something arrived: what a merge laid out without it is laid out anew."""
        if self._source.is_enforced:
            self.close_cursor()

    def is_in_hand(self, tps: Collection[TopicPartition] | None = None) -> bool:
        """The application holds a record (of one of these partitions) that is not processed."""
        self.settle()
        return self._in_hand.holds(tps)

    def in_hand(self) -> dict[TopicPartition, int]:
        """How many records are in hand, by partition."""
        self.settle()
        return self._in_hand.counts()

    def process_all(self, only: Collection[TopicPartition] = ()) -> None:
        """The application asks for more, of these partitions if any are named: what it held is processed (auto_ack)."""
        if only:
            self.close_cursor()
        elif self._source.put_off():
            return
        else:
            self._source.settle()
            self._source.end_turn()
        self._in_hand.process(only)

    def forget(self, lanes: Collection[Lane]) -> None:
        """These lanes are no longer ours, or their position was moved: nothing of them is in hand."""
        self.close_cursor()
        self._in_hand.forget(lanes)

    def hand_out_merged(self, taken: Iterable[tuple[Lane, Slice, int]], last: tuple[Lane, Record] | None) -> None:
        """A merge's cursor gave this many records of each slice, `last` was the last of them."""
        self._in_hand.hand_out_merged(taken, last)

    # Moves.

    def seek(self, partition: Partition, offset: int, *, leader_epoch: int = NO_EPOCH, leader: Leader = NOBODY) -> None:
        """The application moves the partition: what is in hand of it is taken back, what is buffered behind stays.

        With `leader_epoch`, that of the record before, `leader` must confirm it first: then everything is dropped.
        """
        self.forget([partition])
        pieces = partition.buffer.pieces
        is_in_thread = bool(pieces) and pieces[0] is self.supply.inflating
        if leader_epoch == NO_EPOCH and not is_in_thread and partition.go_on_at(offset):
            return
        partition.start_at(offset, leader_epoch=leader_epoch, leader=leader)
        partition.tally.moved[partition.tp] = None

    def pass_over(self, lane: Lane, offset: int) -> bool:
        """Go on behind the record at `offset`, which could not be delivered; False where it is not the next one.

        What is in hand stays there. Of a damaged batch nothing could be: it is passed over as a whole.
        """
        self.close_cursor()
        buffer = lane.buffer
        piece = buffer.slice
        if buffer.ready_count and piece is not None:
            if piece.records[piece.index].offset != offset:
                return False
            piece.index += 1
            is_last = piece.index == len(piece.records)
            lane.ledger.pass_over(piece.end if is_last else offset + 1)
            buffer.weigh()
            return True
        decoder = buffer.pieces[0] if buffer.pieces else None
        if decoder is None or decoder is self.supply.inflating or decoder.poison_offset != offset:
            return False
        end = decoder.poison_end or offset + 1
        lane.ledger.pass_over(end)
        if decoder.skip_to(end):
            buffer.weigh()
        else:
            lane.drop_buffer()
            lane.tally.moved[lane.tp] = None
        return True

    def take_back_iterated(self) -> Record | None:
        """The record that an ended `async for` left in hand becomes the next one again."""
        self.close_cursor()
        taken_back = self._in_hand.take_back()
        if taken_back is None:
            return None
        lane, record = taken_back
        piece = lane.buffer.slice
        if piece is None or not piece.index or piece.records[piece.index - 1] is not record:
            lane.drop_buffer()  # the slice was given up meanwhile, to make room: it is fetched again
            self.supply.has_drained = True
            return record
        piece.index -= 1
        self._queues.of(lane).put_first(lane)
        return record

    # What is next.

    def decode_ahead(self, count: int, only: Collection[TopicPartition] = ()) -> bool:
        """Decode a turn towards `count` records that `take` then only copies; whether another turn is needed."""
        self.close_cursor()
        turn = Turn(self._records_per_turn)
        ready: dict[Queue, int] = {}
        for queue, part in self._queues.divide(count):  # as `take` divides them, so that it has nothing left to decode
            others = sum(ready.values()) - ready.pop(queue, 0)
            ready[queue] = queue.decode_towards(min(part, count - others), only, turn)
        return sum(ready.values()) < count and turn.is_over

    def open_cursor(self, only: Collection[TopicPartition] = ()) -> Record | None:
        """The next record, the cursor behind it; `None` when nothing is ready.

        Raises:
            RecordError: it is the turn of a lane that cannot go on.
        """
        self.close_cursor()
        for queue in self._queues.in_order():
            try:
                for lane in queue.by_turn(only):
                    piece = queue.ready(lane, self._records_per_turn)
                    if piece is not None:
                        return self._slices.open(lane, piece, self._turn_ns)
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
        """Add up to `count` records of this queue to what was `taken`; how many it were."""
        left, is_first = count, not taken
        try:
            for lane in queue.by_turn(only):
                while left > 0 and (piece := queue.ready(lane, self._records_per_turn)) is not None:
                    since = piece.index
                    upto = min(len(piece.records), since + left)
                    self._in_hand.hand_out(lane, piece, upto, keep_last_only=False)
                    records = piece.give(since)
                    left -= len(records)
                    if (before := taken.setdefault(lane.tp, records)) is not records:
                        before += records
                if left <= 0:
                    break
        except RecordError:
            if left < count:
                queue.put_failed_first()  # what came before the failure is given first
            elif is_first:
                self._queues.put_last(queue)
                raise
            # Else the other queue gave some. This one has got less, so that it is asked first before long.
        return count - left

    def take_opened(self, *, read_committed: bool) -> dict[TopicPartition, PartitionMetadata]:
        """What the fetch answers that were opened since the last call said of their partitions (KIP-695)."""
        opened, self.opened = self.opened, {}
        told = {}
        for tp, lane in opened.items():
            if self._assignment.get(tp) is not lane:
                continue  # it left, and perhaps came back, since that answer
            position, log = lane.position, lane.log
            end = log.last_offset(read_committed=read_committed)
            if position is not None and log.received_at_ms is not None:
                lag = None if end is None else max(0, end - position)
                told[tp] = PartitionMetadata(log.received_at_ms, position, lag, log.begin_offset, end)
        return told

    # For a merge and the inflater.

    def head(self, lane: Lane, max_count: int) -> Slice | None:
        """The lane's slice with records left, decoded if need be, whatever is held.

        Raises:
            RecordError: the lane cannot go on.
        """
        return self._queues.of(lane).head(lane, max_count)

    def lengthen(self, lane: Lane, count: int) -> bool:
        """Decode more behind a slice that has records left; what was handed out of it is forgotten."""
        return self._queues.of(lane).decode_behind(lane, count)

    def has_room(self, lane: Lane) -> bool:
        """More may be decoded or decompressed beside what is held."""
        return self._queues.of(lane).has_room
