"""Checks in a classic session that an action of the application has read every record."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from aiogroup.spark.errors import IncompleteError, NotProcessedError
from aiogroup.spark.readers import Counted, Reading
from aiogroup.spark.stages import Stages
from aiogroup.spark.watched import NO_ACTION, Watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["WatchedByListener"]

BUS_TIMEOUT_MS: Final = 60_000
LISTENER: Final = "org.apache.spark.sql.util.QueryExecutionListener"


class WatchedByListener(Watched):
    """`Watched` by means of Java's QueryExecutionListener, for which PySpark has no API."""

    def __init__(self, spark: SparkSession, reading: Reading, keep: str | None = None) -> None:
        super().__init__(spark, reading, keep)
        self._actions = _Actions(f"aiogroup-{uuid4().hex[:8]}")
        self._listener: Any = None  # Java's
        self.frame: DataFrame = reading.shown(reading.raw.observe(self._actions.name, *reading.metrics()))

    def __enter__(self) -> Self:
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

    @property
    def _listeners(self) -> Any:  # noqa: ANN401 (Java's)
        return self._spark._jsparkSession.listenerManager()

    def _hear_all(self) -> None:
        """Wait until Spark has reported all actions that have ended.

        Raises:
            IncompleteError: Spark does not report them in time.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

        try:
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(BUS_TIMEOUT_MS)
        except Py4JJavaError as error:
            raise IncompleteError(
                f"Spark has not told within {BUS_TIMEOUT_MS} ms what process has read, as another listener of this "
                "session holds it up: run the job again, without that listener"
            ) from error

    def count(self, kept: Counted | None) -> Counted:
        """See `Watched.count`. Unless one action read a unit for each offset, all pieces are read again to find the
        gaps.
        """
        reading = self._reading
        seen = max(map(reading.counted, self._actions.rows), key=attrgetter("units"), default=None)
        if kept is not None:
            if seen is None and kept.records and not self._stages.readings_of(self._kept_id()):
                raise NotProcessedError(NO_ACTION)
            return kept
        if seen is not None and seen.units == reading.units_count:
            return seen
        if seen is None and not self._stages.ran_any:
            raise NotProcessedError(NO_ACTION)
        by_rdd, again = self._seen_by_rdd()
        if by_rdd is not None and by_rdd.units == reading.units_count and not again:
            return by_rdd
        counted = self._counted_again()
        units = 0 if by_rdd is None else by_rdd.units
        most = max(0 if seen is None else seen.units, units - (self._most_in(again) if units >= counted.units else 0))
        if most < counted.units:
            raise NotProcessedError(
                self._too_few(most, counted) + "Spark does not tell what is read by Delta's MERGE, by a join that "
                "leaves nothing, by each of several actions on the DataFrame's rdd, by its rdd in a union or "
                "coalesced, or by rdd, foreach, foreachPartition or toLocalIterator of a DataFrame that was made of "
                'it: then give keep, for example keep="MEMORY_AND_DISK"'
            )
        return counted

    def _seen_by_rdd(self) -> tuple[Counted | None, Counter[int]]:
        """What was read by actions on the DataFrame's `rdd`, `foreach` and `toLocalIterator`.

        Spark does not report actions on an RDD. But an action on the RDD of this very DataFrame counts in the metrics
        of the DataFrame's own plan. Spark adds up all such actions, so the second result says how often each partition
        was read beyond the first time. For a union or a coalesced RDD that is not known, and nothing is counted.
        """
        execution = self.frame._jdf.queryExecution()
        row = self._actions.row_in(execution.observedMetrics())
        if row is None or not row[0]:
            return None, Counter()
        rdd_id = execution.toRdd().id()
        readings = self._stages.readings_of(rdd_id)
        if readings is None or not self._stages.are_by_partition(rdd_id):
            return None, Counter()
        return self._reading.counted(row), readings - Counter(readings.keys())

    def _most_in(self, again: Counter[int]) -> int:
        """An upper bound of the units that were read by repeated readings of a partition."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

        if not again:
            return 0
        by_partition = self._reading.raw.groupBy(F.spark_partition_id()).agg(self._reading.metrics()[0]).collect()
        sizes: dict[int, int] = dict(by_partition)
        return sum(number * sizes.get(partition, 0) for partition, number in again.items())

    def _kept_id(self) -> int:
        """The id of the RDD that Spark keeps."""
        kept = self._reading.raw._jdf.queryExecution().withCachedData()
        return int(kept.cacheBuilder().cachedColumnBuffers().id())


class _Actions:
    """The target of a QueryExecutionListener: collects the DataFrame's metrics of each action."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[tuple[int, ...]] = []

    def row_in(self, observed: Any) -> tuple[int, ...] | None:  # noqa: ANN401 (Java's)
        """The DataFrame's metrics in `observed`, if it has them."""
        if not observed.contains(self.name):
            return None
        row = observed.apply(self.name)
        return tuple(int(row.getLong(at)) for at in range(row.length()))

    def invoke(self, _proxy: object, method: Any, arguments: Any) -> object:  # noqa: ANN401 (Java's)
        called = method.getName()
        if called == "onSuccess":  # a failed action may have read anything
            row = self.row_in(arguments[1].observedMetrics())
            if row is not None:
                self.rows.append(row)
        # Java calls these on any object now and then. To unregister a listener Spark compares it with the earlier ones.
        # Comparing two Java objects here would call `equals` again, without end.
        if called == "equals":
            return str(arguments[0]) == self.name
        return {"hashCode": hash(self.name) % 2**31, "toString": self.name}.get(called)

    class Java:
        implements: Final = ["java.lang.reflect.InvocationHandler"]
