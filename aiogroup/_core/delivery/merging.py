"""Hands out the records of all partitions in the order of their timestamps (KIP-695).

Theory of operation
-------------------
A record stays in its partition's buffer until it is handed out. `open` examines the next record of every partition,
lets `MergeRule` decide whether to choose, and lays out the next records by time: it puts them in a list in that order.
A cursor iterates over the list, turn by turn. `settle` tells the partitions how far the cursor has advanced, and is
called only when that is asked for. So positions, commits, seeks and revocations know nothing of a merge, and a turn
costs nothing per partition. A layout that is dropped loses nothing: its remaining records are laid out again.

Whatever closes the delivery's cursor drops the layout. The layout stays valid if every partition had a record when it
was made. If one had none, a record that arrives later may belong in between: then `Delivery.look_again` drops the
layout.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.delivery.merge import MergeRule, Sight
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.buffer import Slice
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.native import Cursor, Heads, read_times
from aiogroup.errors import TimestampError
from aiogroup.records import Record

__all__ = ["MAX_TIME", "Merging", "OnBadTimestamp", "TimestampOf"]

MAX_TIME: Final = 2**63 - 1
DECODED_COUNT: Final = 4_096
"""About how many records of all partitions together are decoded ahead: the garbage collector's cost grows with live
objects.
"""
DECODED_MIN: Final = 16
LAID_OUT_COUNT: Final = 4_096
"""The most records that are laid out at once, and the most per partition: with few partitions, short layouts free
memory for the fetchers sooner.
"""
LAID_OUT_OF_EACH: Final = 16

TimestampOf = Callable[[Record[Any, Any]], int]
OnBadTimestamp = Callable[[Record[Any, Any], TimestampError], Any]


@dataclass(slots=True, eq=False, repr=False)
class _Layout:
    """Records in the order in which they are handed out; `order` holds, for each record, the index of its partition in
    `sources`.

    Records from the index `turn_at` on are under the cursor. The ledgers know of the first `settled_count` records, and
    the first `processed_count` are processed.
    """

    sources: list[tuple[Partition, Slice]]
    is_enforced: bool
    records: list[Record] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    turn_at: int = 0
    settled_count: int = 0
    processed_count: int = 0


class Merging:
    """One merge over an assignment; `timestamp` extracts another time than the record's own.

    `on_bad_timestamp` is called with a record whose time cannot be used; when it returns, the record is skipped.
    """

    def __init__(
        self,
        assignment: Assignment,
        delivery: Delivery,
        rule: MergeRule,
        *,
        records_per_turn: int,
        read_committed: bool,
        timestamp: TimestampOf | None = None,
        on_bad_timestamp: OnBadTimestamp | None = None,
    ) -> None:
        self.cursor = Cursor(is_shared=not delivery.auto_ack)
        self.rule = rule
        self._assignment = assignment
        self._delivery = delivery
        self._records_per_turn = records_per_turn
        self._read_committed = read_committed
        self._timestamp = timestamp
        self._on_bad_timestamp = on_bad_timestamp
        self._layout: _Layout | None = None
        self._in_order: list[Partition] = []
        self._seen_changes_count = -1
        self._slice_count = self._laid_out_count = records_per_turn

    @property
    def is_enforced(self) -> bool:
        """Whether the layout was made while some partition had no record."""
        return self._layout is not None and self._layout.is_enforced

    # Choosing.

    def decode_ahead(self, has_time: Callable[[], bool]) -> bool:
        """Decode each partition's next records while `has_time`. Returns whether some partitions are left to decode."""
        if self._is_laid_out():
            return False
        for partition in self._in_order:
            slice_ = partition.buffer.slice
            is_time_known = slice_ is not None and slice_.index < len(slice_.keys)
            if is_time_known or not partition.buffer.pieces or not partition.is_open:
                continue
            if not has_time():
                return True
            try:
                self._head(partition)
            except Exception:  # noqa: BLE001 (`open` raises it again, at the same record)
                return False
        return False

    def open(self, now_ms: int, turn_ns: int, has_time: Callable[[], bool]) -> Record | None:
        """Return the next record by time and open the cursor after it; `None` when `rule` says to wait.

        Raises:
            RecordError: a partition cannot go on, or a record has no time (TimestampError).
        """
        if not self._is_laid_out() and not self._lay_out(now_ms, has_time):
            return None
        layout = self._layout
        assert layout is not None
        layout.turn_at = layout.processed_count
        turn = layout.records[layout.turn_at : layout.turn_at + self._records_per_turn]
        return self.cursor.open(turn, 0, turn_ns)

    def _is_laid_out(self) -> bool:
        """Whether the next records are laid out; if not, the used-up layout is dropped."""
        layout = self._layout
        if layout is not None and layout.processed_count < len(layout.records):
            return True
        self._delivery.close_cursor()
        if self._seen_changes_count != self._assignment.changes_count:
            self._seen_changes_count = self._assignment.changes_count
            self._in_order = sorted(self._assignment, key=lambda each: each.tp)  # equal times go by topic and partition
            count = max(1, len(self._in_order))
            self._slice_count = min(self._records_per_turn, max(DECODED_MIN, DECODED_COUNT // count))
            self._laid_out_count = max(self._records_per_turn, min(LAID_OUT_COUNT, LAID_OUT_OF_EACH * count))
        return False

    def _lay_out(self, now_ms: int, has_time: Callable[[], bool]) -> bool:
        sources: list[tuple[Partition, Slice]] = []
        sights, is_delayed = {}, False
        for partition in self._in_order:
            if Bar.DELAYED in partition.bars:
                is_delayed = True  # its redelivered record may be the next one by time
                continue
            slice_, is_open = partition.buffer.slice, partition.is_open
            if is_open and (slice_ is None or slice_.index >= len(slice_.keys)):
                slice_ = self._head(partition)
            if is_open and slice_ is not None:
                sources.append((partition, slice_))
            elif not (partition.is_paused or Bar.LEAVING in partition.bars):  # these take no part in the merge
                lag = partition.lag(read_committed=self._read_committed) if is_open else None
                sights[partition.tp] = Sight(lag, partition.log.heard_at_ms, partition.ownership)
        if not self.rule.look(sights, now_ms, has_record=bool(sources) and not is_delayed):
            return False
        layout = _Layout(sources, is_enforced=bool(sights))
        places: list[list[Any]] = [[slice_.records, slice_.keys, slice_.index] for _, slice_ in sources]
        heads = Heads(places)
        while (left_count := self._laid_out_count - len(layout.records)) > 0:
            slot = heads.take(layout.records, layout.order, layout.times, left_count)
            if slot < 0 or not has_time() or not self._lengthen(*sources[slot], places[slot]):
                break
            heads.refill(slot)
        for index, lateness_ms in self.rule.lateness_of(layout.times):
            layout.records[index].lateness_ms = lateness_ms
            layout.late.append(index)
        self._layout = layout
        self._delivery.open_source(self)
        return True

    def _lengthen(self, partition: Partition, slice_: Slice, place: list[Any]) -> bool:
        """Decode more records of a partition whose slice is used up. Without its next record, no later record can be
        chosen.
        """
        if len(slice_.keys) < len(slice_.records):
            return False  # the next record has no time: that is handled when it becomes the first
        former_index = slice_.index
        if not self._delivery.lengthen(partition, self._slice_count):
            return False
        place[2] -= former_index - slice_.index
        self._read_times(slice_)
        return bool(len(slice_.keys) > place[2])

    def _head(self, partition: Partition) -> Slice | None:
        """The partition's slice with a next record whose time is known."""
        if (due := partition.due_error) is not None:
            raise due
        while True:
            slice_ = partition.buffer.slice
            if slice_ is None or slice_.index == len(slice_.records):
                slice_ = self._delivery.head(partition, self._slice_count)
                if slice_ is None:
                    return None
            if slice_.index < len(slice_.keys):
                return slice_
            error = self._read_times(slice_)
            if error is not None and slice_.index == len(slice_.keys):
                self._skip(partition, slice_, error)

    # Timestamps.

    def _read_times(self, slice_: Slice) -> Exception | None:
        """Read the times of further records, up to one without a usable time. Returns the error of that record, if
        there is one.
        """
        keys, records = slice_.keys, slice_.records
        if len(keys) < slice_.index:
            keys += [0] * (slice_.index - len(keys))  # already handed out: their times are not needed
        if self._timestamp is None:
            return None if read_times(records, keys) else ValueError("the record has no timestamp")
        for record in records[len(keys) :]:
            try:
                at = self._timestamp(record)
            except Exception as error:  # noqa: BLE001 (the application's code)
                return error
            if type(at) is not int or not 0 <= at <= MAX_TIME:
                return ValueError(f"a timestamp is whole milliseconds from 0 on, not {at!r}")
            keys.append(at)
        return None

    def _skip(self, partition: Partition, slice_: Slice, why: Exception) -> None:
        """The next record has no usable time: pass it over if the handler returns, raise if there is no handler."""
        record = slice_.records[slice_.index]
        error = TimestampError(record, why)
        if self._on_bad_timestamp is None:
            raise error from why
        self._on_bad_timestamp(record, error)
        slice_.keys.append(0)
        slice_.index += 1
        is_last = slice_.index == len(slice_.records)
        partition.ledger.pass_over(slice_.end if is_last else record.offset + 1)
        if is_last:
            partition.buffer.weigh()

    # Handing out.

    def put_off(self) -> bool:
        """A request marks the records handed out as processed. Returns whether that can be settled later."""
        layout = self._layout
        if layout is None or layout.settled_count > layout.processed_count:
            return False
        layout.processed_count = self._handed_out_count(layout)
        self.cursor.close()
        return True

    def settle(self) -> None:
        """Record in the ledgers which records were handed out."""
        layout = self._layout
        if layout is None:
            return
        first, upto = layout.settled_count, self._handed_out_count(layout)
        if upto == first:
            return
        layout.settled_count = upto
        late_count = bisect_left(layout.late, upto) - bisect_left(layout.late, first)
        self.rule.on_handed_out(layout.times[first:upto], late_count, is_enforced=layout.is_enforced)
        tally = self._assignment.tally
        half_count, sources = (tally.enough_count + 1) // 2, layout.sources
        taken, full = [], []
        for slot, count in Counter(layout.order[first:upto]).items():
            partition, slice_ = sources[slot]
            if partition.buffer.slice is not slice_:
                continue  # the slice was dropped, and the position was set again
            taken.append((partition, slice_, count))
            if partition.target.offset - partition.ledger.position >= half_count:
                full.append(partition)
        in_hand = None
        if layout.processed_count < upto:
            in_hand = layout.sources[layout.order[upto - 1]][0], layout.records[upto - 1]
        self._delivery.hand_out_merged(taken, in_hand)
        if any(partition.buffered_count < half_count for partition in full):
            # The planner left these partitions out while they were full. Touch all that have less than enough at once:
            # otherwise each would be fetched by a request of its own.
            tally.touch(each.tp for each, _ in sources if each.buffered_count < tally.enough_count)
            self._delivery.supply.note_more_wanted()

    def end_turn(self) -> None:
        """Close the cursor; the next request goes on after the records that were handed out."""
        self.cursor.close()
        if self._layout is not None:
            self._layout.processed_count = self._layout.settled_count

    def close(self) -> None:
        """Drop the layout; its remaining records stay in their partitions' buffers."""
        self.cursor.close()
        if self._layout is not None:
            for _, slice_ in self._layout.sources:
                slice_.let_go()
        self._layout = None

    def _handed_out_count(self, layout: _Layout) -> int:
        return max(layout.processed_count, layout.turn_at + self.cursor.index)
