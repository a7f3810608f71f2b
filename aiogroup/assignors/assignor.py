"""The arguments and the answer of an assignor. Derive from `Assignor` to write one of your own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks that hold a replica of each partition (KIP-881). Empty if no member, or no broker, names its rack."""


@dataclass(frozen=True, slots=True)
class Held:
    """The last assignment of a member and its generation (-1: nothing was ever assigned).

    An eager member has given the partitions up by the time it joins again, and may have lost them before. By the
    generation the leader tells which of two claims of a partition is the newer one.
    """

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription with which one member joined.

    `owned` are the partitions that it keeps while it joins (KIP-429), as of `generation` (KIP-792).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """Divides partitions among members. A class that derives from it needs only `name` and `assign`.

    Every member offers its assignors by name, and the group chooses one that all members offer. `assign` runs only in
    the leader, in a worker thread if there are many partitions. Its answer must depend on its arguments alone.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which members offer it, the same in all clients of the group."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join (KIP-429).

        A cooperative assignor gives no partition to a member while another one still owns it
        (`MemberSubscription.owned`): it first leaves the partition out for one round, in which the owner gives it up. A
        member is cooperative when all of its assignors are.
        """
        return False

    def subscription_user_data(self, topics: Iterable[str], held: Held) -> bytes | None:
        """The bytes that the leader will find in this member's `MemberSubscription.user_data`."""
        return None

    @abstractmethod
    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """Every member's partitions; a member that is left out gets none.

        `partitions` is the number of partitions of each topic; a topic that is not in it does not exist (yet).
        """


def topic_sets(members: Mapping[str, MemberSubscription]) -> dict[str, frozenset[str]]:
    """The topics of each member. Members with equal subscriptions share one set: there may be thousands of both."""
    known: dict[tuple[str, ...], frozenset[str]] = {}
    for each in members.values():
        if each.topics not in known:
            known[each.topics] = frozenset(each.topics)
    return {member: known[each.topics] for member, each in members.items()}


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether a member with these assignors keeps its partitions while it joins: only if all are cooperative."""
    return all(each.is_cooperative for each in assignors)
