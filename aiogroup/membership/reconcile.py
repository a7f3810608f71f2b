"""What a rebalance did to our partitions: kept, added, revoked."""

from __future__ import annotations

from collections.abc import Iterable

from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = ["Change", "reconcile"]


@dataclass(frozen=True, slots=True)
class Change:
    """Every partition that was assigned before or is assigned now is in exactly one of the three sets."""

    kept: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]


def reconcile(owned: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> Change:
    """Compare the partitions that are held with those that the round assigned (ConsumerCoordinator.onJoinComplete).

    With the eager protocol none are held by then, so that all are added.
    """
    before, after = frozenset(owned), frozenset(assigned)
    return Change(kept=before & after, added=after - before, revoked=before - after)
