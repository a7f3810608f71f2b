"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69)."""

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

NOT_ASKED = -(1 << 31)
"""In place of the operations that a client may do, if it did not ask for them."""


@structure
class TopicPartitions(Structure):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class Assignment(Structure):
    """What a member is to hold."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))


@structure
class ConsumerGroupHeartbeatResponse(Response):
    """The member's epoch and, where it has changed, its assignment."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    member_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: Assignment | None = wire(Assignment, nullable=0, default=None)


@structure
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """Joins (epoch 0), stays in, or leaves (-1, -2 for a static member) a group; null: as it was before."""

    API_KEY = 68
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0
    RESPONSE = ConsumerGroupHeartbeatResponse

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = wire(STRING, since=1, nullable=1, default=None)
    server_assignor: str | None = wire(STRING, nullable=0, default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(array(TopicPartitions), nullable=0, default=None)


@structure
class DescribedPartitions(Structure):
    """Partitions of one topic, which is named too."""

    topic_id: UUID = wire(UUID16)
    topic_name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class DescribedAssignment(Structure):
    """What a member holds."""

    topic_partitions: tuple[DescribedPartitions, ...] = wire(array(DescribedPartitions))


@structure
class DescribedMember(Structure):
    """One member; `member_type` is 0 for the classic protocol, 1 for this one."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, nullable=0, default=None)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable=0, default=None)
    assignment: DescribedAssignment = wire(DescribedAssignment)
    target_assignment: DescribedAssignment = wire(DescribedAssignment)
    member_type: int = wire(INT8, since=1, default=-1, ignorable=True)


@structure
class DescribedGroup(Structure):
    """One group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: tuple[DescribedMember, ...] = wire(array(DescribedMember))
    authorized_operations: int = wire(INT32, default=NOT_ASKED)


@structure
class ConsumerGroupDescribeResponse(Response):
    """Each group."""

    throttle_time_ms: int = wire(INT32)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))


@structure
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Asks for groups of the consumer protocol."""

    API_KEY = 69
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0
    RESPONSE = ConsumerGroupDescribeResponse

    group_ids: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOLEAN)
