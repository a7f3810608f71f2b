"""Checks that Spark read every record: counts records against offsets, and finds the gaps that must be explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from aiogroup.spark.access import Access
from aiogroup.spark.errors import IncompleteError, NotProcessedError
from aiogroup.spark.gaps import Gap
from aiogroup.spark.reading import SLICE, read_pieces
from aiogroup.spark.slices import Piece
from aiogroup.spark.stages import Stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Counted", "Watched"]

BUS_TIMEOUT_MS: Final = 60_000
LISTENER: Final = "org.apache.spark.sql.util.QueryExecutionListener"
NO_ACTION: Final = "process returned without an action on its DataFrame: write it, or run foreach"
MOST_GAPS: Final = 200
"""The greatest number of gaps that are looked at one by one, the longest first; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of records read from the pieces, and the longest `gaps` in their offsets, at most `MOST_GAPS`."""

    records: int
    gaps: tuple[tuple[Piece, Gap], ...]
    gap_count: int


class Watched:
    """The pieces as a DataFrame, `frame`, and what the actions that run inside `with watched:` read of it.

    With `keep`, the name of a storage level, the records are read once, kept by Spark, and counted before.

    Raises:
        IncompleteError: there are more records than offsets.
    """

    def __init__(
        self, spark: SparkSession, pieces: Sequence[Piece], access: Access, task_records: int, keep: str | None = None
    ) -> None:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)
        from pyspark.storagelevel import StorageLevel  # noqa: PLC0415 (an extra)

        self._spark = spark
        self._pieces = pieces
        self._plain = read_pieces(spark, pieces, access, task_records)
        self._level = None if keep is None else getattr(StorageLevel, keep)
        self._actions = _Actions(f"aiogroup-{uuid4().hex[:8]}")
        self._listener: Any = None  # Java's
        self.frame: DataFrame = self._plain.observe(self._actions.name, F.count(F.lit(1)).alias("records"))

    def __enter__(self) -> Watched:
        from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415 (an extra)

        context = self._spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        # Py4J makes a new Java object each time that it is given one of Python's, and Spark would not know the listener
        # again to unregister it. So the listener is Java's own, and only what it calls is Python's.
        jvm, gateway = context._jvm, context._gateway
        assert jvm is not None
        assert gateway is not None
        kind = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(LISTENER)
        kinds = gateway.new_array(jvm.java.lang.Class, 1)  # type: ignore[no-untyped-call]
        kinds[0] = kind
        self._listener = jvm.java.lang.reflect.Proxy.newProxyInstance(kind.getClassLoader(), kinds, self._actions)
        self._listeners.register(self._listener)
        self._stages = Stages(self._spark)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._hear_all()
        finally:
            self._listeners.unregister(self._listener)

    def forget(self) -> None:
        """Spark need not keep the records any more."""
        if self._level is not None:
            self._plain.unpersist()

    @property
    def _listeners(self) -> Any:  # noqa: ANN401 (Java's)
        return self._spark._jsparkSession.listenerManager()

    def _hear_all(self) -> None:
        """Wait until Spark has told of all actions that have ended.

        Raises:
            IncompleteError: it does not come to it.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

        try:
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(BUS_TIMEOUT_MS)
        except Py4JJavaError as error:
            raise IncompleteError(
                f"Spark has not told within {BUS_TIMEOUT_MS} ms what process has read, as another listener of this "
                "session holds it up: run the job again, without that listener"
            ) from error

    def kept(self) -> Counted | None:
        """The count of the records that are kept, which are read now; `None` without `keep`."""
        if self._level is None:
            return None
        self._plain.persist(self._level)
        return self._checked(self._count_again())

    def count(self, kept: Counted | None) -> Counted:
        """The count, once the records are processed. `kept` is what `kept()` gave.

        What counts is that one action has read each record of the DataFrame, whatever else was run. More than there are
        is no fault: Spark reads again what a lost executor had. Unless it was one record for each offset, all pieces
        are read again to find the gaps.

        Raises:
            NotProcessedError: nothing was run on the DataFrame, or no action read all of it.
            IncompleteError: there are more records than offsets.
        """
        seen = max(self._actions.counts, default=None)
        if kept is not None:
            if seen is None and kept.records and not self._stages.readings_of(self._kept_id()):
                raise NotProcessedError(NO_ACTION)
            return kept
        expected = sum(map(len, self._pieces))
        if seen == expected:
            return Counted(expected, (), 0)
        if seen is None and not self._stages.ran_any:
            raise NotProcessedError(NO_ACTION)
        by_rdd, again = self._seen_by_rdd()
        if by_rdd == expected and not again:
            return Counted(expected, (), 0)
        counted = self._checked(self._count_again())
        most = max(seen or 0, by_rdd - (self._most_in(again) if by_rdd >= counted.records else 0))
        if most < counted.records:
            raise NotProcessedError(
                f"no action of process is known to have read more than {max(0, most)} of the {counted.records} records "
                "of its DataFrame: let one be over all of them (write, foreachPartition). Spark does not tell what is "
                "read by Delta's MERGE, by a join that leaves nothing, by each of several actions on the DataFrame's "
                "rdd, by its rdd in a union or coalesced, or by rdd, foreach, foreachPartition or toLocalIterator of a "
                'DataFrame that was made of it: then give keep, for example keep="MEMORY_AND_DISK"'
            )
        return counted

    def _checked(self, counted: Counted) -> Counted:
        expected = sum(map(len, self._pieces))
        if counted.records > expected:
            raise IncompleteError(f"{counted.records} records came out of {expected} offsets: run the job again")
        return counted

    def _seen_by_rdd(self) -> tuple[int, Counter[int]]:
        """How many records were read by actions on the DataFrame's `rdd`, `foreach` and `toLocalIterator`.

        Spark reports no action on an RDD, but one on that of this very DataFrame counts in the DataFrame's own plan.
        It adds up all such actions, so the other number is how often each of its partitions was read once more. That is
        not known of a union or a coalesced RDD: then none counts.
        """
        execution = self.frame._jdf.queryExecution()
        observed = execution.observedMetrics()
        if not observed.contains(self._actions.name) or not (total := observed.apply(self._actions.name).getLong(0)):
            return 0, Counter()
        rdd_id = execution.toRdd().id()
        readings = self._stages.readings_of(rdd_id)
        if readings is None or not self._stages.are_by_partition(rdd_id):
            return 0, Counter()
        return total, readings - Counter(readings.keys())

    def _most_in(self, again: Counter[int]) -> int:
        """The most records that the tasks can have read which read a partition of the DataFrame once more."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        sizes: dict[int, int] = dict(self._plain.groupBy(F.spark_partition_id()).count().collect()) if again else {}
        return sum(number * sizes.get(partition, 0) for partition, number in again.items())

    def _kept_id(self) -> int:
        """The id of the RDD that Spark keeps."""
        kept = self._plain._jdf.queryExecution().withCachedData()
        return int(kept.cacheBuilder().cachedColumnBuffers().id())

    def _count_again(self) -> Counted:
        from pyspark.sql import Window  # noqa: PLC0415 (an extra)
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        by_name = {piece.name: piece for piece in self._pieces}
        before = F.lag("offset").over(Window.partitionBy(SLICE).orderBy("offset"))
        seen = self._plain.select(SLICE, "offset", before.alias("before"))
        try:
            seen.cache()
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


class _Actions:
    """What a QueryExecutionListener calls: how many records of the DataFrame each action has read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: list[int] = []

    def invoke(self, _proxy: object, method: Any, arguments: Any) -> object:  # noqa: ANN401 (Java's)
        called = method.getName()
        if called == "onSuccess":  # a failed action may have read anything
            observed = arguments[1].observedMetrics()
            if observed.contains(self.name):
                self.counts.append(int(observed.apply(self.name).getLong(0)))
        # Every Java object is asked for these now and then. Spark compares what it unregisters with the listeners that
        # are before it, and to compare two Java objects here would ask this again, without end.
        if called == "equals":
            return str(arguments[0]) == self.name
        return {"hashCode": hash(self.name) % 2**31, "toString": self.name}.get(called)

    class Java:
        implements: Final = ["java.lang.reflect.InvocationHandler"]
