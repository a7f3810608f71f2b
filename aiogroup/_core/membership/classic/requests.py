"""The requests of the classic protocol, made from a member's identity and settings.

They carry subscriptions and assignments as bytes, which the members of a group exchange whatever their client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from aiogroup._core.membership.classic.forms import StaticForm
from aiogroup._core.membership.identity import Identity
from aiogroup._core.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.assignors import Assignor, Held, MemberSubscription
from aiogroup.structs import TopicPartition

__all__ = [
    "Holding",
    "Offers",
    "join_request",
    "leave_request",
    "read_subscription",
    "sync_request",
    "write_assignment",
    "write_subscription",
]

REASON_LENGTH: Final = 255
"""Longer reasons are cut before they are sent (KIP-800)."""
NOTHING: Final = Held()


def join_request(
    who: Identity, form: StaticForm, rebalance_timeout_ms: int, subscriptions: Iterable[tuple[str, bytes]], why: str
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=who.group_id,
        session_timeout_ms=form.announced_session[1],
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=blob) for name, blob in subscriptions),
        reason=why[:REASON_LENGTH],
        registration_timeout_ms=form.registration_timeout_ms,
        expansion_timeout_ms=form.expansion_timeout_ms,
    )


def sync_request(who: Identity, assignor: str, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=who.group_id,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=blob) for member, blob in assignments.items()
        ),
    )


def leave_request(who: Identity, why: str, *, even_static: bool) -> LeaveGroupRequest | None:
    """LeaveGroup; `None` for a member that is in no group, or that keeps its static name."""
    if not who.member_id or (who.is_static and not even_static):
        return None
    member = MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id, reason=why)
    return LeaveGroupRequest(group_id=who.group_id, members=(member,))


# The offers of a member in JoinGroup.


class Holding(Protocol):
    """The partitions that are assigned now."""

    @property
    def names(self) -> frozenset[TopicPartition]: ...


class Offers:
    """Makes the offers of a member.

    `last_held` is the last assignment by the group, kept after it was given up or lost: sticky assignors ask for it.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str | None, holding: Holding) -> None:
        self.last_held = Held()
        self._assignors = assignors
        self._rack = rack
        self._holding = holding

    def of(self, topics: frozenset[str], claim: int) -> list[tuple[str, bytes]]:
        """Pairs of assignor name and subscription, the preferred first.

        A `claim` of 0 or above is the generation under which a cooperative member keeps its partitions while it joins.
        """
        last, owned = self.last_held, Held((), self.last_held.generation)
        if claim >= 0:
            last = owned = Held(tuple(self._holding.names), claim)
        return [
            (each.name, write_subscription(topics, each.subscription_user_data(topics, last), self._rack, owned))
            for each in self._assignors
        ]


# The bytes in JoinGroup and SyncGroup.


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


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        numbers[tp.topic].append(tp.partition)
    return tuple(TopicPartitions(topic, tuple(each)) for topic, each in numbers.items())


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
