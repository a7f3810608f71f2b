"""Batches as a broker would send them, from aiokafka's builders and byte by byte."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import cramjam
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record._crecords.cutil import crc32c_cython
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiogroup._core.native import extent

PLAIN, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME = 0x10, 0x20, 0x08

ENCODE = {
    GZIP: gzip_encode,
    SNAPPY: snappy_encode,
    LZ4: lz4_encode,
    ZSTD: zstd_encode,
}


@dataclass
class Sent:
    """One record: offset, and what it carries."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = 0
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(data):
    return varint(-1) if data is None else varint(len(data)) + data


def record_bytes(record, base, first_timestamp):
    """A v2 record by the words of Kafka's DefaultRecord.java."""
    body = b"\x00" + varint(record.timestamp - first_timestamp) + varint(record.offset - base)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    body += b"".join(sized(key.encode()) + sized(value) for key, value in record.headers)
    return varint(len(body)) + body


def seal(frame):
    """Give a v2 batch the right length and checksum for its bytes."""
    frame = bytearray(frame)
    struct.pack_into(">i", frame, 8, len(frame) - 12)
    struct.pack_into(">I", frame, 17, crc32c_cython(bytes(frame[21:])))
    return bytes(frame)


def batch(
    records,
    *,
    base=None,
    last=None,
    codec=PLAIN,
    attributes=0,
    producer=-1,
    payload=None,
    max_timestamp=None,
    count=None,
):
    """A v2 batch of these records; `base` and `last` differ from theirs after compaction."""
    records = list(records)
    base = records[0].offset if base is None else base
    last = records[-1].offset if last is None else last
    first_timestamp = records[0].timestamp if records else -1
    newest = max((r.timestamp for r in records), default=-1) if max_timestamp is None else max_timestamp
    if payload is None:
        payload = b"".join(record_bytes(r, base, first_timestamp) for r in records)
        payload = bytes(ENCODE[codec](payload)) if codec else payload
    count = len(records) if count is None else count
    head = struct.pack(
        ">qiibIhiqqqhii", base, 0, 0, 2, 0, attributes | codec, last - base, first_timestamp, newest,
        producer, 0, 0, count,
    )  # fmt: skip
    return seal(head + payload)


def marker(offset, producer, *, abort):
    """A control batch that ends a transaction."""
    record = Sent(offset, key=struct.pack(">hh", 0, 0 if abort else 1), value=b"\0" * 6)
    return batch([record], attributes=CONTROL | TRANSACTIONAL, producer=producer)


def built(count, base=0, codec=PLAIN, value=b"v" * 100, epoch=-1):
    """A batch from aiokafka's own builder: keys k0, k1, ... The leader writes its epoch without a new checksum."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 26)
    for number in range(count):
        builder.append(number, 1000 + number, b"k%d" % number, value, [("h", b"x")])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


def epochs_of(data):
    return extent(data, 0)[1]


def message(offset, key, value, *, magic=1, attributes=0, timestamp=0, crc=None):
    """A message of format 0 or 1."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    crc = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def wrapper(last_offset, inner, codec, *, magic=1, attributes=0, timestamp=0):
    """A compressed set of messages, with the offset of its last one."""
    return message(
        last_offset,
        None,
        bytes(ENCODE[codec](inner)),
        magic=magic,
        attributes=attributes | codec,
        timestamp=timestamp,
    )


def bomb(codec, size_bytes):
    """A payload that decompresses to `size_bytes` zeros."""
    zeros = bytes(size_bytes)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(zeros))
    return bytes(ENCODE[codec](zeros))
