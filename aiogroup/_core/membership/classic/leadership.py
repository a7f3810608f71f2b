"""Which topics the group's leader assigned, and whether its assignment still fits the metadata and the members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiogroup._core.cluster import UNKNOWN_TOPIC_OR_PARTITION, Cluster
from aiogroup.assignors import MemberSubscription, Racks
from aiogroup.structs import TopicPartition

__all__ = ["Leadership", "why_released", "why_unread", "withheld_by"]


class Leadership:
    """Whether this member leads the group, and the metadata from which the leader's assignment was made.

    The membership sets `is_leader` with each answer to JoinGroup, and when its generation ends.
    """

    def __init__(self) -> None:
        self.is_leader = False
        self._counts: Mapping[str, int] = {}
        self._racks: Racks = {}
        self._withheld: frozenset[TopicPartition] = frozenset()
        self._check_at_ms = 0

    def on_assigned(self, counts: Mapping[str, int], racks: Racks) -> None:
        """The assignment is made from these partition counts by topic, 0 for an unknown one, and from these racks."""
        self._counts, self._racks = counts, racks

    def on_adopted(self, *, leads: bool) -> None:
        """The round is decided: a member that does not lead it watches no metadata for the group."""
        if not leads:
            self._counts, self._racks = {}, {}

    def on_withheld(self, withheld: frozenset[TopicPartition], check_at_ms: int) -> None:
        """The assignment leaves out what its owners must give up first; by `check_at_ms` they should have done it."""
        self._withheld, self._check_at_ms = withheld, check_at_ms

    @property
    def check_at_ms(self) -> int | None:
        """When to look at the owners of what was withheld, if no round has begun by then. `None`: never."""
        return self._check_at_ms if self.is_leader and self._withheld else None

    def take_check(self, again_at_ms: int) -> frozenset[TopicPartition]:
        """The partitions to look at now; the next look is put off."""
        self._check_at_ms = again_at_ms
        return self._withheld

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
            return (
                f"replicas of {', '.join(sorted(moved))} moved to other racks, or brokers that hold them came or went"
            )
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


def why_unread(assigned: Collection[TopicPartition], counts: Mapping[str, int]) -> str | None:
    """The reason for another round when no partition is assigned of a topic that has some by these counts."""
    unread = {topic for topic, count in counts.items() if count} - {tp.topic for tp in assigned}
    return f"topics of a member that came back are read by nobody: {', '.join(sorted(unread))}" if unread else None


def withheld_by(
    assigned: Mapping[str, Iterable[TopicPartition]],
    members: Mapping[str, MemberSubscription],
    counts: Mapping[str, int],
) -> frozenset[TopicPartition]:
    """The partitions that a cooperative assignor gave to nobody, since members joined with a claim to them (KIP-429).

    A partition that nobody claims and that is left out all the same was left out on purpose. No round would change it.
    """
    claimed = {tp for each in members.values() for tp in each.owned if tp.partition < counts.get(tp.topic, 0)}
    return frozenset(claimed.difference(*assigned.values()))


def why_released(withheld: frozenset[TopicPartition], members: Iterable[MemberSubscription]) -> str | None:
    """The reason for another round when a partition that was withheld is claimed by no member any more.

    A static member that was to give partitions up may be replaced by a new process under its name. The coordinator
    then answers without a rebalance (KIP-345). The new process holds none of the partitions, so that it has nothing to
    give up and asks for no round. While a claim stands, another round would withhold the partition again, and would
    wait for its owner, who may be down.
    """
    released = withheld.difference(*(each.owned for each in members))
    if not released:
        return None
    topics = ", ".join(sorted({tp.topic for tp in released}))
    return f"partitions of {topics} were withheld from other members, and no member claims them any more"
