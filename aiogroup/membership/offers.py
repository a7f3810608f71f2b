"""The offers of a member in JoinGroup: its assignors, and for each the topics it reads and the partitions it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aiogroup.assignors import Assignor, Held
from aiogroup.membership.blobs import write_subscription
from aiogroup.structs import TopicPartition

__all__ = ["Holding", "Offers"]


class Holding(Protocol):
    """The partitions that are assigned now."""

    @property
    def names(self) -> frozenset[TopicPartition]: ...


class Offers:
    """Makes the offers of a member.

    `held` is the last assignment by the group, kept after it was given up or lost: sticky assignors ask for it.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None, holding: Holding) -> None:
        self.held = Held()
        self._assignors = assignors
        self._rack = rack
        self._holding = holding

    def of(self, topics: frozenset[str], claim: int) -> list[tuple[str, bytes]]:
        """Pairs of assignor name and subscription, the preferred first.

        A `claim` of 0 or above is the generation under which a cooperative member keeps its partitions while it joins.
        """
        last, owned = self.held, Held((), self.held.generation)
        if claim >= 0:
            last = owned = Held(tuple(self._holding.names), claim)
        return [
            (each.name, write_subscription(topics, each.subscription_user_data(topics, last), self._rack, owned))
            for each in self._assignors
        ]
