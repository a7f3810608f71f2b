"""How far a job is: numbers for a callback, and the same as a line."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiogroup.recovery.ranges import Ranges
from aiogroup.spark.gaps import Missing
from aiogroup.spark.standing import Lagging
from aiogroup.structs import TopicPartition

__all__ = ["DrainReport", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """After a slice. What other drivers do of the same group is in `left_count`, and not in `done_count`.

    `done_count` and `left_count` are offsets, `range_count` the ranges that are left; `elapsed_ms` since the first was
    begun.
    """

    record_count: int
    done_count: int
    left_count: int
    range_count: int
    elapsed_ms: int

    @property
    def per_second(self) -> float:
        """Records."""
        return self.record_count * 1000 / max(1, self.elapsed_ms)

    @property
    def left_ms(self) -> int:
        """Until everything is done at the rate so far."""
        return self.left_count * self.elapsed_ms // max(1, self.done_count)

    def __str__(self) -> str:
        total_count = self.done_count + self.left_count
        return (
            f"{self.done_count:,} of {total_count:,} offsets done ({100 * self.done_count // max(1, total_count)} %), "
            f"{self.record_count:,} records, {self.per_second:,.0f}/s, {self.range_count} ranges left, "
            f"{self.left_ms // 1000} s left"
        )


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What a job did. `done` are the ranges that it committed into the second commit log, by partition.

    `record_count` came out of them, and `missing` says what Kafka has at the other offsets. `dropped_count` slices were
    processed and not committed, as the claim or the token's id had changed: somebody repeats them. `left_count` offsets
    are pending still, because there are fewer than `min_records` or other drivers have claimed them. `lagging` are
    partitions of which the group is behind without a token, so that no job can know what is left to it.
    """

    record_count: int = 0
    done: dict[TopicPartition, Ranges] = field(default_factory=dict)
    missing: Missing = field(default_factory=Missing)
    slice_count: int = 0
    dropped_count: int = 0
    left_count: int = 0
    elapsed_ms: int = 0
    lagging: dict[TopicPartition, Lagging] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Nothing of the group is pending any more, as far as the group says what is."""
        return self.left_count == 0 and not self.lagging
