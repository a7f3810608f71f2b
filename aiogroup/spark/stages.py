"""Which partitions of an RDD were read by Spark's tasks, as Spark's own status store says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Stages"]

MOST_TASKS: Final = 1_000_000


class Stages:
    """The stages of all jobs that begin after this was made, in whatever thread and job group."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()  # Java's
        self._first = self._jobs_count()

    @property
    def ran_any(self) -> bool:
        """Whether there was any job."""
        return self._jobs_count() > self._first

    def readings_of(self, rdd_id: int) -> Counter[int] | None:
        """How many tasks have succeeded that read each partition of this RDD; `None` if Spark has forgotten some."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

        readings: Counter[int] = Counter()
        store = self._context.statusStore()
        try:
            stage_ids = {
                stage_id
                for job_id in range(self._first, self._jobs_count())
                for stage_id in _each(store.job(job_id).stageIds())
            }
            for stage_id in stage_ids:
                stage = store.lastStageAttempt(stage_id)
                if not stage.rddIds().contains(rdd_id):
                    continue
                for attempt in range(stage.attemptId() + 1):
                    tasks = _each(store.taskList(stage_id, attempt, MOST_TASKS))
                    partitions = [task.partitionId() for task in tasks if task.status() == "SUCCESS"]
                    if attempt == stage.attemptId() and len(partitions) < stage.numCompleteTasks():
                        return None
                    readings.update(partitions)
        except Py4JJavaError:  # NoSuchElementException: there were more jobs than Spark remembers
            return None
        return readings

    def _jobs_count(self) -> int:
        return int(self._context.dagScheduler().numTotalJobs())


def _each(sequence: Any) -> list[Any]:  # noqa: ANN401 (Scala's)
    return [sequence.apply(index) for index in range(sequence.size())]
