"""When racks decide who gets a partition (KIP-881)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aiogroup.assignors.assignor import MemberSubscription, Racks

NOWHERE: Final[frozenset[str]] = frozenset()


def member_racks(members: Mapping[str, MemberSubscription]) -> dict[str, str]:
    """The racks of the members that named theirs."""
    return {member: each.rack for member, each in members.items() if each.rack}


def racks_matter(named: Collection[str], partitions: Mapping[str, int], racks: Racks) -> bool:
    """Whether a member in one of the racks has a replica nearby that another member does not have.

    It is not so if every rack that has any replica has one of each partition.
    """
    if not named or not racks:
        return False
    kinds = {racks.get(TopicPartition(topic, n), NOWHERE) for topic, count in partitions.items() for n in range(count)}
    return len(kinds) > 1 and not NOWHERE.union(*kinds).isdisjoint(named)
