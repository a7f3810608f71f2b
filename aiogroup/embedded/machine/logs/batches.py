"""Record batches of format 2: reads their headers and records, and builds new ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

if TYPE_CHECKING:
    from aiokafka.record._protocols import DefaultRecordProtocol

__all__ = [
    "HEADER_BYTES",
    "End",
    "Header",
    "Record",
    "UnreadableBatchError",
    "build",
    "end_of_transaction",
    "header_of",
    "is_intact",
    "marker",
    "read_records",
    "rebuilt",
    "recompressed",
    "records_of",
    "restamp",
    "seal",
    "stamp",
    "write_place",
]

_HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
OVERHEAD_BYTES = 12
"""The size of base offset and length. The length counts the bytes after it."""
CHECKED_FROM = 21
"""The checksum covers the bytes from here on: the attributes and all that follows."""

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

_BASE_OFFSET, _EPOCH, _CRC = Struct(">q"), Struct(">i"), Struct(">I")
_EPOCH_AT, _CRC_AT = 12, 17
_ATTRIBUTES, _LAST_DELTA, _TIMES, _PRODUCER = Struct(">h"), Struct(">i"), Struct(">qq"), Struct(">qhi")
_ATTRIBUTES_AT, _LAST_DELTA_AT, _TIMES_AT, _PRODUCER_AT = 21, 23, 27, 43

_MARKER_KEY, _MARKER_VALUE = Struct(">hh"), Struct(">hi")
"""Each begins with a version, which is 0; the key goes on with 0 for an abort and 1 for a commit."""

_UNLIMITED_BYTES = 0x7FFFFFFF


class UnreadableBatchError(Exception):
    """The records of a batch cannot be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.is_compression = not isinstance(error, CorruptRecordException)
        """Whether the records cannot even be decompressed."""


class Header(NamedTuple):
    """The fields before a batch's records, in the order of the bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


class End(NamedTuple):
    """How a transaction ended."""

    is_committed: bool
    coordinator_epoch: int


class Record(NamedTuple):
    """One record with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def header_of(batch: bytes | bytearray | memoryview) -> Header:
    return Header._make(_HEADER.unpack_from(batch))


def read_records(batch: bytes | bytearray | memoryview) -> list[DefaultRecordProtocol]:
    """The records of a batch, decompressed, as aiokafka's class.

    Raises:
        UnreadableBatchError: its bytes are no records, or its codec is not known.
    """
    try:
        return list(DefaultRecordBatch(batch))  # any buffer will do
    except Exception as error:  # decompressors raise exceptions of many kinds
        raise UnreadableBatchError(error) from error


def records_of(batch: bytes | bytearray | memoryview) -> list[Record]:
    """The records of a batch, decompressed.

    Raises:
        UnreadableBatchError: its bytes are no records, or its codec is not known.
    """
    return [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in read_records(batch)
    ]


def write_place(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Write the fields that a broker decides. Both lie before the bytes that the checksum covers."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, _EPOCH_AT, leader_epoch)


def seal(batch: bytearray) -> bytearray:
    """Compute and write the checksum."""
    with memoryview(batch) as view:
        _CRC.pack_into(batch, _CRC_AT, calc_crc32c(view[CHECKED_FROM:]))  # type: ignore[arg-type]
    return batch


def is_intact(batch: bytes | bytearray | memoryview, crc: int) -> bool:
    """Whether the checksum is that of the bytes."""
    with memoryview(batch) as view:
        return calc_crc32c(view[CHECKED_FROM:]) == crc  # type: ignore[arg-type]


def stamp(batch: bytearray, timestamp_ms: int) -> None:
    """Make the instant of the append the timestamp of all records (message.timestamp.type=LogAppendTime)."""
    _write_time(batch, LOG_APPEND_TIME, timestamp_ms)


def restamp(batch: bytearray, max_timestamp_ms: int) -> None:
    """Correct the header's greatest timestamp, as Kafka does if a client's header has a wrong one."""
    _write_time(batch, 0, max_timestamp_ms)


def _write_time(batch: bytearray, kind: int, max_timestamp_ms: int) -> None:
    attributes, *_ = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME | kind)
    base, _ = _TIMES.unpack_from(batch, _TIMES_AT)
    _TIMES.pack_into(batch, _TIMES_AT, base, max_timestamp_ms)
    seal(batch)


def build(
    records: Iterable[Record],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of `records`, whose offsets count from 0, with its checksum. There is at least one record."""
    made = DefaultRecordBatchBuilder(
        2, codec, int(is_transactional), producer_id, producer_epoch, base_sequence, _UNLIMITED_BYTES
    )
    for each in records:
        made.append(each.offset, each.timestamp_ms, each.key, each.value, list(each.headers))
    return bytearray(made.build())


def marker(end: End, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """The control batch that ends a transaction in one partition (Kafka: EndTransactionMarker)."""
    record = Record(
        0, timestamp_ms, _MARKER_KEY.pack(0, end.is_committed), _MARKER_VALUE.pack(0, end.coordinator_epoch)
    )
    batch = build([record], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)
    batch[_ATTRIBUTES_AT + 1] |= CONTROL
    return seal(batch)


def end_of_transaction(batch: bytes | bytearray | memoryview) -> End | None:
    """The content of a control batch; `None` if it is not the end of a transaction, or cannot be read."""
    try:
        ends = [(each.key or b"", each.value or b"") for each in read_records(batch)]
        _, kind = _MARKER_KEY.unpack_from(ends[0][0])
        _, epoch = _MARKER_VALUE.unpack_from(ends[0][1])
    except (UnreadableBatchError, IndexError, struct.error):
        return None
    return End(kind == 1, epoch) if kind in (0, 1) else None


def recompressed(batch: bytearray, codec: int) -> bytearray:
    """The same batch with another codec, as a broker makes it for a topic's compression.type."""
    with memoryview(batch) as view:
        made = rebuilt(view, lambda _record: True, codec=codec)
    assert made is not None
    return made


def rebuilt(
    batch: memoryview, keep: Callable[[Record], bool], *, last_offset: int | None = None, codec: int | None = None
) -> bytearray | None:
    """The batch with only the records to keep, as Kafka's cleaner makes it. They keep their offsets, and the batch
    keeps its base offset, its producer and its flags.

    Args:
        batch: a stored batch.
        keep: says which records stay.
        last_offset: the new last offset of the batch; by default the present one.
        codec: the new compression; by default the present one.

    Returns:
        the new batch, or `None` if no record stays.
    """
    header = header_of(batch)
    kept = [each._replace(offset=each.offset - header.base_offset) for each in records_of(batch) if keep(each)]
    if not kept:
        return None
    made = build(
        kept,
        codec=header.codec if codec is None else codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    write_place(made, header.base_offset, header.leader_epoch)
    attributes, *_ = _ATTRIBUTES.unpack_from(made, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(made, _ATTRIBUTES_AT, header.attributes & ~CODEC_MASK | attributes & CODEC_MASK)
    end = header.last_offset if last_offset is None else last_offset
    _LAST_DELTA.pack_into(made, _LAST_DELTA_AT, end - header.base_offset)
    return seal(made)
