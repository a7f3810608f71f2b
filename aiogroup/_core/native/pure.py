"""The types of aiogroup._core.native in Python: they document the C, and are used when the C is not compiled."""

from __future__ import annotations

import asyncio
import struct
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokafka.record.default_records import DefaultRecordBatch

from aiogroup._core.native.wire import RawRecord, RawRecords
from aiogroup._core.typed import Generic, K, V
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.record._protocols import DefaultRecordProtocol

__all__ = ["Cursor", "Heads", "Origin", "Reader", "Record", "blank", "columns", "extent", "read_plain", "read_times"]

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Origin: TypeAlias = tuple[TopicPartition, int, str, "Callable[[Record[Any, Any]], None] | None"]
"""The part that the records of a batch share: partition, timestamp type, lane, and the function that `ack` calls, if
any.
"""
Packed: TypeAlias = "tuple[int, bytes | None, bytes, bytes]"
"""A column of bytes: the number of nulls; a bit for each row that is none, if there are nulls; where each row ends, as
int32, after a first 0; the bytes.
"""
Source: TypeAlias = "list[Any]"
"""A source of `Heads`: [records, their keys, index of the next]."""

_HEAD: Final = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_DELTA: Final = struct.Struct(">i")  # last offset delta
_AT_DELTA: Final = 23
_FRAME_BYTES: Final = 12
_SMALLEST_LENGTH: Final = 14  # a v0 message without key and value
_LAST_BASE_OFFSET: Final = 2**63 - 2**31 - 1
_NO_EPOCH: Final = -1

_ATTRIBUTES_AT: Final = 22  # the low byte
_CODEC_MASK: Final = 0x07
_LAST_OFFSET_DELTA: Final = slice(23, 27)
_RECORD_COUNT: Final = slice(57, 61)
_GUARD: Final = b"\xff" * 16
"""Bytes in which no number can end: aiokafka's decoder reads numbers without checking for the end of the batch."""


class Record(Generic[K, V]):
    """One record, with the attributes of aiokafka's `ConsumerRecord` but `checksum`.

    `offset` is the record's place in its partition, `timestamp` milliseconds since the epoch, `timestamp_type` 0 for
    the producer's time and 1 for the broker's. `key` and `value` are the results of the deserializers; `None` if the
    record has none (a tombstone has no value). For type checkers those of a `Record[str, Order]` are `str | None` and
    `Order | None`. `headers` are (name, value) pairs in the producer's order; a name may
    come twice, a value may be `None`. `lane` names the lane that delivered it (KIP-333). `lateness_ms` is how far its
    timestamp is below the highest that a merge had handed out before it (KIP-695), otherwise 0.
    """

    __slots__ = ("_origin", "headers", "key", "lateness_ms", "offset", "timestamp", "value")

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: K | None,
        value: V | None,
        headers: Headers,
        acknowledge: Callable[[Record[Any, Any]], None] | None = None,
        lane: str = "live",
        lateness_ms: int = 0,
    ) -> None:
        self._origin: Origin = (tp, timestamp_type, lane, acknowledge)
        self.lateness_ms = lateness_ms
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = tuple(headers)

    @property
    def tp(self) -> TopicPartition:
        return self._origin[0]

    @property
    def topic_partition(self) -> TopicPartition:
        return self._origin[0]

    @property
    def topic(self) -> str:
        return self._origin[0][0]

    @property
    def partition(self) -> int:
        return self._origin[0][1]

    @property
    def timestamp_type(self) -> int:
        return self._origin[1]

    @property
    def lane(self) -> str:
        return self._origin[2]

    @property
    def serialized_key_size(self) -> int:
        """Size of the key in bytes, -1 without one; only known when no deserializer replaced the bytes."""
        return len(self.key) if isinstance(self.key, bytes) else -1

    @property
    def serialized_value_size(self) -> int:
        """Size of the value in bytes, -1 without one; only known when no deserializer replaced the bytes."""
        return len(self.value) if isinstance(self.value, bytes) else -1

    def ack(self) -> None:
        """Mark the record as processed: its offset may be committed once all records before it are processed, too.

        May be called from any task or thread, in any order, any number of times; from another thread than that of the
        consumer's loop it takes effect in the loop's next turn. It has no effect after the partition was revoked, or
        on a record that belongs to no consumer (constructed or unpickled).
        """
        acknowledge = self._origin[3]
        if acknowledge is not None:
            acknowledge(self)

    def _values(self) -> tuple[Any, ...]:
        tp, timestamp_type, *_ = self._origin
        return (tp, self.offset, self.timestamp, timestamp_type, self.key, self.value, self.headers)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.tp, self.offset))

    def __reduce__(self) -> tuple[type[Record[Any, Any]], tuple[Any, ...]]:
        where = (None, self.lane, self.lateness_ms) if self.lane != "live" or self.lateness_ms else ()
        return Record, self._values() + where

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r})"
        )


class Reader:
    """The records of a v2 batch, built when they are read; `payload` is uncompressed, whatever `header` says about it.

    No length in the batch is trusted. If the bytes `behind` the batch are given, the reader may go on to batches of
    plain records there, as long as `check` finds their checksum right and, if only `committed` records may be read,
    they belong to no transaction. This class has aiokafka's decoder (C if its wheel has it) do the work, and reads one
    batch only; if the decoder refuses a record, `wire` decides whether it is damaged.

    Attributes:
        left: how many records of the header's count `read` has not reached yet. base_offset, next_offset: the first
        offset of the batch that is being read, and the offset after it. passed: how many bytes of `behind` belong to
        batches that reading has begun.
    """

    __slots__ = (
        "_careful", "_damage", "_frame", "_origin", "_previous", "_raws", "_read_count", "base_offset", "left",
        "next_offset", "passed",
    )  # fmt: skip

    def __init__(
        self,
        header: memoryview,
        payload: bytes | bytearray | memoryview,
        origin: Origin,
        behind: memoryview | None = None,
        check: Callable[[memoryview], int] | None = None,
        committed: bool = False,
    ) -> None:
        frame = bytearray(header)
        frame[_ATTRIBUTES_AT] &= ~_CODEC_MASK
        frame += payload
        frame += _GUARD
        self.left = int.from_bytes(frame[_RECORD_COUNT], "big", signed=True)
        self._origin = origin
        self.base_offset = int.from_bytes(frame[:8], "big")
        self.next_offset = self.base_offset + int.from_bytes(frame[_LAST_OFFSET_DELTA], "big", signed=True) + 1
        self.passed = 0
        self._frame = memoryview(frame)[: -len(_GUARD)]
        self._raws: Iterator[RawRecord | DefaultRecordProtocol] = iter(DefaultRecordBatch(self._frame))
        self._careful: RawRecords | None = None
        self._previous = self.base_offset - 1
        self._read_count = 0
        self._damage: ValueError | None = None

    def read(self, max_records: int, from_offset: int) -> list[Record]:
        """The next records, at most `max_records`, without those below `from_offset`; empty when none are left.

        Raises:
            ValueError: the next record is damaged, and so is everything after it. All records before it were returned.
        """
        if max_records < 1:
            raise ValueError("max_records must be at least 1")
        records: list[Record] = []
        while self._damage is None and self.left > 0 and len(records) < max_records:
            try:
                raw = self._next(from_offset)
            except ValueError as error:
                self._damage = error
                break
            if raw.offset >= from_offset:
                records.append(self._record(raw))
            self._previous = raw.offset
            self._read_count += 1
            self.left -= 1
        if self._damage is not None and not records:
            raise self._damage
        return records

    def finish(self) -> None:
        """Check, after all records were read, that the batch ends.

        Raises:
            ValueError: bytes are left over.
        """
        if self._careful is not None:
            self._careful.finish()
            return
        try:
            next(self._raws, None)
        except Exception as error:
            raise ValueError(f"bytes are left behind the last record ({error!r})") from error

    def _next(self, from_offset: int) -> RawRecord | DefaultRecordProtocol:
        if self._careful is None:
            try:
                raw = next(self._raws)
                if self._previous < raw.offset < self.next_offset:
                    return raw
            except Exception:  # noqa: BLE001, S110 (the decoder raises several kinds, also where Java's consumer reads on)
                pass
            self._careful = RawRecords(self._frame, self._read_count)
        raw = self._careful.next(from_offset)
        if not self._previous < raw.offset < self.next_offset:
            raise ValueError("offsets are not in order")
        return raw

    def _record(self, raw: RawRecord | DefaultRecordProtocol) -> Record:
        record = Record.__new__(Record)
        record._origin = self._origin
        record.lateness_ms = 0
        record.offset = raw.offset
        record.timestamp = raw.timestamp
        record.key = raw.key
        record.value = raw.value
        record.headers = tuple(raw.headers)
        return record


def blank(size: int) -> bytearray:
    """A buffer that must be filled before it is read. It is not zeroed first: for megabytes that would hold up the
    loop.
    """
    return bytearray(size)


def extent(data: bytes | memoryview, from_offset: int) -> tuple[int | None, tuple[tuple[int, int], ...]]:
    """Read the headers of all complete batches in `data`, which was fetched from `from_offset`.

    Returns the offset after the last of them, `None` if the bytes are damaged, so that nothing can follow them; and
    (offset, epoch) pairs: from each offset on the batches carry that leader epoch (KIP-320).
    """
    view = memoryview(data)
    end, pos = from_offset, 0
    epochs: list[tuple[int, int]] = []
    while len(view) - pos >= _HEAD.size:
        base_offset, length, epoch, magic = _HEAD.unpack_from(view, pos)
        if length < _SMALLEST_LENGTH:
            return None, tuple(epochs)
        if length + _FRAME_BYTES > len(view) - pos:
            break
        delta = 0
        if magic in (0, 1):
            epoch = _NO_EPOCH  # older formats have other fields there, and may be one byte shorter
        elif length + _FRAME_BYTES < _AT_DELTA + _DELTA.size:
            return None, tuple(epochs)
        else:
            (delta,) = _DELTA.unpack_from(view, pos + _AT_DELTA)
        if delta < 0 or base_offset > _LAST_BASE_OFFSET:
            return None, tuple(epochs)
        if not epochs or epoch != epochs[-1][1]:
            epochs.append((base_offset, epoch))
        end = max(end, base_offset + delta + 1)
        pos += length + _FRAME_BYTES
    return end, tuple(epochs)


def read_plain(
    data: bytes | memoryview,
    from_offset: int,
    max_records: int,
    origin: Origin,
    check: Callable[[memoryview], int] | None,
    committed: bool,
) -> tuple[list[Record], int] | None:
    """The records of `data` from `from_offset` on, and the offset after its last batch.

    `None` unless `data` is nothing but whole v2 batches of plain records with the producer's timestamps, with 1 to
    `max_records` wanted ones: not compressed, with right checksums (if `check` is given), of no transaction (if only
    `committed` records may be read). Then the batches must be read one by one. In Python this is always so.
    """
    return None


def columns(records: list[Record]) -> tuple[bytes, bytes, bytes, bool, Packed, Packed]:
    """The buffers of Arrow arrays: offsets and timestamps as int64, timestamp types as int32, keys and values as
    binary. Between them, whether any record has headers. Key and value must be bytes or `None`.

    Raises:
        OverflowError: all keys, or all values, are longer than 2 GiB together.
    """
    return (
        array("q", [each.offset for each in records]).tobytes(),
        array("q", [each.timestamp for each in records]).tobytes(),
        array("i", [each.timestamp_type for each in records]).tobytes(),
        any(each.headers for each in records),
        packed([each.key for each in records]),
        packed([each.value for each in records]),
    )


def packed(values: list[bytes | None]) -> Packed:
    """A column of these bytes."""
    null_count = values.count(None)
    valid = None
    if null_count:
        bits = "".join("0" if each is None else "1" for each in reversed(values))
        valid = int(bits, 2).to_bytes((len(values) + 7) // 8, "little")
    ends = array("i", accumulate((len(each or b"") for each in values), initial=0))
    return null_count, valid, ends.tobytes(), b"".join(filter(None, values))


def read_times(records: list[Record], times: list[int]) -> bool:
    """Append to `times` the timestamps of the records that it lacks. Stops and returns False at one below 0."""
    for record in records[len(times) :]:
        if record.timestamp < 0:
            return False
        times.append(record.timestamp)
    return True


class Heads:
    """Merges sources, each a list [records, their keys, index of the next]; the record with the least key comes first.

    A source has as many keys as records may be taken, at least one. Among equal keys the first source comes first.
    """

    __slots__ = ("_heap", "_sources", "_used_up")

    def __init__(self, sources: list[Source]) -> None:
        self._sources = list(sources)
        self._heap = [(_next_key(source), slot) for slot, source in enumerate(sources)]
        self._used_up: set[int] = set()
        heapify(self._heap)

    def take(self, records: list[Record], order: list[int], times: list[int], limit: int) -> int:
        """Append up to `limit` records to `records`, the index of each one's source to `order`, and its key to `times`.

        Returns the index of a source that is used up, since the next record is not known until it is refilled; -1 if
        `limit` was reached first.
        """
        heap = self._heap
        if limit < 1 or not heap:
            raise ValueError("take needs a source with records and a limit of at least 1")
        for _ in range(limit):
            key, slot = heap[0]
            source = self._sources[slot]
            of, keys, index = source
            records.append(of[index])
            times.append(key)
            order.append(slot)
            source[2] = index = index + 1
            if index == len(keys):
                heappop(heap)
                self._used_up.add(slot)
                return slot
            heapreplace(heap, (keys[index], slot))
        return -1

    def refill(self, slot: int) -> None:
        """A source that was used up has more records, from its index on."""
        if slot not in self._used_up:
            raise ValueError("no source with this number is used up")
        heappush(self._heap, (_next_key(self._sources[slot]), slot))
        self._used_up.discard(slot)


def _next_key(source: Source) -> int:
    of, keys, index = source
    if not 0 <= index < min(len(keys), len(of)):
        raise ValueError("a source has no record at its index")
    key: int = keys[index]
    return key


class Cursor:
    """The iterator of `async for`: gives the records of one slice while a turn lasts, then calls `wait`.

    A record is taken only when the result of `__anext__` is awaited, so dropping or cancelling that loses no record.
    Only the task that opened the cursor gets its records; for any other task `wait` is called, unless the cursor
    `is_shared`.

    Attributes:
        wait: a function that returns an awaitable of the next record, and opens the cursor for the records after it.
        index: how many of the slice's records were given.
    """

    __slots__ = ("_is_shared", "_opener", "_records", "_turn_ends_ns", "index", "wait")

    def __init__(self, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._opener: object = None
        self.wait: Callable[[], Awaitable[Record[Any, Any]]]
        self.index = 0
        self._records: list[Record[Any, Any]] = []
        self._turn_ends_ns = 0

    def open(self, records: list[Record[Any, Any]], index: int, turn_ns: int) -> Record[Any, Any]:
        """Give `records` from `index` on: the first one now, however short the turn of `turn_ns` nanoseconds is."""
        if not 0 <= index < len(records):
            raise ValueError("there is no record at this index")
        self._records = records
        self._opener = _current_task()
        self.index = index + 1
        self._turn_ends_ns = time.monotonic_ns() + turn_ns
        return records[index]

    def close(self) -> None:
        """Give no more records; `index` stays."""
        self._records = []
        self._opener = None

    def take(self) -> Record[Any, Any] | None:
        """The next record of the turn, `None` when there is none."""
        if self.index >= len(self._records) or time.monotonic_ns() >= self._turn_ends_ns:
            return None
        record = self._records[self.index]
        self.index += 1
        return record

    def __aiter__(self) -> Cursor:
        return self

    def __anext__(self) -> Awaitable[Record[Any, Any]]:
        if self._is_shared or self._opener is _current_task():
            return self._next()
        return self.wait()

    async def _next(self) -> Record[Any, Any]:
        record = self.take()
        return record if record is not None else await self.wait()


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
