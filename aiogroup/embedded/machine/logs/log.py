"""The log of one partition: record batches as bytes, offsets, epochs, and the bounds of what can be read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import accumulate

from aiogroup.embedded.machine.logs.batches import (
    Header,
    UnreadableBatchError,
    header_of,
    rebuilt,
    records_of,
    write_place,
)
from aiogroup.embedded.machine.logs.epochs import LeaderEpochs
from aiogroup.embedded.machine.logs.producers import Aborted, Producers

__all__ = ["Budget", "Log"]

INDEX_BYTES = 4_096
"""index.interval.bytes."""


class Budget:
    """How many bytes of batches all logs of a cluster may hold together. `append.py` refuses batches that do not fit. A
    batch that was accepted is never dropped to make room.
    """

    __slots__ = ("max_bytes", "used_bytes")

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.max_bytes


class Log:
    """Batches of format 2, kept as the bytes that came. `append.py` has checked them before.

    A read costs two bisections and one slice, however long the log is, and copies no batch.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.start_offset = 0
        self.end_offset = 0
        """The offset after the last record. It is the high watermark too, because replicas do not lag."""
        self._batches: list[memoryview] = []
        self._bases: list[int] = []
        self._nexts: list[int] = []
        """The offset after each batch."""
        self._positions: list[int] = [0]
        """Where each batch begins, in bytes since the log was created; the last entry is where the log ends."""
        self._latest: list[int] = []
        """The greatest timestamp up to each batch, so that bisection finds the first batch for a time."""
        self._epochs = LeaderEpochs()
        self.producers = Producers()

    @property
    def size_bytes(self) -> int:
        return self._positions[-1] - self._positions[0]

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest transaction under way, or the end."""
        first = self.producers.first_open_offset
        return self.end_offset if first is None else max(first, self.start_offset)

    def copy(self, budget: Budget) -> Log:
        """Another log with the same batches, which are shared: they never change."""
        copied = Log(budget)
        copied.start_offset, copied.end_offset = self.start_offset, self.end_offset
        for column in ("_batches", "_bases", "_nexts", "_positions", "_latest"):
            setattr(copied, column, list(getattr(self, column)))
        copied._epochs, copied.producers = deepcopy(self._epochs), deepcopy(self.producers)
        budget.used_bytes += self.size_bytes
        return copied

    def batches(self, from_offset: int = 0) -> Iterator[memoryview]:
        """The stored batches, from the one that holds `from_offset` on."""
        return iter(self._batches[bisect_right(self._nexts, from_offset) :])

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Keep one checked batch. Writes its base offset and epoch in place, which its checksum does not cover.

        Returns:
            the batch's base offset.
        """
        base = self.end_offset
        write_place(batch, base, leader_epoch)
        self._epochs.begin(leader_epoch, base)
        header = self._keep(batch)
        if header.producer_id >= 0:
            self.producers.note(header, batch)
        self.end_offset = self._nexts[-1]
        return base

    def _keep(self, batch: bytearray | memoryview) -> Header:
        header = header_of(batch)
        self._batches.append(memoryview(batch).toreadonly())
        self._bases.append(header.base_offset)
        self._nexts.append(header.last_offset + 1)
        self._positions.append(self._positions[-1] + len(batch))
        latest = self._latest
        latest.append(header.max_timestamp if not latest else max(latest[-1], header.max_timestamp))
        self.budget.used_bytes += len(batch)
        return header

    def read(self, offset: int, max_bytes: int, *, until_offset: int | None = None) -> list[memoryview]:
        """Whole batches that begin before `until_offset`, starting with the batch that holds `offset`: as many as fit
        into `max_bytes`, but at least one, however large (KIP-74).
        """
        first, last = self._span(offset, until_offset)
        if first >= last:
            return []
        fits = bisect_right(self._positions, self._positions[first] + max_bytes, first + 1, last + 1) - 1
        return self._batches[first : max(fits, first + 1)]

    def readable_bytes(self, offset: int, at_most: int, *, until_offset: int | None = None) -> int:
        """How many bytes `read` would return if it had no limit, counted no further than `at_most`."""
        first, last = self._span(offset, until_offset)
        return min(self._positions[last] - self._positions[first], at_most) if first < last else 0

    def _span(self, offset: int, until_offset: int | None) -> tuple[int, int]:
        first = bisect_right(self._nexts, offset)
        return first, len(self._bases) if until_offset is None else bisect_left(self._bases, until_offset)

    def aborted(self, offset: int, size_bytes: int) -> list[Aborted]:
        """The aborted transactions of a read of `size_bytes` from `offset` on. A few that begin after it are included,
        because Kafka's offset index has an entry only every 4 KiB (LocalLog.addAbortedTransactions).
        """
        end = self._positions[bisect_right(self._nexts, offset)] + size_bytes
        at = bisect_left(self._positions, end + INDEX_BYTES)
        return self.producers.aborted(offset, self._bases[at] if at < len(self._bases) else self.end_offset)

    def is_aborted(self, header: Header) -> bool:
        """Whether the batch belongs to a transaction that was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        found = self.producers.aborted(header.base_offset, header.base_offset + 1)
        return any(each.producer_id == header.producer_id for each in found)

    def begin_epoch(self, leader_epoch: int) -> None:
        """The records from here on are of this epoch."""
        self._epochs.begin(leader_epoch, self.end_offset)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the latest epoch that is not later than `leader_epoch`, as LeaderEpochFileCache does;
        (-1, -1) if it is not known.
        """
        return self._epochs.end_of(leader_epoch, self.end_offset)

    def offset_by_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that is not older than `timestamp_ms`.

        Raises:
            UnreadableBatchError: the batch in which it should be cannot be read.
        """
        for batch in self._batches[bisect_left(self._latest, timestamp_ms) :]:
            header = header_of(batch)
            if header.max_timestamp >= timestamp_ms:
                for record in records_of(batch):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset:
                        return record.offset, record.timestamp_ms, header.leader_epoch
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the greatest timestamp.

        Raises:
            UnreadableBatchError: the batch in which it should be cannot be read.
        """
        return self.offset_by_time(self._latest[-1]) if self._latest else None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        return self._epochs.at(offset)

    def truncate(self, to_offset: int) -> None:
        """Forget everything from `to_offset` on, as an unclean election does. Kafka's replicas end with a whole batch.
        Here a batch across `to_offset` is rebuilt with its records before that offset.
        """
        if to_offset >= self.end_offset:
            return
        first = bisect_right(self._nexts, to_offset)
        cut = self._batches[first] if first < len(self._batches) and self._bases[first] < to_offset else None
        self._drop(slice(first, None))
        if cut is not None:
            with suppress(UnreadableBatchError):
                remaining = rebuilt(cut, lambda record: record.offset < to_offset, last_offset=to_offset - 1)
                if remaining is not None:
                    self._keep(remaining)
        self._epochs.truncate(to_offset)
        self.producers = Producers.of(self._batches)
        self.end_offset = to_offset
        self.start_offset = min(self.start_offset, to_offset)

    def delete_before(self, offset: int) -> None:
        """Move the start, and forget batches that lie wholly before it (DeleteRecords)."""
        if offset <= self.start_offset:
            return
        self.start_offset = min(offset, self.end_offset)
        self._drop(slice(0, bisect_right(self._nexts, self.start_offset)))
        self._epochs.delete_before(self.start_offset)

    def replace(self, batches: Iterable[memoryview | bytearray]) -> None:
        """Replace all batches by these; the log's bounds stay (compaction)."""
        self._drop(slice(0, None))
        for each in batches:
            self._keep(each)

    def forget(self) -> None:
        """Release the memory: the topic is gone."""
        self._drop(slice(0, None))

    def _drop(self, which: slice) -> None:
        """Forget batches at either end."""
        before_bytes = self.size_bytes
        first, stop, _ = which.indices(len(self._batches))
        for column in (self._batches, self._bases, self._nexts):
            del column[which]
        if first:
            del self._positions[first + 1 :], self._latest[first:]
        else:
            del self._positions[:stop], self._latest[:]
            self._latest.extend(accumulate((header_of(each).max_timestamp for each in self._batches), max))
        self.budget.used_bytes -= before_bytes - self.size_bytes
