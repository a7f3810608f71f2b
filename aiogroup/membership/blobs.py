"""Subscriptions and assignments between our values and the bytes that members of any client exchange."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from aiokafka.structs import TopicPartition

from aiogroup.assignors import MemberSubscription
from aiogroup.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

__all__ = ["read_assignment", "read_subscription", "write_assignment", "write_subscription"]


def write_subscription(topics: Iterable[str], user_data: bytes | None, rack: str | None) -> bytes:
    """What we offer in JoinGroup. The eager protocol owns nothing while it joins."""
    return encode_subscription(Subscription(topics=tuple(sorted(topics)), user_data=user_data, rack_id=rack))


def read_subscription(blob: bytes, instance_id: str | None) -> MemberSubscription:
    """Raises ProtocolError: the bytes are no subscription."""
    read = decode_subscription(blob)
    return MemberSubscription(
        topics=tuple(read.topics),
        user_data=None if read.user_data is None else bytes(read.user_data),
        owned=_flat(read.owned_partitions),
        generation=read.generation_id,
        rack=read.rack_id,
        instance_id=instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append(tp.partition)
    return encode_assignment(
        Assignment(assigned_partitions=tuple(TopicPartitions(topic, tuple(each)) for topic, each in by_topic.items()))
    )


def read_assignment(blob: bytes) -> tuple[TopicPartition, ...]:
    """Raises ProtocolError: the bytes are no assignment."""
    return _flat(decode_assignment(blob).assigned_partitions)


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
