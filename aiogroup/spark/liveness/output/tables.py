"""The four tables as Parquet, by group and day (UTC). Each run replaces only the days for which it has rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from aiogroup.spark.liveness.advice import Findings, Proposal
from aiogroup.spark.liveness.counterfactuals import Counterfactual
from aiogroup.spark.liveness.episodes import Episode, Rebalance
from aiogroup.spark.liveness.reading import ms_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["TABLES", "day_of", "rows_of", "table", "write_tables"]

TABLES: Final[dict[str, type[NamedTuple]]] = {
    "episodes": Episode,
    "rebalances": Rebalance,
    "counterfactuals": Counterfactual,
    "advice": Proposal,
}
"""The tables by name, each with the class of its rows. The column `day` is added."""
PARTITIONS: Final = ("group", "day")


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d")


def rows_of(
    name: str, findings: Iterable[Findings], *, since: int | datetime | None = None, until: int | datetime | None = None
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table. A row about a whole window gets the day of the window's end.

    `since` and `until` bound the window. What began before it, or seems to by a corrected clock, gets the window's
    first day: a row of an earlier day would replace all that an earlier run has written for that day.
    """
    since_ms, until_ms = ms_of(since, "since"), ms_of(until, "until")
    first = "" if since_ms is None else day_of(since_ms)
    last = "9999" if until_ms is None else day_of(until_ms - 1)

    def day(at_ms: int) -> str:
        return min(max(day_of(at_ms), first), last)

    for found in findings:
        last_day = day(found.story.ended_at_ms)
        match name:
            case "episodes":
                yield from ((*each, day(each.started_at_ms)) for each in found.story.episodes)
            case "rebalances":
                yield from ((*each, day(each.started_at_ms)) for each in found.story.rebalances)
            case "counterfactuals":
                yield from ((*each, last_day) for each in found.counterfactuals)
            case _:
                yield from ((*each, last_day) for each in found.proposals)


def table(
    spark: SparkSession,
    name: str,
    findings: Iterable[Findings],
    *,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
) -> DataFrame:
    """One of `TABLES` as a DataFrame; `since` and `until` as in `rows_of`."""
    return spark.createDataFrame([*rows_of(name, findings, since=since, until=until)], _schema(TABLES[name]))


def write_tables(
    spark: SparkSession,
    path: str,
    findings: Iterable[Findings],
    *,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
) -> None:
    """Write all tables into folders below `path`; any file system of Spark will do.

    Give the `since` and `until` of the events, so that a run replaces no day before or behind them.
    """
    given = [*findings]
    for name in TABLES:
        writer = table(spark, name, given, since=since, until=until).repartition(*PARTITIONS).write.mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS).parquet(f"{path}/{name}")


def _schema(row: type[NamedTuple]) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415 (an extra)

    fields = [StructField(name, _type_of(hint)) for name, hint in get_type_hints(row).items()]
    return StructType([*fields, StructField("day", StringType())])


def _type_of(hint: Any) -> DataType:  # noqa: ANN401 (a type, or what `typing` makes of one)
    from pyspark.sql.types import BooleanType, LongType, MapType, StringType  # noqa: PLC0415 (an extra)

    if get_origin(hint) is UnionType:
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is dict:
        key, value = map(_type_of, get_args(hint))
        return MapType(key, value)
    return {bool: BooleanType, int: LongType, str: StringType}[hint]()
