"""Hands records out: which partition is next, what is in hand, what the application has processed.

Theory of operation
-------------------
Records are decoded in slices of one partition. `cursor` iterates over the slice that is being delivered: `async for`
takes records from it without any other call, and everything that depends on how far it came (position, commit, lag)
calls `settle` first, which reads the place off the cursor. So nothing is done per record that can be done per slice.

Whatever must be looked at before the next record is handed out (a rebalance, a seek, a pause, an error) closes the
cursor: what it had not given yet stays in the partition's slice.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiogroup.delivery.turn import Turn
from aiogroup.errors import RecordError
from aiogroup.fetching.assignment import Assignment
from aiogroup.fetching.buffer import Slice
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.epochs import NO_EPOCH
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.truncation import NOBODY, Leader
from aiogroup.native import Cursor
from aiogroup.records import PartitionMetadata, Record
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from aiogroup.delivery.merging import Merging

__all__ = ["Delivery"]


class Delivery:
    """Records of an assignment, in turns of at most `records_per_turn` of a partition and `turn_ms` milliseconds.

    Where more than `max_bytes` are held, nothing is decoded while another partition has records that are.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        auto_ack: bool,
        records_per_turn: int,
        turn_ms: int,
        max_bytes: int = sys.maxsize,
    ) -> None:
        self.cursor = Cursor(is_shared=not auto_ack)
        self.merging: Merging | None = None  # it has a cursor of its own, which is open
        self.to_inflate: deque[Lane] = deque()
        self.opened: dict[TopicPartition, Lane] = {}
        self.inflating: PartitionDecoder | None = None  # a worker thread has it: it must not be touched
        self.drained_count = 0
        self.has_drained = False  # a fetched piece was used up since a fetcher was last told
        self._assignment = assignment
        self._max_bytes = max_bytes
        self._withheld: Lane | None = None  # would go on if there were room
        self._favoured: Lane | None = None  # goes on although there is none
        self._has_ready = False
        self._auto_ack = auto_ack
        self._records_per_turn = records_per_turn
        self._turn_ns = turn_ms * 1_000_000
        self._current: Lane | None = None
        self._held: dict[int, Lane] = {}
        self._turns = assignment.tally.turns
        self._iterated: tuple[Lane, Record] | None = None
        self.taken_back_from: Lane | None = None  # the last time

    @property
    def auto_ack(self) -> bool:
        """A request says that what was in hand is processed; so it matters who makes it."""
        return self._auto_ack

    # What is in hand.

    def settle(self) -> None:
        """Bring the ledgers of the partitions under the cursor up to what was handed out."""
        if self.merging is not None:
            self.merging.settle()
            return
        partition = self._current
        if partition is None or partition.buffer.slice is None:
            return
        piece = partition.buffer.slice
        done_count = self.cursor.index
        if done_count > piece.index:
            self._hand_out(partition, piece, done_count, keep_last_only=self._auto_ack)
            self._iterated = (partition, piece.records[done_count - 1])

    def close_cursor(self) -> None:
        """The next request must look around before it gets a record."""
        self._end_turn()
        if self.merging is not None:
            self.merging.close()
            self.merging = None

    def _end_turn(self) -> None:
        self.settle()
        self.cursor.close()
        if self.merging is not None:
            self.merging.end_turn()
        if self._current is not None and self._current.buffer.slice is not None:
            self._current.buffer.slice.let_go()
        self._current = None

    def look_again(self) -> None:
        """Something arrived: what a merge laid out without it is laid out anew."""
        if self.merging is not None and self.merging.is_enforced:
            self.close_cursor()

    def is_in_hand(self, tps: Collection[TopicPartition] | None = None) -> bool:
        """The application holds a record (of one of these partitions) that is not processed."""
        self.settle()
        return any(each.ledger.has_unprocessed for each in self._held.values() if tps is None or each.tp in tps)

    def in_hand(self) -> dict[TopicPartition, int]:
        """How many records are in hand, by partition."""
        self.settle()
        return {each.tp: each.ledger.in_hand_count for each in self._held.values() if each.ledger.has_unprocessed}

    def process_all(self, only: Collection[TopicPartition] = ()) -> None:
        """The application asks for more, of these partitions if any are named: what it held is processed (auto_ack)."""
        if only:
            self.close_cursor()
        elif self.merging is not None and self.merging.put_off():
            return
        else:
            self._end_turn()
        if self._iterated is not None and (not only or self._iterated[0].tp in only):
            self._iterated = None
        if self._auto_ack:
            for partition in tuple(self._held.values()):
                if not only or partition.tp in only:
                    partition.ledger.process_all()
                    del self._held[id(partition)]

    def forget(self, partitions: Collection[Lane]) -> None:
        """These partitions are no longer ours, or their position was moved: nothing of them is in hand."""
        self.close_cursor()
        for partition in partitions:
            self._held.pop(id(partition), None)
            if self._iterated is not None and self._iterated[0] is partition:
                self._iterated = None

    def seek(self, partition: Partition, offset: int, *, leader_epoch: int = NO_EPOCH, leader: Leader = NOBODY) -> None:
        """The application moves the partition: what is in hand of it is taken back, what is buffered behind stays.

        With `leader_epoch`, that of the record before, `leader` must confirm it first: then everything is dropped.
        """
        self.forget([partition])
        is_in_thread = bool(partition.buffer.pieces) and partition.buffer.pieces[0] is self.inflating
        if leader_epoch == NO_EPOCH and not is_in_thread and partition.go_on_at(offset):
            return
        partition.start_at(offset, leader_epoch=leader_epoch, leader=leader)
        partition.tally.moved[partition.tp] = None

    def pass_over(self, partition: Lane, offset: int) -> bool:
        """Go on behind the record at `offset`, which could not be delivered; False where it is not the next one.

        What is in hand stays there. Of a damaged batch nothing could be: it is passed over as a whole.
        """
        self.close_cursor()
        piece = partition.buffer.slice
        if partition.buffer.ready_count and piece is not None:
            if piece.records[piece.index].offset != offset:
                return False
            piece.index += 1
            is_last = piece.index == len(piece.records)
            partition.ledger.pass_over(piece.end if is_last else offset + 1)
            partition.buffer.weigh()
            return True
        decoder = partition.buffer.pieces[0] if partition.buffer.pieces else None
        if decoder is None or decoder is self.inflating or decoder.poison_offset != offset:
            return False
        end = decoder.poison_end or offset + 1
        partition.ledger.pass_over(end)
        if decoder.skip_to(end):
            partition.buffer.weigh()
        else:
            partition.drop_buffer()
            partition.tally.moved[partition.tp] = None
        return True

    def take_back_iterated(self) -> Record | None:
        """The record that an ended `async for` left in hand becomes the next one again."""
        self.close_cursor()
        iterated, self._iterated = self._iterated, None
        if iterated is None or not self._auto_ack:
            return None
        partition, record = iterated
        if not partition.ledger.has_unprocessed or partition.position is None:
            return None
        self.taken_back_from = partition
        partition.ledger.move(record.offset)
        self._held.pop(id(partition), None)
        piece = partition.buffer.slice
        if piece is None or not piece.index or piece.records[piece.index - 1] is not record:
            partition.drop_buffer()  # the slice was given up meanwhile, to make room: it is fetched again
            self.has_drained = True
            return record
        piece.index -= 1
        turns = partition.tally.turns
        turns.setdefault(partition)
        turns.move_to_end(partition, last=False)
        return record

    # What is next.

    def decode_ahead(self, count: int, only: Collection[TopicPartition] = ()) -> bool:
        """Decode a turn towards `count` records that `take` then only copies; whether another turn is needed."""
        self.close_cursor()
        turn = Turn(self._records_per_turn)
        return self._decode_towards(count, only, turn) < count and turn.is_over

    def _decode_towards(self, count: int, only: Collection[TopicPartition], turn: Turn) -> int:
        """How many records are ready now, `count` at most."""
        left_count = count
        for partition in self._turns:
            if not partition.is_open or (only and partition.tp not in only):
                continue
            while not turn.is_over and (missing_count := left_count - partition.buffer.ready_count) > 0:
                if not self._decode_behind(partition, min(missing_count, turn.records_left), turn):
                    break
            left_count -= partition.buffer.ready_count
            if left_count <= 0 or turn.is_over:
                break
        return count - max(0, left_count)

    def _decode_behind(self, partition: Lane, count: int, turn: Turn | None = None) -> bool:
        """Append to the partition's slice; False when nothing is buffered that can be decoded here and now.

        No more than is asked for: what is left over would be kept, of each partition.
        """
        piece = partition.buffer.slice
        if piece is None or piece.index == len(piece.records):
            try:
                piece = self._ready(partition, count)
            except RecordError:
                return False  # `take` raises it when it is the partition's turn
            if piece is not None and turn is not None:
                turn.note(len(piece.records), piece.size_bytes)
            return piece is not None
        while partition.buffer.pieces:
            decoder = partition.buffer.pieces[0]
            if decoder is self.inflating or decoder.needs_inflate() or self._is_full(partition):
                return False
            try:
                records = decoder.next_slice(count)
            except RecordError:
                return False
            piece.end = decoder.next_offset
            if records:
                piece.cut()
                piece.records += records
                piece.size_bytes += decoder.slice_bytes
                partition.buffer.weigh()
                if turn is not None:
                    turn.note(len(records), decoder.slice_bytes)
                return True
            partition.use_up()
            self.has_drained = True
            self.drained_count += 1
        return False

    def open_cursor(self, only: Collection[TopicPartition] = ()) -> Record | None:
        """The next record, the cursor behind it; `None` when nothing is ready.

        Raises:
            RecordError: it is the turn of a partition that cannot go on.
        """
        self.close_cursor()
        for partition in self._by_turn(only):
            piece = self._ready(partition, self._records_per_turn)
            if piece is not None:
                self._current = partition
                return self.cursor.open(piece.records, piece.index, self._turn_ns)
        return None

    def take(self, max_count: int | None, only: Collection[TopicPartition] = ()) -> dict[TopicPartition, list[Record]]:
        """Hand out up to `max_count` records of the partitions that have some.

        Raises:
            RecordError: the first partition in turn cannot go on, and nothing was taken yet.
        """
        self.close_cursor()
        taken: dict[TopicPartition, list[Record]] = {}
        left = max_count if max_count is not None else 2**62
        try:
            for partition in self._by_turn(only):
                while left > 0 and (piece := self._ready(partition, self._records_per_turn)) is not None:
                    since = piece.index
                    self._hand_out(partition, piece, min(len(piece.records), since + left), keep_last_only=False)
                    records = piece.give(since)
                    left -= len(records)
                    if (before := taken.setdefault(partition.tp, records)) is not records:
                        before += records
                if left <= 0:
                    break
        except RecordError:
            if not taken:
                raise
            # What came before the failure is given first. The partition that cannot go on (it went to the end as it got
            # its turn) is the next: behind others that always have records its error would never be told.
            self._turns.move_to_end(next(reversed(self._turns)), last=False)
        return taken

    def take_opened(self, *, read_committed: bool) -> dict[TopicPartition, PartitionMetadata]:
        """What the fetch answers that were opened since the last call said of their partitions (KIP-695)."""
        opened, self.opened = self.opened, {}
        told = {}
        for tp, partition in opened.items():
            if self._assignment.get(tp) is not partition:
                continue  # it left, and perhaps came back, since that answer
            position, log = partition.position, partition.log
            end = log.last_offset(read_committed=read_committed)
            if position is not None and log.received_at_ms is not None:
                lag = None if end is None else max(0, end - position)
                told[tp] = PartitionMetadata(log.received_at_ms, position, lag, log.begin_offset, end)
        return told

    # For a merge.

    def head(self, partition: Lane, max_count: int) -> Slice | None:
        """The partition's slice with records left, decoded if need be: without its next record nothing can be chosen.

        So the bound on what is held does not count.

        Raises:
            RecordError: the partition cannot go on.
        """
        self._favoured = partition
        try:
            return self._ready(partition, max_count)
        finally:
            self._favoured = None

    def lengthen(self, partition: Lane, count: int) -> bool:
        """Decode more behind a slice that has records left; what was handed out of it is forgotten."""
        return self._decode_behind(partition, count)

    def hand_out(self, taken: Iterable[tuple[Lane, Slice, int]], in_hand: tuple[Lane, Record] | None) -> None:
        """So many records of each partition were handed out; but for this one all are processed, with auto_ack."""
        last = None if in_hand is None else in_hand[0]
        if self._auto_ack:
            for partition in self._held.values():
                partition.ledger.process_all()
            self._held.clear()
        for partition, piece, count in taken:
            upto = piece.index + count
            if partition is last or not self._auto_ack:
                self._hand_out(partition, piece, upto, keep_last_only=self._auto_ack)
                continue
            piece.index = upto
            if upto == len(piece.records):
                partition.buffer.weigh()
                partition.ledger.deliver((), piece.end)
            else:
                partition.ledger.deliver((), piece.records[upto - 1].offset + 1)
        self._iterated = in_hand

    # Leaves.

    def _hand_out(self, partition: Lane, piece: Slice, upto: int, *, keep_last_only: bool) -> None:
        if upto == piece.index:
            return
        records, ledger = piece.records, partition.ledger
        first, last = records[piece.index].offset, records[upto - 1].offset
        if keep_last_only:
            ledger.process_all()
            run: Sequence[int] = (last,)
        elif last - first == upto - 1 - piece.index:  # offsets rise, so none is missing
            run = range(first, last + 1)
        else:
            run = [record.offset for record in records[piece.index : upto]]
        piece.index = upto
        if upto == len(records):
            partition.buffer.weigh()
        ledger.deliver(run, piece.end if upto == len(records) else last + 1)
        self._held[id(partition)] = partition

    def _ready(self, partition: Lane, max_count: int) -> Slice | None:
        """The partition's slice with records left, decoded if need be."""
        piece = partition.buffer.slice
        if piece is not None and piece.index < len(piece.records):
            self._has_ready = True
            return piece
        while partition.buffer.pieces:
            decoder = partition.buffer.pieces[0]
            if decoder is self.inflating or self._is_full(partition):
                return None
            if decoder.needs_inflate():
                if partition not in self.to_inflate:
                    self.to_inflate.append(partition)
                return None
            records = decoder.next_slice(max_count)
            if records:
                partition.buffer.slice = Slice(records, decoder.next_offset, decoder.slice_bytes)
                partition.buffer.weigh()
                self._favoured = None
                self._has_ready = True
                return partition.buffer.slice
            partition.ledger.pass_over(decoder.next_offset)
            partition.use_up()
            self.has_drained = True
            self.drained_count += 1
        return None

    def has_room(self, partition: Lane) -> bool:
        """More may be decoded or decompressed beside what is held."""
        return partition.tally.held_bytes <= self._max_bytes

    def _is_full(self, partition: Lane) -> bool:
        """Decoding takes room, which there is not: what is decoded already goes first."""
        if self.has_room(partition) or partition is self._favoured:
            return False
        if self._withheld is None or (partition.buffer.decoded_bytes and not self._withheld.buffer.decoded_bytes):
            self._withheld = partition  # rather one whose batch is decompressed
        return True

    def _by_turn(self, only: Collection[TopicPartition]) -> Iterator[Lane]:
        """Each deliverable partition once, the one served longest ago first; again one of those without room to decode.

        That is one only, and only where none had records: however narrow the bound is, records come.
        """
        self._withheld = self._favoured = None
        self._has_ready = False
        for _ in range(len(self._turns)):
            partition = next(iter(self._turns))
            if not partition.is_due:
                del self._turns[partition]  # it is back when something is fetched
                continue
            self._turns.move_to_end(partition)
            if not partition.is_open or (only and partition.tp not in only):
                continue
            if partition.error is not None and (error := partition.due_error) is not None:
                raise error
            yield partition
        is_inflating = self.inflating is not None or self.to_inflate
        if self._withheld is not None and not (self._has_ready or is_inflating):
            self._favoured, drained_count = self._withheld, self.drained_count
            yield self._favoured
            if not self._has_ready and drained_count != self.drained_count:  # there was nothing left in it
                yield from self._by_turn(only)
