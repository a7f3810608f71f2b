"""What an assignor is given, what it answers, and Java's order of members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokafka.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member said when it joined."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None


@runtime_checkable
class Assignor(Protocol):
    """Divides partitions among members; runs in the group's leader only.

    The answer depends on nothing but the arguments: every leader of a group must come to the same one.
    """

    @property
    def name(self) -> str:
        """What members of other clients call it: the group chooses by this name."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member sends along when it joins."""

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
    ) -> dict[str, list[TopicPartition]]:
        """Every member's partitions, also of those that get none.

        `partitions` is the number of partitions per topic; a topic that is not in it is ignored.
        """


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids as Java's AbstractPartitionAssignor.MemberInfo sorts them.

    Static members come first, by instance id, so that their share survives a new member id (KIP-345). Java
    compares UTF-16 units, which differs from Python's order beyond U+FFFF.
    """

    def rank(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, _utf16(instance_id or ""), _utf16(member_id)

    return sorted(members, key=rank)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
