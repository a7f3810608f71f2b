"""Subscriptions and assignments: our values to the bytes that the members of a group exchange, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from aiogroup.assignors import Held, MemberSubscription
from aiogroup.errors import ProtocolError
from aiogroup.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiogroup.structs import TopicPartition

__all__ = ["read_assignment", "read_subscription", "write_assignment", "write_subscription"]

NOTHING: Final = Held()


def write_subscription(
    topics: Iterable[str], user_data: bytes | None, rack: str | None, owned: Held = NOTHING
) -> bytes:
    """The subscription that this member sends in JoinGroup.

    `owned` are the partitions that the member keeps while it joins. An eager member has given all of them up by then.
    """
    return encode_subscription(
        Subscription(
            topics=tuple(sorted(topics)),
            user_data=user_data,
            owned_partitions=_by_topic(sorted(owned.partitions)),
            generation_id=owned.generation,
            rack_id=rack or None,
        )
    )


def read_subscription(blob: bytes, instance_id: str | None) -> MemberSubscription:
    """The subscription of a member.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    read = decode_subscription(blob)
    return MemberSubscription(
        topics=tuple(read.topics),
        user_data=None if read.user_data is None else bytes(read.user_data),
        owned=_flat(read.owned_partitions),
        generation=read.generation_id,
        rack=read.rack_id or None,
        instance_id=instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(Assignment(assigned_partitions=_by_topic(partitions)))


def read_assignment(blob: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment.

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    partitions = _flat(decode_assignment(blob).assigned_partitions)
    if nowhere := [tp for tp in partitions if not tp.topic or tp.partition < 0]:
        raise ProtocolError(f"an assignment of {nowhere[0]}, which cannot exist")
    return partitions


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        numbers[tp.topic].append(tp.partition)
    return tuple(TopicPartitions(topic, tuple(each)) for topic, each in numbers.items())


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
