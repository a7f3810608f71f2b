"""What the application receives: records, batches of records, and what each fetch answer said of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

from aiogroup.native import Record

__all__ = [
    "LIVE",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "Record",
    "Records",
    "TopicPartition",
]

LIVE: Final = "live"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What the newest fetch answer said of a partition (KIP-695).

    `received_at_ms` is the consumer's clock (milliseconds, monotonic), `position` the next offset that could be
    delivered, `lag` the records between it and `end_offset`, `None` where not known.
    """

    received_at_ms: int
    position: int
    lag: int | None
    beginning_offset: int
    end_offset: int


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
