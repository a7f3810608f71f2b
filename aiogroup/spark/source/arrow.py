"""The columns of the data source, and records as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from aiogroup._core.native import columns
from aiogroup.spark.source.ranges import Held, Read

if TYPE_CHECKING:
    from aiogroup._core.native.pure import Packed
    from aiogroup.records import Record

__all__ = ["COLUMNS", "HELD", "batch_of"]

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, slice string"
)
"""The columns of Spark's own Kafka source with headers, and the name of the range."""
HELD: Final = "held struct<offsets: bigint, records: bigint, control: bigint, aborted: bigint>"
"""With `with.held`: one row at the end of each part has only this, and all other rows have all but this."""

MOST_MS: Final = (2**63 - 1) // 1_000
"""The last time that Spark's microseconds reach, in the year 294247."""

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_HELD: Final = pa.struct([(name, pa.int64()) for name in ("offsets", "records", "control", "aborted")])
_TIME: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = (
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
    ("offset", pa.int64()), ("timestamp", _TIME), ("timestampType", pa.int32()), ("headers", _HEADERS),
    ("slice", pa.string()),
)  # fmt: skip
_SCHEMA: Final = pa.schema(_FIELDS)
_SCHEMA_WITH_HELD: Final = pa.schema([*_FIELDS, ("held", _HELD)])


def batch_of(read: Read, *, with_held: bool) -> pa.RecordBatch | None:
    """The rows of one read; `None` if it has none."""
    columns = _columns(read)
    if not with_held:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA) if read.records else None
    if read.held is None:
        return pa.RecordBatch.from_arrays([*columns, pa.nulls(len(read.records), _HELD)], schema=_SCHEMA_WITH_HELD)
    return pa.RecordBatch.from_arrays([*columns, _held(read.held)], schema=_SCHEMA_WITH_HELD)


def _columns(read: Read) -> list[pa.Array]:
    records, tp = read.records, read.part.tp
    if not records:
        return [pa.nulls(1, kind) for _, kind in _FIELDS]
    count = len(records)
    offsets, timestamps, kinds, has_headers, keys, values = columns(records)
    return [
        _binary(count, keys),
        _binary(count, values),
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.repeat(pa.scalar(tp.partition, pa.int32()), count),
        _numbers(count, offsets, pa.int64()),
        _times(_numbers(count, timestamps, pa.int64())),
        _numbers(count, kinds, pa.int32()),
        _headers(records) if has_headers else pa.nulls(count, _HEADERS),
        pa.repeat(pa.scalar(read.part.name, pa.string()), count),
    ]


def _numbers(count: int, data: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)


def _times(ms: pa.Array) -> pa.Array:
    """In microseconds, as Spark keeps times. A time that does not fit is null, as a producer's that writes nanoseconds:
    such a record is read, too.
    """
    fits = pc.and_(pc.greater_equal(ms, -MOST_MS), pc.less_equal(ms, MOST_MS))
    return pc.if_else(fits, ms, pa.scalar(None, pa.int64())).cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)


def _binary(count: int, packed: Packed) -> pa.Array:
    null_count, valid, ends, data = packed
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count)


def _headers(records: list[Record]) -> pa.Array:
    """The headers as in Spark's Kafka source: null if a record has none."""
    return pa.array(
        [[{"key": key, "value": value} for key, value in each.headers] or None for each in records], _HEADERS
    )


def _held(held: Held) -> pa.Array:
    return pa.array([dict(zip(("offsets", "records", "control", "aborted"), held, strict=True))], _HELD)
