"""What a rebalance did to our partitions: kept, added, revoked."""

from __future__ import annotations

from collections.abc import Iterable

from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = ["Change", "reconcile"]


@dataclass(frozen=True, slots=True)
class Change:
    """Every partition that was or is ours is in exactly one of the three."""

    kept: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]


def reconcile(owned: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> Change:
    """From what we hold to what the round gave us (ConsumerCoordinator.onJoinComplete).

    With the eager protocol nothing is held by then, and everything is added.
    """
    before, after = frozenset(owned), frozenset(assigned)
    return Change(kept=before & after, added=after - before, revoked=before - after)
