"""The partitions that members held before: the bytes of Java's sticky assignors (KIP-54, KIP-341), and their owners."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from aiogroup.assignors.assignor import Held
from aiogroup.assignors.order import hash_order
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
NO_GENERATION: Final = -1


def write_held(held: Held) -> bytes:
    """`StickyAssignor`'s user data, version 1: partitions by topic, then the generation."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for tp in held.partitions:
        numbers[tp.topic].append(tp.partition)
    out = bytearray(INT32.pack(len(numbers)))
    for topic in hash_order(numbers, computed=True):
        name = topic.encode()
        out += INT16.pack(len(name)) + name
        out += struct.pack(f">{1 + len(numbers[topic])}i", len(numbers[topic]), *numbers[topic])
    return bytes(out + INT32.pack(held.generation))


def read_held(data: bytes | None) -> Held:
    """Read what `write_held` wrote, or version 0, which has no generation. Empty if the bytes are anything else."""
    if not data:
        return Held()
    try:
        tps, end = _read_partitions(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return Held()
    generation = INT32.unpack_from(data, end)[0] if len(data) >= end + INT32.size else NO_GENERATION
    return Held(tuple(tps), generation)


def _read_partitions(data: bytes) -> tuple[list[TopicPartition], int]:
    (topics_count,) = INT32.unpack_from(data)
    if topics_count < 0:
        raise ValueError(topics_count)
    at, tps = INT32.size, []
    for _ in range(topics_count):
        (length,) = INT16.unpack_from(data, at)
        at += INT16.size
        if not 0 <= length <= len(data) - at:
            raise ValueError(length)
        topic = data[at : at + length].decode()
        at += length
        (count,) = INT32.unpack_from(data, at)
        at += INT32.size
        if not 0 <= count <= (len(data) - at) // INT32.size:
            raise ValueError(count)
        tps += [TopicPartition(topic, number) for number in struct.unpack_from(f">{count}i", data, at)]
        at += count * INT32.size
    return tps, at


def write_generation(generation: int) -> bytes:
    """`CooperativeStickyAssignor`'s user data, for leaders before KIP-792, which read the generation only there."""
    return INT32.pack(generation)


def read_generation(data: bytes | None) -> int:
    return INT32.unpack_from(data)[0] if data and len(data) >= INT32.size else NO_GENERATION


class Claims:
    """The owner of each partition, among the members that claim to have held it.

    Of several claims the one of the newest generation counts. If two members claim a partition for the same generation,
    neither is its owner: one of them missed a rebalance without knowing.

    `owner` is the member whose claim counts, `former` the member with the newest claim of an older generation.
    """

    __slots__ = ("disputed", "former", "owner")

    def __init__(
        self, subscribed: Mapping[str, frozenset[str]], held: Mapping[str, Held], partitions: Mapping[str, int]
    ) -> None:
        self.owner: dict[TopicPartition, str] = {}
        self.former: dict[TopicPartition, str] = {}
        self.disputed: set[TopicPartition] = set()
        since: dict[TopicPartition, int] = {}
        former_since: dict[TopicPartition, int] = {}
        newest = max((each.generation for each in held.values()), default=NO_GENERATION)
        for member in hash_order(sorted(subscribed)):
            generation, topics = held[member].generation, subscribed[member]
            for tp in dict.fromkeys(held[member].partitions):
                if not 0 <= tp.partition < partitions.get(tp.topic, 0):
                    continue
                if generation > since.get(tp, NO_GENERATION - 1):
                    since[tp] = generation
                    self.owner[tp] = member
                    self.disputed.discard(tp)
                elif generation == since[tp]:
                    self.disputed.add(tp)
                if former_since.get(tp, NO_GENERATION - 1) < generation < newest and tp.topic in topics:
                    former_since[tp] = generation
                    self.former[tp] = member
        for tp in self.disputed:
            del self.owner[tp]
