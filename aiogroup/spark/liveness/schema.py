"""The schema of events in Spark, derived from the classes of the events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from aiogroup.eventlog.columns import Envelope, columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["CORRUPT", "DAMAGE", "FILE", "HISTOGRAMS", "UNKNOWN", "event_schema", "required"]

UNKNOWN: Final = "unknown"
"""The column with the fields that this version does not know, as text by name."""
CORRUPT: Final = "_corrupt"
"""The column with the beginning of a line that is no event, or with what a damaged file lacks; null for every event."""
FILE: Final = "_file"
"""The column with the file of such a line, or with the damaged file; null for every event, and for a topic."""
DAMAGE: Final = "_damage"
"""The column with what is wrong with a file. Such a row is about the file, and not a line."""
HISTOGRAMS: Final = "histograms"
"""The column that only samples have. It is looked for only in lines whose text has this word."""


def event_schema() -> StructType:
    """The columns of a line of the event log: those of `aiogroup.eventlog`, which says what each one means.

    Numbers are long, partitions text such as `orders-0`, ranges arrays of two numbers. What an event does not have is
    null.
    """
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 (an extra)

    return StructType([StructField(name, _type_of(kind)) for name, kind in columns().items()])


def required() -> list[str]:
    """The fields without which a line is no event: they identify its member and its place among the member's lines."""
    hints = get_type_hints(Envelope)
    return [name for name, hint in hints.items() if type(None) not in get_args(hint)]


def _type_of(kind: Any) -> DataType:  # noqa: ANN401 (a type, or what `typing` makes of one)
    from pyspark.sql.types import ArrayType, BooleanType, LongType, MapType, StringType  # noqa: PLC0415 (an extra)

    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        assert all(each in (first, Ellipsis) for each in others), kind
        return ArrayType(_type_of(first))
    if get_origin(kind) is Mapping:
        key, value = get_args(kind)
        return MapType(_type_of(key), _type_of(value))
    return {bool: BooleanType, int: LongType, str: StringType}[kind]()
