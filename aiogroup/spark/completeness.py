"""Checks that Spark read every record: counts records against offsets, and finds the gaps that must be explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiogroup.spark.access import Access
from aiogroup.spark.errors import IncompleteError, NotProcessedError
from aiogroup.spark.gaps import Gap
from aiogroup.spark.reading import SLICE, read_pieces
from aiogroup.spark.slices import Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Counted", "Watched"]

BUS_TIMEOUT_MS: Final = 60_000
MOST_GAPS: Final = 200
"""The greatest number of gaps that are looked at one by one, the longest first; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of records read from the pieces, and the longest `gaps` in their offsets, at most `MOST_GAPS`."""

    records: int
    gaps: tuple[tuple[Piece, Gap], ...]
    gap_count: int


class Watched:
    """The pieces as a DataFrame whose first action counts the records."""

    def __init__(self, spark: SparkSession, pieces: Sequence[Piece], access: Access, task_records: int) -> None:
        from pyspark.sql import Observation  # noqa: PLC0415 (an extra)
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        self._spark = spark
        self._pieces = pieces
        self._plain = read_pieces(spark, pieces, access, task_records)
        self._observation = Observation()
        self.frame: DataFrame = self._plain.observe(self._observation, F.count(F.lit(1)).alias("records"))

    def count(self, *, did_run: bool) -> Counted:
        """The count, once the records are processed.

        If the first action did not count one record for each offset, all pieces are read again to find the gaps.
        `did_run` says whether any Spark job ran meanwhile: Spark does not observe jobs on `DataFrame.rdd`.

        Raises:
            NotProcessedError: nothing was run on the DataFrame, or its first action did not read all of it.
            IncompleteError: there are more records than offsets.
        """
        expected = sum(map(len, self._pieces))
        observed = self._observed()
        if observed == expected:
            return Counted(observed, (), 0)
        if observed is None and not did_run:
            raise NotProcessedError("process returned without an action on its DataFrame: write it, or run foreach")
        counted = self._count_again()
        if counted.records > expected:
            raise IncompleteError(f"{counted.records} records came out of {expected} offsets: run the job again")
        if observed is not None and observed != counted.records:
            raise NotProcessedError(
                f"the first action of process read {observed} of {counted.records} records: let it be one over all of "
                "them (write, foreachPartition), without limit() or show() before"
            )
        return counted

    def _observed(self) -> int | None:
        """The count of the first action; `None` if Spark observed no action."""
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(BUS_TIMEOUT_MS)
        java = self._observation._jo  # its own `get` waits for ever if nothing was run
        return int(self._observation.get["records"]) if java is not None and java.future().isCompleted() else None

    def _count_again(self) -> Counted:
        from pyspark.sql import Window  # noqa: PLC0415 (an extra)
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        by_name = {piece.name: piece for piece in self._pieces}
        before = F.lag("offset").over(Window.partitionBy(SLICE).orderBy("offset"))
        seen = self._plain.select(SLICE, "offset", before.alias("before")).cache()
        try:
            found = seen.groupBy(SLICE).agg(F.count("*"), F.min("offset"), F.max("offset")).collect()
            holes = seen.where(F.col("offset") > F.col("before") + 1)
            hole_count = holes.count()
            longest = holes.orderBy((F.col("offset") - F.col("before")).desc()).limit(MOST_GAPS).collect()
        finally:
            seen.unpersist()
        gaps = [(by_name[name], Gap(before + 1, offset)) for name, offset, before in longest]
        edges = {name: (low, high) for name, _, low, high in found}
        for piece in self._pieces:
            low, high = edges.get(piece.name, (piece.end, piece.end - 1))
            gaps += [(piece, gap) for gap in (Gap(piece.start, low), Gap(high + 1, piece.end)) if len(gap)]
        extra = len(gaps) - len(longest)
        return Counted(sum(records for _, records, _, _ in found), tuple(gaps), hole_count + extra)
