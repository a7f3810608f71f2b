"""The orders in which Java's assignors go through members and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiogroup.assignors.assignor import MemberSubscription


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids as Java's AbstractPartitionAssignor.MemberInfo sorts them.

    Static members come first, by instance id, so that their share survives a new member id (KIP-345).
    """

    def rank(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, utf16(instance_id or ""), utf16(member_id)

    return sorted(members, key=rank)


def utf16(text: str) -> bytes:
    """The key by which Java compares strings: UTF-16 units, which differ from Python's order beyond U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")
