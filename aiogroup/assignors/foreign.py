"""Reads `partition_assignment_strategy`: names, objects of `Assignor`, and aiokafka's assignor classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from aiogroup.assignors import BY_NAME, Assignor, Held, MemberSubscription, Racks
from aiogroup.errors import ConfigError
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

_THEIRS: Final = "aiokafka.coordinator.assignors"
# aiokafka's first two ignore `group_instance_id`, so a leader that used them would move partitions of static members
# without need. The third knows no generations and shares its memory among all consumers of the process (aiokafka's
# issues 1175 and 1176).
_REPLACED: Final = {  # by name, since to import them takes longer than to import all of ours
    (f"{_THEIRS}.range", "RangePartitionAssignor"): "range",
    (f"{_THEIRS}.roundrobin", "RoundRobinPartitionAssignor"): "roundrobin",
    (f"{_THEIRS}.sticky.sticky_assignor", "StickyPartitionAssignor"): "sticky",
}


class ClusterView:
    """The part of aiokafka's `ClusterMetadata` that assignors read, with the metadata of this round."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = dict(partitions)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._partitions.get(topic)
        return None if count is None else set(range(count))

    available_partitions_for_topic = partitions_for_topic


class ForeignAssignor(Assignor):
    """An aiokafka assignor class as our `Assignor`.

    User data that the class puts into an assignment is not sent, and the class does not learn what was assigned.
    """

    name: str = ""

    def __init__(self, theirs: type[AbstractPartitionAssignor] | AbstractPartitionAssignor) -> None:
        name: object = theirs.name
        if not isinstance(name, str):
            raise ConfigError(f"partition_assignment_strategy: {theirs!r} has no name as a class; pass an object")
        self.name = name
        self._theirs = theirs

    def subscription_user_data(self, topics: Iterable[str], held: Held) -> bytes | None:
        return self._theirs.metadata(topics).user_data or None

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        metadata = {
            member: ConsumerProtocolMemberMetadata(0, list(subscription.topics), subscription.user_data or b"")
            for member, subscription in members.items()
        }
        answer = self._theirs.assign(ClusterView(partitions), metadata)  # type: ignore[arg-type]
        return {
            member: [TopicPartition(*pair) for pair in answer[member].partitions()] if member in answer else []
            for member in members
        }

    def __repr__(self) -> str:
        return f"ForeignAssignor({self._theirs!r})"


def resolve(strategy: object) -> tuple[Assignor, ...]:
    """The assignors of `partition_assignment_strategy`, the preferred first.

    Takes names, objects of classes that derive from `Assignor` (or have all of its members), and subclasses or objects
    of aiokafka's AbstractPartitionAssignor. aiokafka's own assignors are replaced by aiogroup's, which know static
    members and generations. A single assignor needs no list.

    Raises:
        ConfigError: none is named, one is unknown, one has a name that is no text, or a name is given twice.
    """
    is_one = isinstance(strategy, str) or not isinstance(strategy, Iterable)
    entries = (strategy,) if is_one else tuple(cast("Iterable[object]", strategy))
    assignors = tuple(map(_resolve_one, entries))
    names = [assignor.name for assignor in assignors]
    if not names:
        raise ConfigError(f"partition_assignment_strategy is empty: name at least one of {sorted(BY_NAME)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"partition_assignment_strategy names an assignor twice: {names}")
    return assignors


def _resolve_one(entry: object) -> Assignor:
    if isinstance(entry, str) and entry in BY_NAME:
        return BY_NAME[entry]
    kind = entry if isinstance(entry, type) else type(entry)
    if ours := _REPLACED.get((kind.__module__, kind.__qualname__)):
        return BY_NAME[ours]
    if issubclass(kind, AbstractPartitionAssignor):
        return ForeignAssignor(cast("type[AbstractPartitionAssignor]", entry))
    if isinstance(entry, type) and Assignor in entry.__mro__:
        name = entry.__name__
        raise ConfigError(f"partition_assignment_strategy: {name} is a class: pass an object, {name}()")
    if isinstance(entry, Assignor):
        if not isinstance(entry.name, str) or not entry.name:
            raise ConfigError(f"partition_assignment_strategy: the name of {entry!r} is {entry.name!r}, not a text")
        return entry
    raise ConfigError(
        f"partition_assignment_strategy: unknown assignor {entry!r}; known are {sorted(BY_NAME)}, objects "
        "of classes that derive from aiogroup.Assignor, and aiokafka's assignor classes"
    )
