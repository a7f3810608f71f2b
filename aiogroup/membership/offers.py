"""What a member offers the group in JoinGroup: its assignors, and for each what it reads and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiogroup.assignors import Assignor, Held
from aiogroup.membership.blobs import write_subscription
from aiogroup.structs import TopicPartition

__all__ = ["Holding", "Offers"]


class Holding(Protocol):
    """What is assigned now."""

    @property
    def names(self) -> frozenset[TopicPartition]: ...


class Offers:
    """`held` is what the group gave last, also after it was given up or lost: sticky assignors ask for it."""

    def __init__(self, assignors: Sequence[Assignor], rack: str | None, holding: Holding) -> None:
        self.held = Held()
        self._assignors = assignors
        self._rack = rack
        self._holding = holding

    def of(self, topics: frozenset[str], claim: int) -> list[tuple[str, bytes]]:
        """Assignor names and subscriptions, in order of preference.

        With a `claim`, a generation of 0 or above, it keeps its partitions as of that one while it joins (cooperative).
        """
        last, owned = self.held, Held((), self.held.generation)
        if claim >= 0:
            last = owned = Held(tuple(self._holding.names), claim)
        return [
            (each.name, write_subscription(topics, each.subscription_user_data(topics, last), self._rack, owned))
            for each in self._assignors
        ]
