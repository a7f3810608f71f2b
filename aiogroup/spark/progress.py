"""The progress of a job and of one round, as numbers for a callback and as a line of text; and the job's report."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiogroup._core.recovery.ranges import Ranges
from aiogroup.spark.gaps import Missing
from aiogroup.spark.isolation import Failed
from aiogroup.spark.standing import Lagging
from aiogroup.structs import TopicPartition

__all__ = ["DrainReport", "Progress", "RoundProgress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress after a round. The work of other drivers lowers `left_count`, but does not raise `done_count`.

    `done_count` and `left_count` are offsets, `range_count` the number of ranges that are left, and `elapsed_ms` the
    time since the job began. `waits_for` names the drivers that hold the remaining ranges, while this driver is idle.
    """

    record_count: int
    done_count: int
    left_count: int
    range_count: int
    elapsed_ms: int
    waits_for: tuple[str, ...] = ()

    @property
    def per_second(self) -> float:
        """Records per second."""
        return self.record_count * 1000 / max(1, self.elapsed_ms)

    @property
    def left_ms(self) -> int:
        """The time until everything is done, at the rate so far."""
        return self.left_count * self.elapsed_ms // max(1, self.done_count)

    def __str__(self) -> str:
        if self.waits_for:
            return f"{self.left_count:,} offsets left, waiting for {' and '.join(self.waits_for)}"
        total_count = self.done_count + self.left_count
        return (
            f"{self.done_count:,} of {total_count:,} offsets done ({100 * self.done_count // max(1, total_count)} %), "
            f"{self.record_count:,} records, {self.per_second:,.0f}/s, {self.range_count} ranges left, "
            f"{self.left_ms // 1000} s left"
        )


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """The progress within a round, called `name`, whose slices have `offsets_count` offsets; `elapsed_ms` is its time.

    `tasks_count` is the number of tasks that Spark knows of by now. It grows if `process` has several actions.
    """

    name: str
    tasks_done: int
    tasks_count: int
    offsets_count: int
    elapsed_ms: int

    @property
    def per_second(self) -> float:
        """Offsets per second, estimated from the share of tasks that have ended."""
        return self.offsets_count * self.tasks_done * 1000 / max(1, self.tasks_count * self.elapsed_ms)

    @property
    def left_ms(self) -> int:
        """The time until the tasks have ended, at the rate so far."""
        return (self.tasks_count - self.tasks_done) * self.elapsed_ms // max(1, self.tasks_done)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.tasks_done} of {self.tasks_count} tasks, about {self.per_second:,.0f} offsets/s, "
            f"{self.left_ms // 1000} s left"
        )


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The result of a job. `done` are the ranges that it committed into the second commit log, by partition.

    `record_count` is the number of their records, and `missing` counts the other offsets by their reason.
    `dropped_count` slices were processed but not committed, because the claim or the token's id had changed: a job
    repeats them, and the other slices of such a round are counted by their offsets. `left_count` offsets are still
    pending: because there are fewer than `min_records`, because other drivers have claimed them, or because `process`
    raised for them (then they are in `failed`). `lagging` has the partitions in which the group is behind without a
    token, so that no job can know which ranges are left to jobs.
    """

    record_count: int = 0
    done: dict[TopicPartition, Ranges] = field(default_factory=dict)
    missing: Missing = field(default_factory=Missing)
    slice_count: int = 0
    dropped_count: int = 0
    left_count: int = 0
    elapsed_ms: int = 0
    lagging: dict[TopicPartition, Lagging] = field(default_factory=dict)
    failed: tuple[Failed, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Nothing of the group is pending any more, and no partition lags without a token."""
        return self.left_count == 0 and not self.lagging
