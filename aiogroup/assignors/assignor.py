"""What an assignor is told and what it answers: `Assignor` is the type to write one's own against."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks that hold a replica of each partition (KIP-881). Empty where no member, or no broker, tells its rack."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a member was assigned last, and in which generation (-1: nothing was ever assigned).

    An eager member has given the partitions up by the time it joins again, and may have lost them: the group will know
    which of two claims is the newer one by the generation.
    """

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member said when it joined.

    `owned` is what it still holds while it joins (KIP-429), since `generation` (KIP-792).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """Divides partitions among members. Derive from it, and `name` and `assign` are all that is left to write.

    Every member offers its assignors by name, and the group chooses one that all have. `assign` runs in the leader
    alone, in a worker thread when there is much to divide; its answer must depend on nothing but the arguments.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What members call it, also those of other clients."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join (KIP-429).

        It then gives no partition to a member while another one still owns it (`MemberSubscription.owned`): the owner
        gets a round without it first. A member is cooperative when all of its assignors are.
        """
        return False

    def subscription_user_data(self, topics: Iterable[str], held: Held) -> bytes | None:
        """What this member tells the leader when it joins: `MemberSubscription.user_data`."""
        return None

    @abstractmethod
    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """Every member's partitions; a member that is left out gets none.

        `partitions` is the number of partitions of each topic; a topic that is not in it has none (yet).
        """


def topic_sets(members: Mapping[str, MemberSubscription]) -> dict[str, frozenset[str]]:
    """What each member subscribed to; one set for all that said the same, since thousands may have said thousands."""
    known: dict[tuple[str, ...], frozenset[str]] = {}
    for each in members.values():
        if each.topics not in known:
            known[each.topics] = frozenset(each.topics)
    return {member: known[each.topics] for member, each in members.items()}


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether a member with these keeps its partitions while it joins: only if no assignor needs them given up."""
    return all(each.is_cooperative for each in assignors)
