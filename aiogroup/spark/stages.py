"""Which partitions of an RDD were read by Spark's tasks, as Spark's own status store says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Stages"]

MOST_TASKS: Final = 1_000_000
ONE_TO_ONE: Final = frozenset(
    {"MapPartitionsRDD", "MapPartitionsWithEvaluatorRDD", "PythonRDD", "PairwiseRDD", "SQLExecutionRDD"}
)
"""The kinds of RDDs whose partitions are each made from the parent's partition of the same number."""


class Stages:
    """The stages of all jobs that begin after this was made, in whatever thread and job group."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()  # Java's
        self._first = self._jobs_count()

    @property
    def ran_any(self) -> bool:
        """Whether any job has run."""
        return self._jobs_count() > self._first

    def readings_of(self, rdd_id: int) -> Counter[int] | None:
        """How many tasks that read this RDD have succeeded, by task number; `None` if Spark has forgotten some.

        A task that went on after its job had failed is left out, because Spark does not add its counts.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

        readings: Counter[int] = Counter()
        store = self._context.statusStore()
        try:
            for stage in self._stages_with(rdd_id):
                for attempt in range(stage.attemptId() + 1):
                    tasks = _each(store.taskList(stage.stageId(), attempt, MOST_TASKS))
                    done = [task for task in tasks if task.status() == "SUCCESS"]
                    if attempt == stage.attemptId() and len(done) < stage.numCompleteTasks():
                        return None
                    ended = store.stageAttempt(stage.stageId(), attempt, False, None, False, None)._1().completionTime()
                    readings.update(task.partitionId() for task in done if not _is_after(task, ended))
        except Py4JJavaError:  # NoSuchElementException: there were more jobs than Spark remembers
            return None
        return readings

    def are_by_partition(self, rdd_id: int) -> bool:
        """Whether each task that reads this RDD reads the one partition that has its number.

        That is so if between the two there are only RDDs of `ONE_TO_ONE`, each with one parent: no coalesced RDD, no
        union.
        """
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

        try:
            return all(self._is_chain_from(rdd_id, stage.stageId()) for stage in self._stages_with(rdd_id))
        except Py4JJavaError:
            return False

    def _is_chain_from(self, rdd_id: int, stage_id: int) -> bool:
        graph = self._context.statusStore().operationGraphForStage(stage_id)
        edges, names = [(edge.fromId(), edge.toId()) for edge in _each(graph.edges())], _names(graph.rootCluster())
        parents_count = Counter(child for _, child in edges)
        while children := [child for parent, child in edges if parent == rdd_id]:
            rdd_id = children[0]
            if len(children) > 1 or parents_count[rdd_id] > 1 or names.get(rdd_id) not in ONE_TO_ONE:
                return False
        return True

    def _stages_with(self, rdd_id: int) -> list[Any]:
        store = self._context.statusStore()
        stage_ids = {
            stage_id
            for job_id in range(self._first, self._jobs_count())
            for stage_id in _each(store.job(job_id).stageIds())
        }
        stages = map(store.lastStageAttempt, stage_ids)
        return [stage for stage in stages if stage.rddIds().contains(rdd_id)]

    def _jobs_count(self) -> int:
        return int(self._context.dagScheduler().numTotalJobs())


def _is_after(task: Any, ended: Any) -> bool:  # noqa: ANN401 (Java's)
    """Whether the task ended after its stage."""
    lasted = task.duration().get() if task.duration().isDefined() else 0
    return bool(ended.isDefined() and task.launchTime().getTime() + lasted > ended.get().getTime())


def _names(cluster: Any) -> dict[int, str]:  # noqa: ANN401 (Java's)
    """The names of the RDDs in a cluster of Spark's operation graph, by id."""
    names = {node.id(): node.name() for node in _each(cluster.childNodes())}
    for inner in _each(cluster.childClusters()):
        names |= _names(inner)
    return names


def _each(sequence: Any) -> list[Any]:  # noqa: ANN401 (Scala's)
    return [sequence.apply(index) for index in range(sequence.size())]
