"""Tasks as Spark's input partitions: how a batch and a stream plan and read them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import InputPartition

from aiogroup.spark.access import Access
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.options import Wanted
from aiogroup.spark.source.ranges import RangeReader
from aiogroup.spark.source.tasks import Task, task_records, tasks_of
from aiogroup.spark.source.zips import forget_zips

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TaskOfSpark", "plan", "read", "read_task"]


class TaskOfSpark(InputPartition):
    """One task, and the isolation level if the options do not name it."""

    def __init__(self, task: Task, isolation_level: str | None) -> None:
        super().__init__(None)
        self.task = task
        self.isolation_level = isolation_level


def plan(wanted: Wanted, pieces: Collection[Piece], isolation_level: str | None) -> list[TaskOfSpark]:
    """The tasks that read these pieces."""
    forget_zips()
    most = wanted.task_records or task_records(sum(map(len, pieces)), os.cpu_count() or 1)
    return [TaskOfSpark(task, isolation_level) for task in tasks_of(pieces, most)]


def read(wanted: Wanted, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task, on an executor."""
    assert isinstance(partition, TaskOfSpark)
    return read_task(wanted.access(partition.isolation_level), partition.task, with_held=False)


def read_task(access: Access, task: Task, *, with_held: bool) -> Iterator[pa.RecordBatch]:
    """The rows of one task, on an executor. `with_held` adds a row with what each part held."""
    from aiogroup.spark.source.arrow import batch_of  # noqa: PLC0415 (pyarrow)

    if not task:
        return
    # The consumer has a thread of its own: it fetches and decodes while Spark takes what was read.
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(RangeReader(access.settings(), task)) as reader,
    ):
        while reads := portal.call(reader.next):
            for each in reads:
                batch = batch_of(each, with_held=with_held)
                if batch is not None:
                    yield batch
    forget_zips()
