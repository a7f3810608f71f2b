"""ConsumerGroupDescribe (69).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID16,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)

if TYPE_CHECKING:
    from uuid import UUID


@structure
class TopicPartitions(Structure):
    """The assigned topic-partitions to the member."""

    topic_id: UUID = wire(UUID16)
    topic_name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class Assignment(Structure):
    """The current assignment."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))


@structure
class Member(Structure):
    """The members."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=0, default=None)
    assignment: Assignment = wire(Assignment)
    target_assignment: Assignment = wire(Assignment)
    member_type: int = wire(INT8, since=1, default=-1, ignorable=True)


@structure
class DescribedGroup(Structure):
    """Each described group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: tuple[Member, ...] = wire(array(Member))
    authorized_operations: int = wire(INT32, default=-2147483648)


@structure
class ConsumerGroupDescribeResponse(Response):
    """The answer to `ConsumerGroupDescribeRequest`."""

    throttle_time_ms: int = wire(INT32)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))


@structure
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Asks for groups of the consumer protocol (KIP-848)."""

    API_KEY = 69
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0
    RESPONSE = ConsumerGroupDescribeResponse

    group_ids: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOLEAN)
