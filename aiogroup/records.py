"""The values that the application receives: records, batches of records, and the state of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiogroup._core.native import Record
from aiogroup._core.typed import K, V
from aiogroup._core.values import dataclass
from aiogroup.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

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
    """The state of a partition by its newest fetch answer (KIP-695).

    `received_at_ms` is when that answer came, in milliseconds of the event loop's monotonic clock. `position` is the
    next offset that could be delivered, `lag` the number of records between it and `end_offset` (under `read_committed`
    the last stable offset). A value is `None` if the answer did not contain it.
    """

    received_at_ms: int
    position: int
    lag: int | None
    beginning_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The number of records between a partition's position and its end, and the age of the knowledge of that end.

    `age_ms` counts from when a broker last said where the partition ends, or confirmed by a fetch answer that nothing
    is new. A value that is not known is `None`, never 0.
    """

    lag: int | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class Lag:
    """The result of `lag(detail=True)`: the lag of the live lane, of the catch-up lane (KIP-333), and of both.

    `catch_up` counts offsets of pending ranges, some of which may hold no record; it is 0 without
    `enable_parallel_rebalance`. `partitions` has the lag of each partition, of both lanes together.
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
    """The progress of a partition's catch-up lane (KIP-333): the pending `ranges` as (start, end), without the end.

    Counts are of offsets. `per_second` is the rate of the last ten seconds, `left_ms` the time that the remaining
    offsets take at that rate. A value that is not known yet is `None`, never 0.
    """

    ranges: tuple[tuple[int, int], ...]
    live: int
    done_count: int
    left_count: int
    per_second: float | None
    left_ms: int | None


class Records(Mapping[TopicPartition, list[Record[K, V]]]):
    """A batch: records by partition, each list in offset order. Iterating `records.all()` gives every record."""

    __slots__ = ("_by_partition", "_metadata")

    def __init__(
        self,
        by_partition: Mapping[TopicPartition, list[Record[K, V]]],
        metadata: Mapping[TopicPartition, PartitionMetadata],
    ) -> None:
        self._by_partition = by_partition
        self._metadata = metadata

    def __getitem__(self, tp: TopicPartition) -> list[Record[K, V]]:
        return self._by_partition[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    def __reduce__(self) -> tuple[Any, ...]:  # protocols 0 and 1 would not pickle a class with slots
        return type(self), (self._by_partition, self._metadata)

    def __repr__(self) -> str:
        counts = ", ".join(f"{tp.topic}-{tp.partition}: {len(of)}" for tp, of in self._by_partition.items())
        return f"Records({counts})"

    @property
    def count(self) -> int:
        """The number of records in the batch."""
        return sum(map(len, self._by_partition.values()))

    def all(self) -> Iterator[Record[K, V]]:
        """Iterate over all records, one partition after the other."""
        for records in self._by_partition.values():
            yield from records

    def metadata(self) -> Mapping[TopicPartition, PartitionMetadata]:
        """The state of each partition whose fetch answer this call has opened, also of those without records."""
        return self._metadata

    def ack(self) -> None:
        """Mark every record of the batch as processed."""
        for record in self.all():
            record.ack()
