"""A queue of the lanes of one tally: decides whose turn it is, and decodes each lane in slices within one memory
bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from aiogroup._core.delivery.decode_budget import DecodeBudget
from aiogroup._core.fetching.buffer import Slice
from aiogroup._core.fetching.lane import Lane, LaneTally
from aiogroup._core.fetching.records.decode import PartitionDecoder
from aiogroup.errors import RecordError
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["Queue", "Supply"]


class Supply:
    """What delivery tells the tasks that supply it: the inflater, and the fetchers."""

    __slots__ = (
        "drained_count", "has_drained", "has_freed", "inflating", "is_drain_wanted", "is_room_wanted", "to_inflate",
    )  # fmt: skip

    def __init__(self) -> None:
        self.to_inflate: deque[Lane] = deque()
        """Lanes whose next batch is to be decompressed in a worker thread."""
        self.inflating: PartitionDecoder | None = None
        """The decoder that a worker thread is using: nothing else may touch it."""
        self.drained_count = 0
        """How many fetched pieces were used up."""
        self.has_freed = False
        """Whether memory was given back since `take_freed`: a fetched piece was used up, or the last record of a slice
        was handed out.
        """
        self.has_drained = False
        """Whether a fetched piece was used up since then, so that more may be wanted of its partition."""
        self.is_room_wanted = False
        """Whether a fetcher waits because the bound leaves it no room."""
        self.is_drain_wanted = False
        """Whether a fetcher waits because enough of all its partitions is buffered, and no slice changes that."""

    def want_room(self) -> None:
        """A fetcher waits because the bound leaves it no room."""
        self.is_room_wanted = True

    def want_drained(self) -> None:
        """A fetcher waits because enough of all its partitions is buffered."""
        self.is_drain_wanted = True

    def note_drained(self) -> None:
        self.drained_count += 1
        self.has_freed = self.has_drained = True

    def note_more_wanted(self) -> None:
        """Less of a partition is buffered, so more of it may be wanted."""
        self.has_freed = self.has_drained = True

    def take_freed(self) -> bool:
        """Forget what was given back. Returns whether a fetcher waits for it, and counts that fetcher as woken."""
        wakes = self.is_room_wanted or (self.is_drain_wanted and self.has_drained)
        self.has_freed = self.has_drained = False
        if wakes:
            self.is_room_wanted = self.is_drain_wanted = False
        return wakes


class Queue:
    """When `max_bytes` is reached, no lane is decoded while another lane has decoded records left."""

    def __init__(self, tally: LaneTally, supply: Supply, *, records_per_turn: int, max_bytes: int) -> None:
        self.tally = tally
        self.turns = tally.turns
        self._supply = supply
        self._records_per_turn = records_per_turn
        self._max_bytes = max_bytes
        self._withheld: Lane | None = None  # the lane that would be decoded if the bound allowed it
        self._favoured: Lane | None = None  # the lane that is decoded although the bound is reached
        self._has_ready = False

    def by_turn(self, only: Collection[TopicPartition]) -> Iterator[Lane]:
        """Each deliverable lane once, the one served longest ago first.

        If none of them had records, one lane that the memory bound withheld comes again and is decoded in spite of the
        bound. So records come however narrow the bound is.
        """
        self._withheld = self._favoured = None
        self._has_ready = False
        for _ in range(len(self.turns)):
            lane = next(iter(self.turns))
            if not lane.is_due:
                del self.turns[lane]  # it is added again when something is fetched
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
            if self._favoured.is_held_up:
                self.turns.move_to_end(self._favoured)  # next time the other lanes that are withheld come before it
            yield self._favoured
            if not self._has_ready and drained_count != self._supply.drained_count:  # it held no records after all
                yield from self.by_turn(only)

    def put_failed_first(self) -> None:
        """Give the lane that failed the next turn: `by_turn` has just moved it to the end, where its error would wait
        behind others.
        """
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
        slice_ = buffer.slice
        if slice_ is not None and slice_.index < len(slice_.records):
            self._has_ready = True
            return slice_
        while buffer.pieces:
            decoder = buffer.pieces[0]
            if decoder is self._supply.inflating or self._is_full(lane):
                return None
            records: list[Record] | None = decoder.read_at_once(max_count)
            if not records:
                if decoder.needs_inflate():
                    if lane not in self._supply.to_inflate:
                        self._supply.to_inflate.append(lane)
                    return None
                records = decoder.next_slice(max_count)
            if records:
                buffer.slice = slice_ = Slice(records, decoder.next_offset, decoder.slice_bytes)
                if decoder.exhausted:  # mostly: found out now, the next request need not look at it again
                    lane.use_up()
                    self._supply.note_drained()
                else:
                    buffer.weigh()
                self._favoured = None
                self._has_ready = True
                return slice_
            lane.ledger.pass_over(decoder.next_offset)
            lane.use_up()
            self._supply.note_drained()
        return None

    def head(self, lane: Lane, max_count: int) -> Slice | None:
        """As `ready`, but in spite of the memory bound: without the lane's next record a merge cannot choose."""
        self._favoured = lane
        try:
            return self.ready(lane, max_count)
        finally:
            self._favoured = None

    def decode_towards(self, count: int, only: Collection[TopicPartition], budget: DecodeBudget) -> int:
        """Decode until `count` records are ready or the budget is spent. Returns how many are ready, `count` at
        most.
        """
        left_count = count
        for lane in self.turns:
            if not lane.is_open or (only and lane.tp not in only):
                continue
            while not budget.is_spent and (missing_count := left_count - lane.buffer.ready_count) > 0:
                if not self.decode_behind(lane, min(missing_count, budget.records_left), budget):
                    break
            left_count -= lane.buffer.ready_count
            if left_count <= 0 or budget.is_spent:
                break
        return count - max(0, left_count)

    def decode_behind(self, lane: Lane, count: int, budget: DecodeBudget | None = None) -> bool:
        """Append up to `count` records to the lane's slice. Returns False when nothing that is buffered can be decoded
        now.

        Decode no more than is asked for: the surplus of every lane would stay in memory.
        """
        slice_ = lane.buffer.slice
        if slice_ is None or slice_.index == len(slice_.records):
            try:
                slice_ = self.ready(lane, count)
            except RecordError:
                return False  # the error is raised when it is the lane's turn
            if slice_ is not None and budget is not None:
                budget.spend(len(slice_.records), slice_.size_bytes)
            return slice_ is not None
        while lane.buffer.pieces:
            decoder = lane.buffer.pieces[0]
            if decoder is self._supply.inflating or decoder.needs_inflate() or self._is_full(lane):
                return False
            try:
                records = decoder.next_slice(count)
            except RecordError:
                return False
            slice_.end = decoder.next_offset
            if records:
                slice_.cut()
                slice_.records += records
                slice_.size_bytes += decoder.slice_bytes
                lane.buffer.weigh()
                if budget is not None:
                    budget.spend(len(records), decoder.slice_bytes)
                return True
            lane.use_up()
            self._supply.note_drained()
        return False

    @property
    def has_room(self) -> bool:
        """Whether the memory bound allows more to be decoded or decompressed."""
        return self.tally.held_bytes <= self._max_bytes

    def _is_full(self, lane: Lane) -> bool:
        """Whether the lane must wait because the memory bound is reached; records that are already decoded are
        delivered first.
        """
        if self.tally.held_bytes <= self._max_bytes or lane is self._favoured:
            return False
        if self._withheld is None or _precedence(lane) > _precedence(self._withheld):
            self._withheld = lane
        return True


def _precedence(lane: Lane) -> tuple[bool, bool]:
    """One of the lanes that wait for memory is decoded all the same: first one that can go on, and among these one
    whose batch is already decompressed.
    """
    return not lane.is_held_up, lane.buffer.decoded_bytes > 0
