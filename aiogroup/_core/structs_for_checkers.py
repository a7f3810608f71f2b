"""Read by type checkers in place of the classes of `aiogroup/structs.py`. Nothing imports this at run time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

__all__ = ["ConsumerRebalanceListener", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic, by its number."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """The commit of a partition: the next offset to process, and a text of the application's own."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first offset whose record is not older than the given time, and the time of that record."""

    offset: int
    timestamp: int | None


class ConsumerRebalanceListener(ABC):
    """aiokafka's listener, whose callbacks may be async. `RebalanceListener` is aiogroup's own."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any: ...  # noqa: ANN401 (aiokafka leaves both open)

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any: ...  # noqa: ANN401 (aiokafka leaves both open)
