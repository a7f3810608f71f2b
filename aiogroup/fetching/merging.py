"""Hands records of all partitions out in the order of their timestamps (KIP-695).

Theory of operation
-------------------
Nothing is taken out of the partitions' buffers before it is chosen. `open` looks at the next record of every partition,
lets `Merge` say whether to choose, and lays out the next few by time; a cursor iterates over these. How far it came
goes back to the partitions (`settle`), so positions, commits, seeks and revocations know nothing of a merge. What was
laid out and not handed out is simply laid out again.

What was laid out holds as long as every partition had a record at hand. Where one had none, whatever arrives may belong
in between: then `Delivery.look_again` closes the cursor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiogroup.errors import TimestampError
from aiogroup.fetching.assignment import Assignment
from aiogroup.fetching.delivery import Delivery
from aiogroup.fetching.merge import Merge, Sight
from aiogroup.fetching.position import Partition, PositionState, Slice
from aiogroup.native import Cursor, merge
from aiogroup.records import Record

__all__ = ["MAX_TIME", "Merging", "OnBadTimestamp", "TimestampOf"]

MAX_TIME: Final = 2**63 - 1
DECODED_COUNT: Final = 2_048
"""So many records of all partitions are decoded ahead, about: what is alive at a time the garbage collector counts."""
DECODED_MIN: Final = 16

TimestampOf = Callable[[Record], int]
OnBadTimestamp = Callable[[Record, TimestampError], Any]


@dataclass(slots=True)
class _Layout:
    """Records in the order in which they are handed out; `order` has the place of each one's partition in `sources`."""

    sources: list[tuple[Partition, Slice]]
    is_enforced: bool
    records: list[Record] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    done_count: int = 0


class Merging:
    """One merge over an assignment; `timestamp` extracts another time than the record's own.

    `on_bad_timestamp` is called with a record whose time cannot be used; when it returns, the record is skipped.
    """

    def __init__(
        self,
        assignment: Assignment,
        delivery: Delivery,
        rule: Merge,
        *,
        records_per_turn: int,
        read_committed: bool,
        timestamp: TimestampOf | None = None,
        on_bad_timestamp: OnBadTimestamp | None = None,
    ) -> None:
        self.cursor = Cursor()
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
        self._slice_count = records_per_turn

    @property
    def is_enforced(self) -> bool:
        """What is laid out was chosen while a partition had no record."""
        return self._layout is not None and self._layout.is_enforced

    # Choosing.

    def decode_ahead(self, has_time: Callable[[], bool]) -> bool:
        """Decode next records while there is time; whether some are left to be decoded."""
        self._delivery.close_cursor()
        self._look_at_assignment()
        for partition in self._in_order:
            piece = partition.slice
            if not partition.buffer or not partition.is_open or (piece is not None and piece.index < len(piece.keys)):
                continue
            if not has_time():
                return True
            try:
                self._head(partition)
            except Exception:  # noqa: BLE001 (`open` raises it again, at the same record)
                return False
        return False

    def open(self, now_ms: int, turn_ns: int, has_time: Callable[[], bool]) -> Record | None:
        """The next record by time, the cursor behind it; `None` when there is something to wait for (see `rule`).

        Raises:
            RecordError: a partition cannot go on, or a record has no time (TimestampError).
        """
        self._delivery.close_cursor()
        self._look_at_assignment()
        sources: list[tuple[Partition, Slice]] = []
        sights = {}
        for partition in self._in_order:
            piece, is_open = partition.slice, partition.is_open
            if is_open and (piece is None or piece.index >= len(piece.keys)):
                piece = self._head(partition)
            if is_open and piece is not None:
                sources.append((partition, piece))
            elif not (partition.is_paused or partition.is_leaving):  # then it takes no part
                lag = partition.lag(read_committed=self._read_committed) if is_open else None
                sights[partition.tp] = Sight(lag, partition.heard_at_ms, partition.ownership)
        if not self.rule.look(sights, now_ms, has_record=bool(sources)):
            return None
        layout = self._lay_out(_Layout(sources, is_enforced=bool(sights)), has_time)
        for index, lateness_ms in self.rule.lateness_of(layout.times):
            layout.records[index].lateness_ms = lateness_ms
        self._layout, self._delivery.merging = layout, self
        return self.cursor.open(layout.records, 0, turn_ns)

    def _look_at_assignment(self) -> None:
        if self._seen_changes_count != self._assignment.changes_count:
            self._seen_changes_count = self._assignment.changes_count
            self._in_order = sorted(self._assignment, key=lambda each: each.tp)  # equal times go by topic and partition
            share_count = DECODED_COUNT // max(1, len(self._in_order))
            self._slice_count = min(self._records_per_turn, max(DECODED_MIN, share_count))

    def _lay_out(self, layout: _Layout, has_time: Callable[[], bool]) -> _Layout:
        places: list[list[Any]] = [[piece.records, piece.keys, piece.index] for _, piece in layout.sources]
        while (left_count := self._records_per_turn - len(layout.records)) > 0:
            slot = merge(places, layout.records, layout.order, layout.times, left_count)
            if slot < 0 or not has_time() or not self._lengthen(*layout.sources[slot], places[slot]):
                break
        return layout

    def _lengthen(self, partition: Partition, piece: Slice, place: list[Any]) -> bool:
        """More records of a partition whose slice is laid out; without them nothing behind it can be."""
        if len(piece.keys) < len(piece.records):
            return False  # the next one has no time: it is dealt with when it is the first
        former_index = piece.index
        if not self._delivery.lengthen(partition, self._slice_count):
            return False
        place[2] -= former_index - piece.index
        self._read_times(piece)
        return bool(len(piece.keys) > place[2])

    def _head(self, partition: Partition) -> Slice | None:
        """The partition's slice with a next record whose time is known."""
        if partition.state is PositionState.STUCK and partition.error is not None:
            raise partition.error
        while True:
            piece = partition.slice
            if piece is None or piece.index == len(piece.records):
                piece = self._delivery.head(partition, self._slice_count)
                if piece is None:
                    return None
            if piece.index < len(piece.keys):
                return piece
            error = self._read_times(piece)
            if error is not None and piece.index == len(piece.keys):
                self._skip(partition, piece, error)

    # Timestamps.

    def _read_times(self, piece: Slice) -> Exception | None:
        """Those of the records that have none yet, up to one that has no good one: why not."""
        keys, records = piece.keys, piece.records
        if len(keys) < piece.index:
            keys += [0] * (piece.index - len(keys))  # handed out: nobody asks
        first = len(keys)
        if self._timestamp is None:
            keys += [record.timestamp for record in records[first:]]
            if min(keys[first:], default=0) >= 0:
                return None
            del keys[next(index for index in range(first, len(keys)) if keys[index] < 0) :]
            return ValueError("the record has no timestamp")
        for record in records[first:]:
            try:
                at = self._timestamp(record)
            except Exception as error:  # noqa: BLE001 (the application's code)
                return error
            if type(at) is not int or not 0 <= at <= MAX_TIME:
                return ValueError(f"a timestamp is whole milliseconds from 0 on, not {at!r}")
            keys.append(at)
        return None

    def _skip(self, partition: Partition, piece: Slice, why: Exception) -> None:
        """The next record has no good time: the handler says that it is passed over, or nobody does."""
        record = piece.records[piece.index]
        error = TimestampError(record, why)
        if self._on_bad_timestamp is None:
            raise error from why
        self._on_bad_timestamp(record, error)
        piece.keys.append(0)
        piece.index += 1
        is_last = piece.index == len(piece.records)
        partition.ledger.pass_over(piece.end if is_last else record.offset + 1)
        if is_last:
            partition.weigh()

    # Handing out.

    def settle(self) -> None:
        """Bring the ledgers up to what was handed out."""
        layout = self._layout
        if layout is None or self.cursor.index == layout.done_count:
            return
        done = slice(layout.done_count, self.cursor.index)
        layout.done_count = self.cursor.index
        self.rule.on_handed_out(layout.times[done], is_enforced=layout.is_enforced)
        taken, full = [], []
        tally = self._assignment.tally
        for slot, count in Counter(layout.order[done]).items():
            partition, piece = layout.sources[slot]
            if partition.slice is not piece:
                continue  # it was dropped, and the position with it
            taken.append((partition, piece, count))
            if partition.buffered_count >= tally.enough_count:
                full.append(partition)
        last_count = layout.done_count - 1
        self._delivery.hand_out(taken, layout.sources[layout.order[last_count]][0], layout.records[last_count])
        for partition in full:
            if partition.buffered_count < tally.enough_count:  # the planner left it out
                tally.touched[partition.tp] = None
                self._delivery.has_drained = True

    def close(self) -> None:
        """Nothing more of what is laid out is handed out; it stays where it is."""
        self.settle()
        self.cursor.close()
        if self._layout is not None:
            for _, piece in self._layout.sources:
                piece.let_go()
        self._layout = None
