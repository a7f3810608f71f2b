"""The batches in the bytes of a Fetch answer: framing, headers, checksums. aiogroup._core.native decodes the records.

aiokafka's `MemoryRecords` assumes the format of the first batch for all of them, which is wrong after a topic's
upgrade. So the frame of each batch is read here.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from aiokafka.record.control_record import ABORT_MARKER, ControlRecord

from aiogroup._core.fetching.records.codecs import LZ4, CodecError, inflate, with_header_checksum
from aiogroup._core.native import Reader, Record
from aiogroup._core.native.checksums import crc32c
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiogroup._core.native.pure import Origin

_LAST_BASE_OFFSET: Final = 2**63 - 2**31 - 1
"""The highest base offset that is accepted: from a higher one, the next position might not fit into Kafka's 64 bits."""

_FRAME: Final = struct.Struct(">qi")  # base offset, length of what follows
FRAME_BYTES: Final = _FRAME.size
_MAGIC_OFFSET: Final = 16
_SMALLEST_LENGTH: Final = 14  # a v0 message without key and value, as Kafka's ByteBufferLogInputStream

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, first and max timestamp,
# producer id and epoch, base sequence, record count
_V2: Final = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM: Final = 21  # the attributes: the broker may change what stands before, so no checksum covers it

_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

_LEGACY: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")

_NO_ORIGIN: Final[Origin] = (TopicPartition("", 0), 0, "", None)


class BatchError(ValueError):
    """A batch is damaged. `offset` is the first offset that it may hold, `None` if that cannot be read."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


def frame_bytes(data: memoryview, pos: int, max_batch_bytes: int) -> int:
    """Size of the batch at `pos` with its frame. For a batch that is cut off before its length, the size of a header.

    Raises:
        BatchError: no batch has such a length.
    """
    if len(data) - pos < _FRAME.size:
        return _V2.size
    base_offset, length = _FRAME.unpack_from(data, pos)
    if length < _SMALLEST_LENGTH:
        raise BatchError(f"a batch cannot have {length} bytes", base_offset)
    if length > max_batch_bytes:
        why = f"the batch says that it has {length} bytes, more than max_batch_bytes={max_batch_bytes}"
        raise BatchError(why, base_offset)
    return _FRAME.size + int(length)


def offset_at(data: memoryview, pos: int) -> int:
    """The base offset of the batch at `pos`, of which `FRAME_BYTES` are there."""
    return int(_FRAME.unpack_from(data, pos)[0])


def read_batch(frame: memoryview) -> Batch | LegacyBatch:
    """The header of the batch that `frame` holds.

    Raises:
        BatchError: the header cannot be right.
    """
    magic = frame[_MAGIC_OFFSET]
    if magic == 2:
        return Batch(frame)
    if magic in (0, 1):
        return LegacyBatch(frame)
    raise BatchError(f"unknown record format (magic {magic})", _FRAME.unpack_from(frame)[0])


class Batch:
    """A v2 batch. Holds its bytes and nothing per record."""

    __slots__ = (
        "_crc", "_frame", "_payload", "base_offset", "codec", "inflated_bytes", "is_control", "is_empty",
        "is_transactional", "next_offset", "packed_bytes", "producer_id", "records_count", "timestamp_type",
    )  # fmt: skip

    def __init__(self, frame: memoryview) -> None:
        if len(frame) < _V2.size:
            raise BatchError(f"a batch cannot have {len(frame)} bytes", _FRAME.unpack_from(frame)[0])
        (
            self.base_offset, _length, _epoch, _magic, self._crc, attributes, last_delta, _first_ts, _max_ts,
            self.producer_id, _producer_epoch, _sequence, self.records_count,
        ) = _V2.unpack_from(frame)  # fmt: skip
        if not 0 <= self.base_offset <= _LAST_BASE_OFFSET or last_delta < 0:
            raise BatchError(f"offsets from {self.base_offset} with a last delta of {last_delta}")
        self.next_offset: int = self.base_offset + last_delta + 1
        self.codec: int = attributes & _CODEC_MASK
        self.timestamp_type = 1 if attributes & _LOG_APPEND_TIME else 0
        self.is_transactional = bool(attributes & _TRANSACTIONAL)
        self.is_control = bool(attributes & _CONTROL)
        # The cleaner keeps a producer's last batch as a bare header.
        self.is_empty = not self.records_count and len(frame) == _V2.size
        self.packed_bytes = len(frame) - _V2.size if self.codec else 0
        self.inflated_bytes = 0
        self._frame = frame  # a view: no copy
        self._payload: bytes | bytearray | memoryview = frame[_V2.size :]

    def is_intact(self) -> bool:
        """Whether the checksum is right. It covers the bytes as they were received, so call this before `inflate`."""
        return bool(crc32c(self._frame[_CHECKED_FROM:]) == self._crc)

    def inflate(self, max_bytes: int) -> None:
        """Decompress the batch, into at most `max_bytes`; nothing if it is not compressed.

        Raises:
            BatchError: the bytes cannot be decompressed within the limit.
        """
        if not self.packed_bytes:
            return
        try:
            payload = inflate(self.codec, self._frame[_V2.size :], max_bytes)
        except CodecError as error:
            raise BatchError(str(error), self.base_offset) from error
        self._frame = memoryview(bytes(self._frame[: _V2.size]))
        self._payload = payload
        self.packed_bytes = 0
        # The memory that is held, which may be up to twice the output: the decompressor's buffer has a guessed size.
        self.inflated_bytes = memoryview(payload.obj).nbytes if isinstance(payload, memoryview) else len(payload)

    @property
    def payload_bytes(self) -> int:
        return len(self._payload)

    def reader(self, origin: Origin, behind: memoryview | None = None, *, check: bool, committed: bool) -> Reader:
        """A reader of this batch's records and of those of the plain batches in `behind`. Call `inflate` first. Each
        call starts at the first record.
        """
        return Reader(self._frame[: _V2.size], self._payload, origin, behind, crc32c if check else None, committed)

    def is_abort_marker(self) -> bool:
        """Whether this control batch aborts a transaction; False for a control batch that compaction emptied.

        Raises ValueError for a damaged control record, struct.error for one without a type.
        """
        records = Reader(self._frame[: _V2.size], self._payload, _NO_ORIGIN).read(1, 0)
        return bool(records) and ControlRecord.parse(records[0].key or b"").type_ == ABORT_MARKER.type_


class LegacyBatch:
    """A message of format 0 or 1, or the compressed set of messages that it wraps.

    Decoded in Python: brokers have written nothing of this kind since Kafka 4.0.
    """

    __slots__ = (
        "_check_crcs", "_crc", "_frame", "_magic", "_messages", "_shift", "_timestamp", "_value",
        "base_offset", "codec", "inflated_bytes", "next_offset", "packed_bytes", "timestamp_type",
    )  # fmt: skip

    is_control: Final = False
    is_empty: Final = False
    is_transactional: Final = False
    producer_id: Final = -1

    def __init__(self, frame: memoryview) -> None:
        offset, _size, self._crc, self._magic, attributes = _LEGACY.unpack_from(frame)
        if not 0 <= offset <= _LAST_BASE_OFFSET:
            raise BatchError(f"offset {offset}")
        self.next_offset: int = offset + 1
        self.codec = attributes & _CODEC_MASK
        # A wrapper carries the offset of its last message; the offset of its first one is not known.
        self.base_offset: int | None = None if self.codec else offset
        self.timestamp_type = 1 if self._magic and attributes & _LOG_APPEND_TIME else 0
        self._timestamp, _key, value = _parse_message(frame, self._magic, self.base_offset)
        self._value = value
        self.packed_bytes = len(value or b"") if self.codec else 0
        self.inflated_bytes = 0
        self._frame = frame
        self._messages: list[memoryview] = [] if self.codec else [frame]
        self._shift = 0
        self._check_crcs = False

    def is_intact(self) -> bool:
        self._check_crcs = True
        return zlib.crc32(self._frame[_MAGIC_OFFSET:]) == int(self._crc)

    def is_abort_marker(self) -> bool:
        return False

    def inflate(self, max_bytes: int) -> None:
        if not self.codec or self._messages:
            return
        if self._value is None:
            raise BatchError("compressed message without a value")
        try:
            packed = memoryview(self._value)
            if self._magic == 0 and self.codec == LZ4:
                packed = with_header_checksum(packed)
            payload = memoryview(inflate(self.codec, packed, max_bytes))
        except CodecError as error:
            raise BatchError(str(error)) from error
        self._value = None
        self._messages = list(_split_message_set(payload, self._magic))
        if not self._messages:
            raise BatchError("compressed message without messages")
        if self._magic:  # offsets inside are relative (KIP-31); the wrapper has the last absolute one
            self._shift = self.next_offset - 1 - _INT64.unpack_from(self._messages[-1])[0]
        self.packed_bytes = 0
        # The memory that is held, which may be up to twice the output: the decompressor's buffer has a guessed size.
        self.inflated_bytes = memoryview(payload.obj).nbytes if isinstance(payload, memoryview) else len(payload)

    @property
    def payload_bytes(self) -> int:
        return self.inflated_bytes or len(self._frame)

    def reader(self, origin: Origin, behind: memoryview | None = None, **_: bool) -> LegacyReader:
        return LegacyReader(self._records(origin), len(self._messages), self.base_offset or 0, self.next_offset)

    def _records(self, origin: Origin) -> Iterator[Record]:
        tp, _, _, acknowledge = origin
        wrapped = bool(self.codec)
        for message in self._messages:
            offset, _size, crc, magic, attributes = _LEGACY.unpack_from(message)
            if wrapped and (attributes & _CODEC_MASK or magic != self._magic):
                raise BatchError("a compressed message holds another format or another compressed one")
            if wrapped and self._check_crcs and zlib.crc32(message[_MAGIC_OFFSET:]) != crc:
                raise BatchError("checksum of a message inside a compressed one is wrong")
            timestamp, key, value = _parse_message(message, magic, None)
            if self.timestamp_type:
                timestamp = self._timestamp
            yield Record(tp, offset + self._shift, timestamp, self.timestamp_type, key, value, (), acknowledge)


class LegacyReader:
    """Reads the records of a legacy batch, with the interface of aiogroup._core.native's Reader."""

    passed: Final = 0

    def __init__(self, records: Iterator[Record], count: int, base_offset: int, next_offset: int) -> None:
        self.left = count
        self.base_offset = base_offset
        self.next_offset = next_offset
        self._records = records
        self._damage: ValueError | None = None
        self._previous = -1

    def read(self, max_records: int, from_offset: int) -> list[Record]:
        records: list[Record] = []
        while self._damage is None and self.left > 0 and len(records) < max_records:
            try:
                record = next(self._records)
                if not self._previous < record.offset < self.next_offset:
                    raise BatchError("offsets are not in order")
            except ValueError as error:
                self._damage = error
                break
            self._previous = record.offset
            if record.offset >= from_offset:
                records.append(record)
            self.left -= 1
        if self._damage is not None and not records:
            raise self._damage
        return records

    def finish(self) -> None:
        """Nothing to check: the messages were split to the last byte."""


def _split_message_set(data: memoryview, magic: int) -> Iterator[memoryview]:
    pos = 0
    while pos < len(data):
        left = len(data) - pos
        length = _FRAME.unpack_from(data, pos)[1] if left >= _FRAME.size else 0
        if not _SMALLEST_LENGTH <= length <= left - _FRAME.size:
            raise BatchError(f"message of {length} bytes in a set with {left} left (format {magic})")
        yield data[pos : pos + _FRAME.size + length]
        pos += _FRAME.size + length


def _parse_message(message: memoryview, magic: int, offset: int | None) -> tuple[int, bytes | None, bytes | None]:
    """Timestamp (-1 in format 0), key and value; every length is checked against the message."""
    try:
        pos = _LEGACY.size
        timestamp = -1
        if magic:
            (timestamp,) = _INT64.unpack_from(message, pos)
            pos += _INT64.size
        key, pos = _parse_bytes(message, pos)
        value, pos = _parse_bytes(message, pos)
    except struct.error as error:
        raise BatchError("message is cut off", offset) from error
    if pos != len(message):
        raise BatchError("lengths of key and value contradict the message's", offset)
    return timestamp, key, value


def _parse_bytes(message: memoryview, pos: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(message, pos)
    pos += _INT32.size
    if length == -1:
        return None, pos
    if not 0 <= length <= len(message) - pos:
        raise struct.error(f"length {length}")
    return bytes(message[pos : pos + length]), pos + length
