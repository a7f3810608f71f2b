"""The orders in which Java's assignors visit members and topics."""

from __future__ import annotations

from codecs import utf_16_be_encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiogroup.assignors.assignor import MemberSubscription


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids as Java's AbstractPartitionAssignor.MemberInfo sorts them.

    Static members come first, by instance id, so that their assignment survives a new member id (KIP-345).
    """

    def rank(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = members[member_id].instance_id
        return instance_id is None, utf16(instance_id or ""), utf16(member_id)

    return sorted(members, key=rank)


def utf16(text: str) -> bytes:
    """The key by which Java compares strings: by UTF-16 units, which differs from Python's order beyond U+FFFF."""
    return utf_16_be_encode(text, "surrogatepass")[0]


def hash_order(keys: Iterable[str], *, computed: bool = False) -> list[str]:
    """The keys in the order of a java.util.HashMap that got them in this order, by `put` or by `computeIfAbsent`.

    With `computed` it was `computeIfAbsent`, which puts a key before the others of its bucket, and which checks whether
    the table is full before it counts the key.

    The order decides, for example, which members may keep one partition more. It is Java's, so that no partition moves
    when the leader changes from one client to the other. Java makes trees of buckets with eight keys and more; member
    ids and topics do not fill buckets that far.
    """
    listed = list(keys)
    buckets = 16
    while (len(listed) - computed) * 4 > buckets * 3:
        buckets *= 2

    def bucket(key: str) -> int:
        units = utf16(key)
        value = 0
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(reversed(listed) if computed else listed, key=bucket)
