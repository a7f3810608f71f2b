"""The data sources `aiogroup` and `aiogroup.pending` of Spark's Python Data Source API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aiogroup._core.recovery.ranges import above, count
from aiogroup.spark.errors import NotLeftToJobsError
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.options import Wanted
from aiogroup.spark.source.partitions import TaskOfSpark, plan, read
from aiogroup.spark.source.stream import RangesStream
from aiogroup.spark.standing import Standing, look_at_rest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["AiogroupDataSource", "PendingDataSource"]

PENDING_COLUMNS: Final = (
    "topic string, partition int, start bigint, end bigint, records bigint, log_start bigint, since timestamp"
)


class AiogroupDataSource(DataSource):
    """`spark.read.format("aiogroup")`: the records that a group has left to jobs, as they are when the first action of
    the DataFrame begins. `spark.readStream.format("aiogroup")`: the same as a stream, which claims the records' ranges
    and marks them as done.

    Register it with `spark.dataSource.register(AiogroupDataSource)`. The columns are those of Spark's own Kafka source
    with headers, and `slice`. The options are `group`, `topics` (with commas), `catchup.group`, `task.records`,
    `command.config` (a file of Java properties that the driver and each executor have) and those of a Kafka consumer,
    such as `bootstrap.servers`. aiogroup must be installed on the executors; no jar is needed.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "aiogroup"

    def schema(self) -> str:
        """The columns, as DDL."""
        from aiogroup.spark.source.arrow import COLUMNS  # noqa: PLC0415 (pyarrow)

        Wanted.of(self.options)  # a wrong option is refused before there is any action
        return COLUMNS

    def reader(self, schema: StructType) -> _RangesReader:
        """Spark calls this for each action, and from Spark 4.1 on for the first action of a DataFrame only."""
        return _RangesReader(Wanted.of(self.options))

    def streamReader(self, schema: StructType) -> RangesStream:  # noqa: N802 (Spark's name)
        """Spark calls this once for each run of a query, and for each task."""
        return RangesStream(Wanted.of(self.options))


class PendingDataSource(DataSource):
    """`spark.read.format("aiogroup.pending")`: the ranges themselves, a row each; the options are those of `aiogroup`.

    `records` counts the offsets that the log still holds. `since` is when the range was left to jobs, or when a job
    last worked on it.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "aiogroup.pending"

    def schema(self) -> str:
        """The columns, as DDL."""
        return PENDING_COLUMNS

    def reader(self, schema: StructType) -> _PendingReader:
        """Spark calls this for each action."""
        return _PendingReader(Wanted.of(self.options))


class _RangesReader(DataSourceReader):
    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        standing = _look(self._wanted)
        pieces = [Piece(tp, start, end) for tp, each in sorted(standing.items()) for start, end in each.readable]
        return plan(self._wanted, pieces, standing.isolation_level) or [TaskOfSpark((), None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._wanted, partition)


class _PendingReader(DataSourceReader):
    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for tp, each in sorted(_look(self._wanted).items()):
            handoff = each.token.handoff
            since = dict(zip(each.token.pending, () if handoff is None else handoff.since_s, strict=False))
            for left in each.ranges:
                whole = next(one for one in each.token.pending if one.start <= left.start < one.end)
                at = datetime.fromtimestamp(since[whole], UTC) if whole in since else None
                records = count(above((left,), each.log_start))
                yield (tp.topic, tp.partition, left.start, left.end, records, each.log_start, at)


def _look(wanted: Wanted) -> Standing:
    """What is pending.

    Raises:
        NotLeftToJobsError: the group is behind in a partition, and no token says what is left to jobs.
        AiogroupError: as `pending_ranges`.
    """
    with start_blocking_portal() as portal:
        standing = portal.call(look_at_rest, wanted.access())
    if standing.lagging:
        raise NotLeftToJobsError(standing.lagging.values())
    return standing
