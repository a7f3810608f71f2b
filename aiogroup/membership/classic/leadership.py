"""Which topics the group's leader assigned, and whether its assignment still fits the metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiogroup.assignors import Racks
from aiogroup.cluster import UNKNOWN_TOPIC_OR_PARTITION, Cluster
from aiogroup.structs import TopicPartition

__all__ = ["Leadership"]


class Leadership:
    """Whether this member leads the group, and the metadata from which the leader's assignment was made.

    The membership sets `is_leader` with each answer to JoinGroup, and when its generation ends.
    """

    def __init__(self) -> None:
        self.is_leader = False
        self._counts: Mapping[str, int] = {}
        self._racks: Racks = {}

    def on_assigned(self, counts: Mapping[str, int], racks: Racks) -> None:
        """The assignment is made from these partition counts by topic, 0 for an unknown one, and from these racks."""
        self._counts, self._racks = counts, racks

    def on_adopted(self, *, leads: bool) -> None:
        """The round is decided: a member that does not lead it watches no metadata for the group."""
        if not leads:
            self._counts, self._racks = {}, {}

    @property
    def topics(self) -> frozenset[str]:
        """The topics that this leader assigned: it watches all of them, also those that only other members read."""
        return frozenset(self._counts) if self.is_leader else frozenset()

    def why_stale(self, cluster: Cluster) -> str | None:
        """The reason why the assignment that this leader made no longer fits the metadata; `None` while it fits."""
        if not self.is_leader or not self._counts:
            return None
        now = cluster.partition_counts(self._counts)
        for topic in self._counts.keys() - now.keys():
            if cluster.errors.get(topic) == UNKNOWN_TOPIC_OR_PARTITION:
                now[topic] = 0  # deleted; any other error says nothing about its partitions
        if grown := sorted(topic for topic, count in self._counts.items() if now.get(topic, count) != count):
            return f"partitions of {', '.join(grown)} changed"
        racks = cluster.partition_racks(self._counts) if self._racks else {}
        if moved := {tp.topic for tp, before in self._racks.items() if racks.get(tp, before) != before}:
            return f"replicas of {', '.join(sorted(moved))} moved to other racks"
        return None

    def why_unfit(self, assigned: Collection[TopicPartition]) -> str | None:
        """The reason for another round when `assigned`, those of all members together, are not the topics' partitions.

        A static leader that comes back keeps the assignment that it made before it went. Partitions that were added
        meanwhile are not in it, also where the topic was missing then; and partitions of a topic that was recreated
        with fewer are in it still. Java's leader compares later metadata with that which it finds when it comes back,
        and so leaves such a partition unread until the next rebalance.
        """
        orphaned = {
            topic
            for topic, count in self._counts.items()
            for number in range(count)
            if TopicPartition(topic, number) not in assigned
        }
        if orphaned:
            return f"partitions of {', '.join(sorted(orphaned))} are assigned to no member"
        # Nothing is known of a topic with the count 0.
        gone = {tp.topic for tp in assigned if 0 < self._counts.get(tp.topic, 0) <= tp.partition}
        return f"partitions of {', '.join(sorted(gone))} are assigned, and do not exist" if gone else None
