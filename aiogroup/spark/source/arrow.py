"""The columns of the data source, and records as Arrow batches.

Everything is made from buffers. `pa.array` and `pa.scalar` import pandas where it is installed, which takes each Python
worker two seconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from aiogroup._core.native import columns
from aiogroup._core.native.pure import packed
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

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(_HEADER)
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
    held = pa.nulls(len(read.records), _HELD) if read.held is None else _held(read.held)
    return pa.RecordBatch.from_arrays([*columns, held], schema=_SCHEMA_WITH_HELD)


def _columns(read: Read) -> list[pa.Array]:
    records, tp = read.records, read.part.tp
    if not records:
        return [pa.nulls(1, kind) for _, kind in _FIELDS]
    count = len(records)
    offsets, timestamps, kinds, has_headers, keys, values = columns(records)
    return [
        _packed(count, keys, pa.binary()),
        _packed(count, values, pa.binary()),
        _repeated(tp.topic, count),
        pa.repeat(_numbers([tp.partition], pa.int32())[0], count),
        _from_buffer(count, offsets, pa.int64()),
        _times(_from_buffer(count, timestamps, pa.int64())),
        _from_buffer(count, kinds, pa.int32()),
        _headers(records) if has_headers else pa.nulls(count, _HEADERS),
        _repeated(read.part.name, count),
    ]


def _from_buffer(count: int, data: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], 0)


def _numbers(numbers: Iterable[int], kind: pa.DataType) -> pa.Array:
    data = array({pa.int32(): "i", pa.int64(): "q"}[kind], numbers)
    return _from_buffer(len(data), data.tobytes(), kind)


def _packed(count: int, column: Packed, kind: pa.DataType) -> pa.Array:
    null_count, valid, ends, data = column
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, null_count)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(_packed(1, packed([text.encode()]), pa.string())[0], count)


_MOST_MS: Final = (2**63 - 1) // 1_000
"""The last time that Spark's microseconds reach, in the year 294247."""
_FIRST, _LAST = _numbers((-_MOST_MS, _MOST_MS), pa.int64())
_NO_TIME: Final = pa.nulls(1, pa.int64())[0]


def _times(ms: pa.Array) -> pa.Array:
    """In microseconds, as Spark keeps times. A time that does not fit is null, as a producer's that writes nanoseconds:
    such a record is read, too.
    """
    fits = pc.and_(pc.greater_equal(ms, _FIRST), pc.less_equal(ms, _LAST))
    return pc.if_else(fits, ms, _NO_TIME).cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)


def _headers(records: list[Record]) -> pa.Array:
    """The headers as in Spark's Kafka source: null if a record has none."""
    headers = [header for each in records for header in each.headers]
    keys = _packed(len(headers), packed([key.encode() for key, _ in headers]), pa.string())
    values = _packed(len(headers), packed([value for _, value in headers]), pa.binary())
    null_count, valid, _, _ = packed([b"" if each.headers else None for each in records])
    ends = array("i", accumulate((len(each.headers) for each in records), initial=0)).tobytes()
    return pa.Array.from_buffers(
        _HEADERS,
        len(records),
        [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends)],
        null_count,
        children=[pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))],
    )


def _held(held: Held) -> pa.Array:
    return pa.StructArray.from_arrays([_numbers([number], pa.int64()) for number in held], fields=list(_HELD))
