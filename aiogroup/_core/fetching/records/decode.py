"""Decodes the bytes that a Fetch answer holds for one partition into slices of records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aiogroup._core.fetching.records import batches
from aiogroup._core.fetching.records.batches import Batch, BatchError, LegacyBatch
from aiogroup._core.native import read_plain
from aiogroup._core.native.checksums import crc32c
from aiogroup._core.values import dataclass
from aiogroup.errors import RecordDeserializationError
from aiogroup.records import LIVE, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiogroup._core.fetching.records.batches import LegacyReader
    from aiogroup._core.native import Reader
    from aiogroup.structs import TopicPartition

__all__ = ["Acknowledge", "DecodeSettings", "PartitionDecoder", "PassedOver"]

Acknowledge: TypeAlias = Callable[[Record], None]
"""What `record.ack()` calls."""
Deserializer: TypeAlias = Callable[[bytes], Any]

SLICE_BYTES: Final = 1024 * 1024
SHORT_BYTES: Final = 16 * 1024
"""At most this many bytes may be read at once. If the attempt fails, they are read a second time."""
_OFFSET: Final = attrgetter("offset")
_NO_DATA = memoryview(b"")


class PassedOver(NamedTuple):
    """A batch of which no record is delivered: markers of transactions, or records of an aborted one."""

    tp: TopicPartition
    start: int
    end: int
    records_count: int
    is_control: bool

    def within(self, start: int, end: int) -> int:
        """How many of its records have offsets from `start` up to `end`, if they lie side by side."""
        return min(self.records_count, max(0, min(end, self.end) - max(start, self.start)))


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """What all partitions of a consumer share.

    A deserializer is not called for a key or value that is missing (as in Java's consumer, unlike aiokafka's).
    `max_batch_bytes` bounds a batch, compressed or not. A compressed batch larger than `inflate_inline_bytes`, or
    one that holds more than `inflated_inline_bytes`, is decompressed in a thread: see `PartitionDecoder.needs_inflate`.
    What is passed over is noted in `passed_over`, if it is a list: whoever gives one must empty it.
    """

    check_crcs: bool = True
    read_committed: bool = False
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    lane: str = LIVE
    max_batch_bytes: int = 128 * 1024 * 1024
    inflate_inline_bytes: int = 64 * 1024
    inflated_inline_bytes: int = 512 * 1024
    passed_over: list[PassedOver] | None = None

    @property
    def deserializes(self) -> bool:
        return self.key_deserializer is not None or self.value_deserializer is not None


@dataclass(frozen=True, slots=True)
class _Poison:
    """A record or batch that cannot be delivered. Its error is created again each time, since each raise of one error
    lengthens its traceback.

    `end` is the first offset after it. If only a deserializer refused the record, then `record`, `batch`, `reader` and
    `raw` (the records after it that were already read) are kept, and the decoder goes on with them when the record is
    skipped.
    """

    offset: int
    end: int
    message: str
    cause: Exception
    record: Record | None = None
    key: bytes | None = None
    value: bytes | None = None
    batch: Batch | LegacyBatch | None = None
    reader: Reader | LegacyReader | None = None
    raw: Sequence[Record] = ()

    def error(self, tp: TopicPartition, lane: str) -> RecordDeserializationError:
        headers, timestamp = ((), None) if self.record is None else (self.record.headers, self.record.timestamp)
        error = RecordDeserializationError(
            tp,
            self.offset,
            self.message,
            key=self.key,
            value=self.value,
            headers=headers,
            timestamp=timestamp,
            lane=lane,
        )
        error.__cause__ = self.cause
        return error


class PartitionDecoder:
    """The records of one partition in one Fetch answer, decoded when they are asked for.

    `aborted` is the answer's list of (producer id, first offset), read only under `read_committed`. Nothing is decoded
    before the first call, so a decoder costs little to make. Only one thread may use it at a time: while `inflate`
    runs, nothing else may be called.

    Attributes:
        next_offset: the position once everything returned so far is delivered. Control batches, aborted batches and
            offsets removed by compaction are passed over when no deliverable record stands before them.
        slice_bytes: the size of the last slice's records, estimated by the average of their batch.
        first_batch_bytes: the size of the first batch, 0 if it is not known.
        incomplete_batch_bytes: the size of the first batch if even that was cut off, and must be fetched with that
            size; otherwise 0.
    """

    __slots__ = (
        "_aborted", "_aborted_producers", "_acknowledge", "_batch", "_data", "_long", "_poison", "_pos", "_raw",
        "_reader", "_record_bytes", "_settings", "_tp", "_undelivered", "first_batch_bytes",
        "incomplete_batch_bytes", "next_offset",
        "slice_bytes",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        data: bytes | memoryview,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]],
        settings: DecodeSettings,
        acknowledge: Acknowledge,
    ) -> None:
        self.next_offset = fetch_offset
        self._tp = tp
        self._data = memoryview(data)
        self._settings = settings
        self._acknowledge = acknowledge
        # Sorted backwards: `pop` takes the one that begins next.
        self._aborted = sorted(aborted, key=lambda entry: entry[1], reverse=True) if aborted else []
        self._aborted_producers: set[int] = set()
        self._pos = 0
        self._batch: Batch | LegacyBatch | None = None
        self._long: Batch | LegacyBatch | None = None  # a batch of few bytes that unpacks to more than the bound
        self._reader: Reader | LegacyReader | None = None
        self._undelivered: list[Record] = []
        self._raw: Sequence[Record] = ()  # read but not deserialized: they stood after a skipped record
        self._poison: _Poison | None = None
        self.first_batch_bytes = self.incomplete_batch_bytes = self.slice_bytes = 0
        self._record_bytes = 1  # the average size of one record
        if self._data:
            try:
                self.first_batch_bytes = batches.frame_bytes(self._data, 0, settings.max_batch_bytes)
            except BatchError:
                return  # the first call finds it again, and raises it
            if self.first_batch_bytes > len(self._data):
                self.incomplete_batch_bytes = self.first_batch_bytes

    @property
    def size_bytes(self) -> int:
        """The memory held: the answer's bytes until the last batch is done, and the batch that is decompressed."""
        return self.fetched_bytes + self.inflated_bytes

    @property
    def poison_offset(self) -> int | None:
        """The offset at which decoding cannot go on, once all records before it are taken."""
        return None if self._poison is None else self._poison.offset

    @property
    def poison_end(self) -> int | None:
        """The first offset after what cannot be delivered: after one record, or after the rest of a damaged batch."""
        return None if self._poison is None else self._poison.end

    @property
    def fetched_bytes(self) -> int:
        return len(self._data)

    @property
    def inflated_bytes(self) -> int:
        batch = self._batch if self._poison is None else self._poison.batch
        return batch.inflated_bytes if batch is not None else 0

    @property
    def exhausted(self) -> bool:
        """Whether `next_slice` will return `None`."""
        if self._data and self._batch is None:
            self._find_batch()
        return self._batch is None and self._poison is None and not self._undelivered

    def read_at_once(self, max_records: int) -> list[Record]:
        """All records, if that takes a single call: at the head a piece mostly holds one plain record.

        Returns none, and leaves all to `next_slice`, if the piece is long or was begun, if anything about it is
        unusual, or if it holds more than `max_records`.
        """
        settings, self.slice_bytes = self._settings, len(self._data)
        is_begun = self._pos > 0 or not self.slice_bytes
        if is_begun or self.slice_bytes > SHORT_BYTES or self._aborted or settings.deserializes:
            return []
        read = read_plain(
            self._data,
            self.next_offset,
            max_records,
            (self._tp, 0, settings.lane, self._acknowledge),
            crc32c if settings.check_crcs else None,
            settings.read_committed,
        )
        if read is None:
            return []
        # No call from here on: Ctrl-C cannot come in between, and lose the records.
        records, self.next_offset = read
        self._data = _NO_DATA
        return records

    def needs_inflate(self) -> bool:
        """Whether the next step is a decompression long enough for a thread; `next_slice` would do it in place.

        A few bytes may unpack to many. So a batch of few bytes is decompressed here, up to a bound: only that tells
        whether it takes long.
        """
        if self._batch is None:
            self._find_batch()
        batch, settings = self._batch, self._settings
        if batch is None or not batch.packed_bytes:
            return False
        if batch is self._long or batch.packed_bytes > settings.inflate_inline_bytes:
            return True
        try:
            batch.inflate(min(settings.max_batch_bytes, settings.inflated_inline_bytes))
        except BatchError:  # it holds more, or is damaged, which `inflate` finds again
            self._long = batch
            return True
        return False

    def inflate(self) -> None:
        """Decompress the next batch. Raises nothing: `next_slice` raises the error of a damaged batch."""
        self._find_batch()
        if self._batch is None:
            return
        try:
            self._batch.inflate(self._settings.max_batch_bytes)
        except BatchError as error:
            self._poison_at(self._batch, error)

    def next_slice(self, max_records: int) -> list[Record] | None:
        """Return the next 1 to `max_records` records in offset order, `None` when there are no more.

        The slice ends early when its records take more than `SLICE_BYTES`.

        Raises:
            RecordDeserializationError: the next record, or the batch it would come from, cannot be delivered. All
                records before it were returned, `next_offset` stays on it, and each further call raises the error
                again.
        """
        if max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        taken = self._undelivered[:max_records]
        self._undelivered = self._undelivered[max_records:]
        self.slice_bytes = 0
        try:
            while len(taken) < max_records:
                if self._data and self._batch is None:
                    self._find_batch()
                if self._batch is None or (taken and (self.slice_bytes >= SLICE_BYTES or self.needs_inflate())):
                    break
                if self._reader is not None or self._open(self._batch):
                    self._take(max_records, taken)
            # Look ahead: otherwise the position would stop before a transaction's marker until the next request.
            if self._data and self._batch is None:
                self._find_batch()
        except BaseException:
            # Ctrl-C came in between: the position has passed these records, so they must be kept.
            self._reader, self._raw = None, ()
            self._undelivered = taken + self._undelivered
            raise
        if taken:
            return taken
        if self._poison is not None:
            raise self._poison.error(self._tp, self._settings.lane)
        return None

    def skip_to(self, offset: int) -> bool:
        """Go on at `offset`, forwards only. Returns False if the bytes must be fetched again from there.

        They must be fetched again at a poison record (its deserializer may have failed for a moment), after damage, and
        when the answer lists aborted transactions: only reading everything in between tells which of those have ended.
        """
        poison = self._poison
        if offset <= self.next_offset:
            return poison is None or offset < poison.offset
        batch_end = self._batch.next_offset if poison is None and self._batch is not None else self.next_offset
        if poison is not None:
            if poison.batch is None:
                return False
            batch_end = poison.batch.next_offset
        if offset > batch_end and (self._aborted or self._aborted_producers):
            return False
        if poison is not None:
            self._poison = None
            self._batch, self._reader, self._raw = poison.batch, poison.reader, poison.raw
        self.next_offset = offset
        self._raw = self._raw[bisect_left(self._raw, offset, key=_OFFSET) :]
        if self._reader is not None and self._reader.left <= 0 and not self._raw:
            self._finish(self._reader)
        if self._reader is None and self._batch is not None and self._batch.next_offset <= offset:
            self._pass(self._batch)
        self._undelivered = self._undelivered[bisect_left(self._undelivered, offset, key=_OFFSET) :]
        return True

    # Between batches.

    def _find_batch(self) -> None:
        """Go to the next batch with records to deliver. Afterwards there is such a batch, or poison, or the end of the
        bytes.
        """
        while self._batch is None and self._poison is None and self._data:
            try:
                size = batches.frame_bytes(self._data, self._pos, self._settings.max_batch_bytes)
                if size > len(self._data) - self._pos:  # the broker cuts its answer off at the requested size
                    self._data = _NO_DATA
                    return
                batch = batches.read_batch(self._data[self._pos : self._pos + size])
            except BatchError as error:
                self._poison_here(error.offset, None, str(error), error)
                return
            self._pos += size
            try:
                deliverable = self._is_deliverable(batch)
            except BatchError as error:
                end = self._end_of(batch)
                self._poison_here(error.offset, end, _damage(end, error), error)
                return
            if deliverable:
                self._batch = batch
            else:
                self._note_passed_over(batch)
                self._pass(batch)

    def _note_passed_over(self, batch: Batch | LegacyBatch) -> None:
        noted, start = self._settings.passed_over, max(batch.base_offset or 0, self.next_offset)
        if noted is not None and start < batch.next_offset and isinstance(batch, Batch):
            noted.append(PassedOver(self._tp, start, batch.next_offset, batch.records_count, batch.is_control))

    def _is_deliverable(self, batch: Batch | LegacyBatch) -> bool:
        if batch.next_offset <= self.next_offset and not (self._aborted or self._aborted_producers):
            return False  # it is skipped, so damage in it does not matter
        if self._settings.check_crcs and not batch.is_intact():
            raise BatchError("checksum is wrong", batch.base_offset)
        if self._settings.read_committed and self._is_aborted(batch):
            return False
        return not (batch.is_control or batch.is_empty) and batch.next_offset > self.next_offset

    def _is_aborted(self, batch: Batch | LegacyBatch) -> bool:
        """Whether the batch's transaction was aborted. As in Kafka's CompletedFetch an entry is valid from its first
        offset to the producer's abort marker.
        """
        while self._aborted and self._aborted[-1][1] < batch.next_offset:
            self._aborted_producers.add(self._aborted.pop()[0])
        if not batch.is_control:
            return batch.is_transactional and batch.producer_id in self._aborted_producers
        if batch.producer_id in self._aborted_producers:
            batch.inflate(self._settings.max_batch_bytes)
            if _ends_by_abort(batch):
                self._aborted_producers.discard(batch.producer_id)
        return False

    def _pass(self, batch: Batch | LegacyBatch | Reader | LegacyReader) -> None:
        """Nothing more comes from this batch: go past its end, and so past offsets that compaction removed."""
        self.next_offset = max(self.next_offset, batch.next_offset)
        self._batch = self._reader = None
        if self._pos >= len(self._data):
            self._data = _NO_DATA

    # Inside a batch.

    def _open(self, batch: Batch | LegacyBatch) -> bool:
        """Begin to decode the batch. Returns False if there is nothing to decode (the batch was passed, or is
        poison).
        """
        try:
            batch.inflate(self._settings.max_batch_bytes)
        except BatchError as error:
            self._poison_at(batch, error)
            return False
        self._reader = batch.reader(
            (self._tp, batch.timestamp_type, self._settings.lane, self._acknowledge),
            self._data[self._pos :],
            check=self._settings.check_crcs,
            committed=self._settings.read_committed,
        )
        if self._reader.left <= 0:
            self._finish(self._reader)
        else:
            self._record_bytes = 1 + batch.payload_bytes // self._reader.left
        return self._batch is not None

    def _take(self, max_records: int, out: list[Record]) -> None:
        """Append up to `max_records` to `out`, fewer if a poison record comes first, which is noted."""
        reader = self._reader
        assert reader is not None
        try:
            room_count = 1 + (SLICE_BYTES - self.slice_bytes) // self._record_bytes
            count = min(max_records - len(out), room_count)
            taken = self._take_raw(count) if self._raw else reader.read(count, self.next_offset)
        except ValueError as error:
            self._poison_at(reader, error)
            return
        if self._settings.deserializes:
            taken = self._deserialize(taken, reader)
        if taken:
            self.slice_bytes += len(taken) * self._record_bytes
            out += taken
            self.next_offset = taken[-1].offset + 1
        if self._poison is not None:
            self.next_offset = max(self.next_offset, self._poison.offset)
            self._batch = self._reader = None
        elif reader.left <= 0 and not self._raw:
            self._finish(reader)

    def _take_raw(self, count: int) -> list[Record]:
        records, self._raw = list(self._raw[:count]), self._raw[count:]
        return records

    def _deserialize(self, records: list[Record], reader: Reader | LegacyReader) -> list[Record]:
        """Deserialize keys and values in place. Returns only the records before the one whose deserializer raised,
        which is noted as poison.
        """
        settings = self._settings
        for index, record in enumerate(records):
            what, key, value = "key", record.key, record.value
            try:
                if key is not None and settings.key_deserializer is not None:
                    record.key = settings.key_deserializer(key)
                what = "value"
                if value is not None and settings.value_deserializer is not None:
                    record.value = settings.value_deserializer(value)
            except Exception as error:  # noqa: BLE001 (the application's code)
                # What it says often shows the record, and this message goes to logs and pages: it stays in the cause.
                message = f"the {what} deserializer raised {type(error).__name__}"
                raw = (*records[index + 1 :], *self._raw)
                self._raw = ()
                self._poison = _Poison(
                    record.offset, record.offset + 1, message, error, record, key, value, self._batch, reader, raw
                )
                return records[:index]
        return records

    def _finish(self, reader: Reader | LegacyReader) -> None:
        """All records are taken: check that no bytes are left over, then go past the batch and those that the reader
        also read.
        """
        try:
            reader.finish()
        except ValueError as error:
            self._poison_at(reader, error)
        else:
            self._pos += reader.passed
            self._pass(reader)

    # Poison.

    def _poison_at(self, batch: Batch | LegacyBatch | Reader | LegacyReader, error: Exception) -> None:
        self._poison_here(batch.base_offset, batch.next_offset, _damage(batch.next_offset, error), error)

    def _end_of(self, batch: Batch | LegacyBatch) -> int:
        """The first offset after a batch whose checksum is wrong, or an earlier one: then what is left of the batch is
        fetched, and found damaged, again.

        The header may be what is damaged. So the end that it names counts only up to where the next batch begins, or,
        if that is in another answer, up to as many offsets as it says that it has records.
        """
        at, ends = max(self.next_offset, batch.base_offset or 0), [batch.next_offset]
        if len(self._data) - self._pos >= batches.FRAME_BYTES:
            ends.append(batches.offset_at(self._data, self._pos))
        elif isinstance(batch, Batch):
            ends.append(batch.base_offset + batch.records_count)
        return min((end for end in ends if end > at), default=at + 1)

    def _poison_here(self, offset: int | None, end: int | None, message: str, cause: Exception) -> None:
        """Note damaged bytes: neither they nor the bytes after them in this piece are read."""
        self.next_offset = at = max(self.next_offset, offset or 0)
        self._poison = _Poison(at, at + 1 if end is None else max(at, end), message, cause)
        self._batch = self._reader = None
        self._data = _NO_DATA


def _damage(end: int, error: Exception) -> str:
    said = str(error) if isinstance(error, BatchError) else f"damaged record ({error})"
    return f"{said}; the batch ends at offset {end - 1}"


def _ends_by_abort(batch: Batch | LegacyBatch) -> bool:
    try:
        return batch.is_abort_marker()
    except Exception as error:
        raise BatchError(f"damaged control record ({error!r})", batch.base_offset) from error
