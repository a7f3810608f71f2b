"""What the application receives: records, batches of records, and what each fetch answer said of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

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

Headers = Sequence[tuple[str, bytes | None]]


def _no_ack(record: Record) -> None:
    """Acknowledge nothing: the record belongs to no consumer (made by hand, or unpickled)."""


class Record:
    """One record, with the attributes of aiokafka's `ConsumerRecord` but `checksum`.

    `offset` is the record's place in its partition, `timestamp` milliseconds since the epoch, `timestamp_type`
    0 for the producer's time and 1 for the broker's. `key` and `value` are what the deserializers made of the
    bytes; `None` where the record has none (a tombstone has no value). `lane` says which of KIP-333's lanes
    delivered it.
    """

    __slots__ = ("_acknowledge", "_headers", "key", "offset", "timestamp", "timestamp_type", "tp", "value")

    lane: Final = LIVE

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: Any,  # noqa: ANN401 (whatever the deserializer returns)
        value: Any,  # noqa: ANN401
        headers: Headers,
        acknowledge: Callable[[Record], None] = _no_ack,
    ) -> None:
        self.tp = tp
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self._headers = headers
        self._acknowledge = acknowledge

    @property
    def topic(self) -> str:
        return self.tp[0]

    @property
    def partition(self) -> int:
        return self.tp[1]

    @property
    def topic_partition(self) -> TopicPartition:
        return self.tp

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """(name, value) pairs in the producer's order; a name may come twice, a value may be `None`."""
        return tuple(self._headers)

    @property
    def serialized_key_size(self) -> int:
        """Size of the key in bytes, -1 without one; only known when no deserializer replaced the bytes."""
        return len(self.key) if isinstance(self.key, bytes) else -1

    @property
    def serialized_value_size(self) -> int:
        """Size of the value in bytes, -1 without one; only known when no deserializer replaced the bytes."""
        return len(self.value) if isinstance(self.value, bytes) else -1

    def ack(self) -> None:
        """Mark the record as processed: its offset may be committed once all before it are processed too.

        May be called from any task of the consumer's loop, in any order, any number of times. After the partition
        was revoked it changes nothing.
        """
        self._acknowledge(self)

    def _values(self) -> tuple[Any, ...]:
        return (self.tp, self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.tp, self.offset))

    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]:
        return Record, self._values()

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r})"
        )


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
