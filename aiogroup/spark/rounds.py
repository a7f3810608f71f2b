"""What people see of a round while Spark works: the description of its jobs, and how many tasks have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from aiogroup._core.recovery.ranges import Range, join
from aiogroup._runtime.loop.clock import steady_ms
from aiogroup.spark.progress import RoundProgress
from aiogroup.spark.session import is_remote
from aiogroup.spark.slices import Slice
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["described", "telling"]

ASK_S: Final = 1.0
END_S: Final = 10.0
"""How long a round waits at its end for an unanswered question to Spark, or for a running callback."""
RUNS_MOST: Final = 5
"""If there are more runs of partitions, only the number of partitions is named."""


@contextmanager
def telling(
    spark: SparkSession,
    name: str,
    slices: Mapping[TopicPartition, Slice],
    tell: Callable[[RoundProgress], object] | None,
) -> Iterator[None]:
    """Call back with the number of ended tasks whenever it has changed.

    Over Spark Connect it cannot be asked, and nothing is reported.
    """
    if tell is None or is_remote(spark):
        yield
        return
    offsets_count = sum(map(len, slices.values()))
    ended, tasks = Event(), _Tasks(spark.sparkContext)
    thread = Thread(target=_tell, args=(tell, name, offsets_count, tasks, ended), name="aiogroup round", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_S)


def described(tps: Iterable[TopicPartition]) -> str:
    """The partitions in a few words, such as "orders 0-15, payments 3"."""
    parts = []
    for topic, of_topic in groupby(sorted(tps), key=lambda tp: tp.topic):
        runs = join(tuple(Range(tp.partition, tp.partition + 1) for tp in of_topic))
        names = [f"{run.start}" if run.end == run.start + 1 else f"{run.start}-{run.end - 1}" for run in runs]
        count = sum(run.end - run.start for run in runs)
        parts.append(f"{topic} {'+'.join(names)}" if len(runs) <= RUNS_MOST else f"{count} partitions of {topic}")
    return ", ".join(parts)


class _Tasks:
    """The tasks of all jobs that begin from now on and have the same job group as this thread (which may be none)."""

    def __init__(self, context: SparkContext) -> None:
        self._tracker, self._group = context.statusTracker(), context.getLocalProperty("spark.jobGroup.id")
        self._former = frozenset(self._job_ids())

    def _job_ids(self) -> list[int]:
        return self._tracker.getJobIdsForGroup(self._group)

    def counts(self) -> tuple[int, int]:
        """How many have ended, and how many there are."""
        jobs = [self._tracker.getJobInfo(job_id) for job_id in self._job_ids() if job_id not in self._former]
        stage_ids = {stage_id for job in jobs if job is not None for stage_id in job.stageIds}
        stages = [stage for stage in map(self._tracker.getStageInfo, stage_ids) if stage is not None]
        return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


def _tell(tell: Callable[[RoundProgress], object], name: str, offsets_count: int, tasks: _Tasks, ended: Event) -> None:
    began_at_ms, last = steady_ms(), (0, 0)
    while not ended.wait(ASK_S):
        try:
            counts = tasks.counts()
        except Exception:  # noqa: BLE001 (Py4J's, where Spark has ended: the round tells of that)
            return
        if counts[0] and counts != last:
            last = counts
            tell(RoundProgress(name, *counts, offsets_count, steady_ms() - began_at_ms))
