"""The columns of the data source, and records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from aiogroup.spark.source.ranges import Held, Read

if TYPE_CHECKING:
    from aiogroup.records import Record

__all__ = ["COLUMNS", "HELD", "batch_of"]

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>, slice string"
)
"""Those of Spark's own Kafka source with headers, and the name of the range."""
HELD: Final = "held struct<offsets: bigint, records: bigint, control: bigint, aborted: bigint>"
"""With `with.held`: one row at the end of each part has only this, and all other rows have all but this."""

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


def _of(name: str) -> Callable[[Iterable[Record]], Iterator[object]]:
    get = attrgetter(name)
    return lambda records: map(get, records)


_KEY, _VALUE, _OFFSET, _TIMESTAMP, _KIND, _HEADERS_OF = map(
    _of, ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
)


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
    times = pa.array(list(_TIMESTAMP(records)), pa.int64())
    return [
        pa.array(list(_KEY(records)), pa.binary()),
        pa.array(list(_VALUE(records)), pa.binary()),
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.repeat(pa.scalar(tp.partition, pa.int32()), count),
        pa.array(list(_OFFSET(records)), pa.int64()),
        times.cast(pa.timestamp("ms", tz="UTC")).cast(_TIME),
        pa.array(list(_KIND(records)), pa.int32()),
        _headers(list(_HEADERS_OF(records))),
        pa.repeat(pa.scalar(read.part.name, pa.string()), count),
    ]


def _headers(of_records: list[object]) -> pa.Array:
    """As Spark's Kafka source has them: null where a record has none."""
    if not any(of_records):
        return pa.nulls(len(of_records), _HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in each] or None for each in of_records],  # type: ignore[attr-defined]
        _HEADERS,
    )


def _held(held: Held) -> pa.Array:
    return pa.array([dict(zip(("offsets", "records", "control", "aborted"), held, strict=True))], _HELD)
