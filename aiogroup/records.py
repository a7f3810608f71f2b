"""What the application receives: records, batches of records, and what each fetch answer said of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aiogroup.native import Record
from aiogroup.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiogroup.values import dataclass

__all__ = [
    "CATCH_UP",
    "LIVE",
    "CatchUpProgress",
    "Lag",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionLag",
    "PartitionMetadata",
    "Record",
    "Records",
    "TopicPartition",
]

LIVE: Final = "live"
CATCH_UP: Final = "catch-up"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What the newest fetch answer said of a partition (KIP-695).

    `received_at_ms` is when that answer came, by the event loop's clock in milliseconds (monotonic), `position` the
    next offset that could be delivered, `lag` the records between it and `end_offset` (the last stable offset under
    `read_committed`). `None` where the answer did not say.
    """

    received_at_ms: int
    position: int
    lag: int | None
    beginning_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Records between a partition's position and its end, and how old the knowledge of that end is.

    `age_ms` counts from when a broker last told where the partition ends, or confirmed by a fetch answer that nothing
    is new. `None` where it is not known, never 0.
    """

    lag: int | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class Lag:
    """What `lag(detail=True)` measured: records in the live lane, in the catch-up lane (KIP-333), and together.

    `catch_up` counts offsets of pending ranges, of which not all need hold a record; it is 0 without
    `enable_parallel_rebalance`. `partitions` has each partition's part of both.
    """

    live: int
    catch_up: int
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def total(self) -> int:
        """`live` and `catch_up` together."""
        return self.live + self.catch_up


@dataclass(frozen=True, slots=True)
class CatchUpProgress:
    """How far the catch-up lane of a partition is (KIP-333): `ranges` are pending, as (start, end), end excluded.

    Counts are of offsets; `per_second` is of the last ten seconds, `left_ms` the time that the rest takes at that rate.
    `None` where it is not known yet, never 0.
    """

    ranges: tuple[tuple[int, int], ...]
    live: int
    done_count: int
    left_count: int
    per_second: float | None
    left_ms: int | None


class Records(Mapping[TopicPartition, list[Record]]):
    """A batch: records by partition, each list in offset order. Iterating `records.all()` gives every record."""

    __slots__ = ("_by_partition", "_metadata")

    def __init__(
        self,
        by_partition: Mapping[TopicPartition, list[Record]],
        metadata: Mapping[TopicPartition, PartitionMetadata],
    ) -> None:
        self._by_partition = by_partition
        self._metadata = metadata

    def __getitem__(self, tp: TopicPartition) -> list[Record]:
        return self._by_partition[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    def __repr__(self) -> str:
        counts = ", ".join(f"{tp.topic}-{tp.partition}: {len(of)}" for tp, of in self._by_partition.items())
        return f"Records({counts})"

    @property
    def count(self) -> int:
        """How many records the batch holds."""
        return sum(map(len, self._by_partition.values()))

    def all(self) -> Iterator[Record]:
        """Every record, partition after partition."""
        for records in self._by_partition.values():
            yield from records

    def metadata(self) -> Mapping[TopicPartition, PartitionMetadata]:
        """What the fetch answers opened by this poll said, also for partitions without records."""
        return self._metadata

    def ack(self) -> None:
        """Mark every record of the batch as processed."""
        for record in self.all():
            record.ack()
