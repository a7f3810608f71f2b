"""Partitions to take over and to give up: by a round of the group, or without a group all those of the topics."""

from __future__ import annotations

from collections.abc import Iterable, Set

from aiogroup._core.cluster import Cluster
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["AllOfTopics", "AssignmentChange", "Choice", "reconcile"]


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """Every partition that was assigned before or is assigned now is in exactly one of the three sets."""

    kept: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]


def reconcile(owned: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> AssignmentChange:
    """Compare the partitions that are held with those that the round assigned (ConsumerCoordinator.onJoinComplete).

    With the eager protocol none are held by then, so that all are added.
    """
    before, after = frozenset(owned), frozenset(assigned)
    return AssignmentChange(kept=before & after, added=after - before, revoked=before - after)


@dataclass(frozen=True, slots=True)
class Choice:
    """The partitions to read (`wanted`), and those of them that are younger than the subscription (`new`)."""

    wanted: frozenset[TopicPartition]
    new: frozenset[TopicPartition]


class AllOfTopics:
    def __init__(self) -> None:
        self._once_missing: set[str] = set()  # topics that did not exist when they were first looked for

    def choose(
        self,
        topics: frozenset[str],
        owned: frozenset[TopicPartition],
        cluster: Cluster,
        *,
        gone: Set[str] = frozenset(),
        appeared: Set[str] = frozenset(),
    ) -> Choice:
        """Choose among the partitions of `topics`.

        `gone` are topics that were deleted, `appeared` those that were made since they were subscribed to.
        """
        wanted = frozenset(tp for topic in topics for tp in cluster.partitions_of(topic))
        # A topic that this broker did not describe may still exist. If its partitions were given up, they would lose
        # their positions, and would be read again from the beginning.
        undescribed = topics - cluster.topics.keys() - gone
        wanted |= {tp for tp in owned if tp.topic in undescribed}
        known = {tp.topic for tp in owned} | self._once_missing | appeared
        self._once_missing |= {topic for topic in topics if cluster.lacks(topic)}
        return Choice(wanted, frozenset(tp for tp in wanted - owned if tp.topic in known))
