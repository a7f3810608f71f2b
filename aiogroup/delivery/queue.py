"""Whose turn it is: the lanes of one tally, each decoded bit by bit when it is next, within one bound on memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from aiogroup.delivery.turn import Turn
from aiogroup.errors import RecordError
from aiogroup.fetching.buffer import Slice
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.tally import Tally
from aiogroup.structs import TopicPartition

__all__ = ["Queue", "Supply"]


class Supply:
    """What delivery tells the tasks that supply it: the inflater, and the fetchers."""

    __slots__ = ("drained_count", "has_drained", "inflating", "to_inflate")

    def __init__(self) -> None:
        self.to_inflate: deque[Lane] = deque()
        """Their next batch is to be decompressed in a worker thread."""
        self.inflating: PartitionDecoder | None = None
        """A worker thread has it: it must not be touched."""
        self.drained_count = 0
        """How many fetched pieces were used up."""
        self.has_drained = False
        """One was used up since a fetcher was last told."""

    def note_drained(self) -> None:
        self.has_drained = True
        self.drained_count += 1


class Queue:
    """Over `max_bytes` nothing is decoded while another lane has records that are."""

    def __init__(self, tally: Tally, supply: Supply, *, records_per_turn: int, max_bytes: int) -> None:
        self.tally = tally
        self.turns = tally.turns
        self._supply = supply
        self._records_per_turn = records_per_turn
        self._max_bytes = max_bytes
        self._withheld: Lane | None = None  # would go on if there were room
        self._favoured: Lane | None = None  # goes on although there is none
        self._has_ready = False

    def by_turn(self, only: Collection[TopicPartition]) -> Iterator[Lane]:
        """Each deliverable lane once, the one served longest ago first; again one of those without room to decode.

        That is one only, and only where none had records: however narrow the bound is, records come.
        """
        self._withheld = self._favoured = None
        self._has_ready = False
        for _ in range(len(self.turns)):
            lane = next(iter(self.turns))
            if not lane.is_due:
                del self.turns[lane]  # it is back when something is fetched
                continue
            self.turns.move_to_end(lane)
            if not lane.is_open or (only and lane.tp not in only):
                continue
            if lane.error is not None and (error := lane.due_error) is not None:
                raise error
            yield lane
        is_inflating = self._supply.inflating is not None or self._supply.to_inflate
        if self._withheld is not None and not (self._has_ready or is_inflating):
            self._favoured, drained_count = self._withheld, self._supply.drained_count
            yield self._favoured
            if not self._has_ready and drained_count != self._supply.drained_count:  # there was nothing left in it
                yield from self.by_turn(only)

    def put_failed_first(self) -> None:
        """The lane that could not go on went to the end as it got its turn; behind others its error would wait."""
        self.turns.move_to_end(next(reversed(self.turns)), last=False)

    def put_first(self, lane: Lane) -> None:
        self.turns.setdefault(lane)
        self.turns.move_to_end(lane, last=False)

    def ready(self, lane: Lane, max_count: int) -> Slice | None:
        """The lane's slice with records left, decoded if need be.

        Raises:
            RecordError: the lane cannot go on.
        """
        buffer = lane.buffer
        piece = buffer.slice
        if piece is not None and piece.index < len(piece.records):
            self._has_ready = True
            return piece
        while buffer.pieces:
            decoder = buffer.pieces[0]
            if decoder is self._supply.inflating or self._is_full(lane):
                return None
            if decoder.needs_inflate():
                if lane not in self._supply.to_inflate:
                    self._supply.to_inflate.append(lane)
                return None
            records = decoder.next_slice(max_count)
            if records:
                buffer.slice = piece = Slice(records, decoder.next_offset, decoder.slice_bytes)
                buffer.weigh()
                self._favoured = None
                self._has_ready = True
                return piece
            lane.ledger.pass_over(decoder.next_offset)
            lane.use_up()
            self._supply.note_drained()
        return None

    def head(self, lane: Lane, max_count: int) -> Slice | None:
        """As `ready`, whatever is held: without the lane's next record a merge can choose nothing."""
        self._favoured = lane
        try:
            return self.ready(lane, max_count)
        finally:
            self._favoured = None

    def decode_towards(self, count: int, only: Collection[TopicPartition], turn: Turn) -> int:
        """How many records are ready now, `count` at most."""
        left_count = count
        for lane in self.turns:
            if not lane.is_open or (only and lane.tp not in only):
                continue
            while not turn.is_over and (missing_count := left_count - lane.buffer.ready_count) > 0:
                if not self.decode_behind(lane, min(missing_count, turn.records_left), turn):
                    break
            left_count -= lane.buffer.ready_count
            if left_count <= 0 or turn.is_over:
                break
        return count - max(0, left_count)

    def decode_behind(self, lane: Lane, count: int, turn: Turn | None = None) -> bool:
        """Append to the lane's slice; False when nothing is buffered that can be decoded here and now.

        No more than is asked for: what is left over would be kept, of each lane.
        """
        piece = lane.buffer.slice
        if piece is None or piece.index == len(piece.records):
            try:
                piece = self.ready(lane, count)
            except RecordError:
                return False  # it is raised when it is the lane's turn
            if piece is not None and turn is not None:
                turn.note(len(piece.records), piece.size_bytes)
            return piece is not None
        while lane.buffer.pieces:
            decoder = lane.buffer.pieces[0]
            if decoder is self._supply.inflating or decoder.needs_inflate() or self._is_full(lane):
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
                lane.buffer.weigh()
                if turn is not None:
                    turn.note(len(records), decoder.slice_bytes)
                return True
            lane.use_up()
            self._supply.note_drained()
        return False

    @property
    def has_room(self) -> bool:
        """More may be decoded or decompressed beside what is held."""
        return self.tally.held_bytes <= self._max_bytes

    def _is_full(self, lane: Lane) -> bool:
        """Decoding takes room, which there is not: what is decoded already goes first."""
        if self.has_room or lane is self._favoured:
            return False
        if self._withheld is None or (lane.buffer.decoded_bytes and not self._withheld.buffer.decoded_bytes):
            self._withheld = lane  # rather one whose batch is decompressed
        return True
