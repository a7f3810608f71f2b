"""The two ways in which Spark reads pieces, by aiogroup's own data source or by Spark's Kafka connector, and how each
counts what an action has read.

The data source counts in offsets, since it knows what each offset holds. The connector counts in records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiogroup.spark.access import Access
from aiogroup.spark.gaps import Gap, Missing
from aiogroup.spark.reading import SLICE, Reader, read_pieces
from aiogroup.spark.slices import Piece

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Counted", "Reading", "reading_of"]

MOST_GAPS: Final = 200
"""The greatest number of gaps that are looked at one by one, the longest first; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of `records` read from the pieces, and of `units`: for the connector the records again, for the data
    source all offsets that were passed, with or without a record.

    `missing` counts what the other offsets hold, if that is known. Otherwise `gaps` has the longest gaps.
    """

    units: int
    records: int
    missing: Missing | None = None
    gaps: tuple[tuple[Piece, Gap], ...] = ()


class Reading(Protocol):
    """Some pieces as a DataFrame."""

    raw: DataFrame
    """Everything that is read."""
    units: str
    """The name of its units."""
    units_count: int
    """The greatest possible number of units."""
    names: tuple[str, ...]
    """The names of the metrics."""

    def metrics(self) -> list[Column]:
        """The metrics that are observed of `raw`; the units come first."""

    def shown(self, observed: DataFrame) -> DataFrame:
        """The part of `raw` that the application sees."""

    def counted(self, row: Any) -> Counted:  # noqa: ANN401 (a Row, of Python's or Java's)
        """The counts, from the metrics."""

    def count_again(self) -> Counted:
        """Read everything to count it."""


def reading_of(
    spark: SparkSession, pieces: Sequence[Piece], access: Access, task_records: int | None, reader: Reader
) -> Reading:
    """The pieces as a DataFrame of this reader. Nothing is read before an action."""
    if reader == "connector":
        return _ByConnector(spark, pieces, access, task_records)
    return _BySource(spark, pieces, access, task_records)


class _ByConnector:
    units = "records"
    names: tuple[str, ...] = ("records",)

    def __init__(self, spark: SparkSession, pieces: Sequence[Piece], access: Access, task_records: int | None) -> None:
        self.raw = read_pieces(spark, pieces, access, task_records)
        self.units_count = sum(map(len, pieces))
        self._pieces = pieces

    def metrics(self) -> list[Column]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        return [F.count(F.lit(1)).alias("records")]

    def shown(self, observed: DataFrame) -> DataFrame:
        return observed

    def counted(self, row: Any) -> Counted:  # noqa: ANN401 (a Row, of Python's or Java's)
        records = int(row[0])
        return Counted(records, records, Missing() if records == self.units_count else None)

    def count_again(self) -> Counted:
        from pyspark.sql import Window  # noqa: PLC0415 (an extra)
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        by_name = {piece.name: piece for piece in self._pieces}
        before = F.lag("offset").over(Window.partitionBy(SLICE).orderBy("offset"))
        seen = self.raw.select(SLICE, "offset", before.alias("before"))
        try:
            seen.cache()
            found = seen.groupBy(SLICE).agg(F.count("*"), F.min("offset"), F.max("offset")).collect()
            holes = seen.where(F.col("offset") > F.col("before") + 1)
            longest = holes.orderBy((F.col("offset") - F.col("before")).desc()).limit(MOST_GAPS).collect()
        finally:
            seen.unpersist()
        gaps = [(by_name[name], Gap(before + 1, offset)) for name, offset, before in longest]
        edges = {name: (low, high) for name, _, low, high in found}
        for piece in self._pieces:
            low, high = edges.get(piece.name, (piece.end, piece.end - 1))
            gaps += [(piece, gap) for gap in (Gap(piece.start, low), Gap(high + 1, piece.end)) if len(gap)]
        records = sum(records for _, records, _, _ in found)
        return Counted(records, records, None, tuple(gaps))


class _BySource:
    """The last row of each part of a task says what the part's offsets hold. So an action that has seen all these rows
    has read everything, and gaps need no second read.
    """

    units = "offsets"
    names: tuple[str, ...] = ("offsets", "records", "control", "aborted")

    def __init__(self, spark: SparkSession, pieces: Sequence[Piece], access: Access, task_records: int | None) -> None:
        from aiogroup.spark.source.frame import load  # noqa: PLC0415 (an extra)

        self.raw = load(spark, pieces, access, task_records)
        self.units_count = sum(map(len, pieces))

    def metrics(self) -> list[Column]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        return [F.coalesce(F.sum(f"held.{name}"), F.lit(0)).alias(name) for name in self.names]

    def shown(self, observed: DataFrame) -> DataFrame:
        return observed.where("held IS NULL").drop("held")

    def counted(self, row: Any) -> Counted:  # noqa: ANN401 (a Row, of Python's or Java's)
        offsets, records, control, aborted = (int(row[at]) for at in range(4))
        missing = Missing(
            control_count=control, aborted_count=aborted, compacted_count=offsets - records - control - aborted
        )
        return Counted(offsets, records, missing)

    def count_again(self) -> Counted:
        return self.counted(self.raw.agg(*self.metrics()).collect()[0])
