"""The attributes that spans and metrics share, by the semantic conventions for messaging 1.44."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aiogroup._core.telemetry.record_observer import Whose
    from aiogroup.records import Record
    from aiogroup.structs import TopicPartition

__all__ = ["CLIENT_ID", "GROUP", "PARTITION", "SCHEMA_URL", "TOPIC", "AttributesOfRecords", "attributes_of"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"


def attributes_of(name: str, kind: str, topics: Collection[str], whose: Whose) -> dict[str, Any]:
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        CLIENT_ID: whose.client_id,
    }
    if len(topics) == 1:
        attributes[TOPIC] = next(iter(topics))
    if whose.group_id is not None:
        attributes[GROUP] = whose.group_id
    if whose.cluster_id is not None:
        attributes["messaging.kafka.cluster.id"] = whose.cluster_id
    return attributes


class AttributesOfRecords:
    """What the processing of all records of a partition has in common: made once, and not to be changed."""

    def __init__(self) -> None:
        # Replaced as a whole, since consumers in other threads may have the same observer.
        self._last: tuple[Whose | None, dict[TopicPartition, dict[str, Any]]] = None, {}

    def of(self, record: Record, whose: Whose) -> dict[str, Any]:
        last, by_partition = self._last
        if whose is not last and whose != last:
            by_partition = {}
            self._last = whose, by_partition
        found = by_partition.get(record.tp)
        if found is None:
            found = attributes_of("process", "process", (record.topic,), whose)
            found[PARTITION] = str(record.partition)
            by_partition[record.tp] = found
        return found
