"""Pieces as a DataFrame that also reports what their offsets hold.

It is made by `mapInArrow`, which reads in the same Python workers as a data source. But for a data source Spark starts
three more Python processes, one after the other, to look up its name, to ask for its columns, and to plan its tasks.
That is half a second for each action, and several seconds for the first one of a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiogroup.spark.access import Access
from aiogroup.spark.session import slots_of
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.partitions import read_task
from aiogroup.spark.source.tasks import Task, tasks_of
from aiogroup.spark.source.tasks import task_records as records_of_a_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["load"]


def load(
    spark: SparkSession,
    pieces: Sequence[Piece],
    access: Access,
    task_records: int | None,
    *,
    with_held: bool = True,
) -> DataFrame:
    """The records of these pieces; `with_held` also the rows that say what their offsets hold."""
    from aiogroup.spark.source.arrow import COLUMNS, HELD  # noqa: PLC0415 (pyarrow)

    tasks = tasks_of(pieces, task_records or records_of_a_task(sum(map(len, pieces)), slots_of(spark)))
    read = ReadPieces(access.for_executors(), tuple(tasks), with_held)
    numbers = spark.range(0, len(tasks), 1, len(tasks))  # one row for each task, in a partition of its own
    return numbers.mapInArrow(read, f"{COLUMNS}, {HELD}" if with_held else COLUMNS)


@dataclass(frozen=True, slots=True)
class ReadPieces:
    """What an executor calls with the number of its task. Spark's plans and pages show the name of this class and
    nothing that it holds: the properties have passwords.
    """

    access: Access
    tasks: tuple[Task, ...]
    with_held: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_task(self.access, self.tasks[number], with_held=self.with_held)
