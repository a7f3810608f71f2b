"""The cluster's brokers, topics and leaders, as immutable snapshots made from Metadata answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final
from uuid import UUID

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["Broker", "Cluster", "PartitionInfo", "TopicInfo"]

UNKNOWN_TOPIC_OR_PARTITION: Final = 3


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's leader and replicas. `leader` is -1 while there is none, `leader_epoch` -1 if it is not known."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionInfo]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot. `errors` holds the code of each topic that the broker would not describe.

    `is_of_all`: the last answer was about all topics; a topic that it does not name does not exist, or may not be seen.
    """

    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str | None = None
    is_of_all: bool = False

    def leader(self, tp: TopicPartition) -> int:
        """The leader's node id, -1 when it is not known."""
        info = self.partition(tp)
        return -1 if info is None else info.leader

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def topic_id(self, topic: str) -> UUID | None:
        """The topic's id: a former topic of the same name had another. `None` for brokers before Kafka 2.8."""
        info = self.topics.get(topic)
        return None if info is None or info.topic_id.int == 0 else info.topic_id

    def partitions_of(self, topic: str) -> frozenset[TopicPartition]:
        info = self.topics.get(topic)
        return frozenset() if info is None else frozenset(TopicPartition(topic, each) for each in info.partitions)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each known topic."""
        return {topic: len(self.topics[topic].partitions) for topic in topics if topic in self.topics}

    def partition_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks of the brokers that hold each partition; empty if no broker named its rack.

        Replicas that are out of sync count too, as in KIP-881: they will be in sync again before the next rebalance.
        Those of a broker that is gone do not, since nobody tells its rack.
        """
        racks = {node: broker.rack for node, broker in self.brokers.items() if broker.rack}
        if not racks:
            return {}
        return {
            TopicPartition(topic, number): frozenset(racks[node] for node in info.replicas if node in racks)
            for topic in topics
            if topic in self.topics
            for number, info in self.topics[topic].partitions.items()
        }

    def lacks(self, topic: str) -> bool:
        """The last answer says that there is no such topic. A broker with old metadata says so too."""
        is_unnamed = self.is_of_all and topic not in self.topics and topic not in self.errors
        return is_unnamed or self.errors.get(topic) == UNKNOWN_TOPIC_OR_PARTITION

    def updated(self, newer: Cluster) -> Cluster:
        """This snapshot updated by a newer one; a leader of an older epoch never replaces a newer one (KIP-320)."""
        topics = {} if newer.is_of_all else dict(self.topics)
        for name in newer.errors:
            topics.pop(name, None)
        for name, info in newer.topics.items():
            topics[name] = _merge(self.topics.get(name), info)
        return dataclasses.replace(
            newer, topics=topics, errors=dict(newer.errors), cluster_id=newer.cluster_id or self.cluster_id
        )


def _merge(old: TopicInfo | None, new: TopicInfo) -> TopicInfo:
    if old is None or old.topic_id != new.topic_id:
        return new
    partitions = {
        number: known
        if (known := old.partitions.get(number)) is not None and known.leader_epoch > info.leader_epoch >= 0
        else info
        for number, info in new.partitions.items()
    }
    return dataclasses.replace(new, partitions=partitions)
