"""ShareGroupHeartbeat (76).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
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
    """The partitions assigned to the member."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class Assignment(Structure):
    """null if not provided; the assignment otherwise."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))


@structure
class ShareGroupHeartbeatResponse(Response):
    """The answer to `ShareGroupHeartbeatRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    member_id: str | None = wire(STRING, nullable=0, default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: Assignment | None = wire(Assignment, nullable=0, default=None)


@structure
class ShareGroupHeartbeatRequest(Request[ShareGroupHeartbeatResponse]):
    """Joins (epoch 0), stays in, or leaves (-1) a share group (KIP-932); null: as it was before."""

    API_KEY = 76
    MIN_VERSION = 1
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0
    RESPONSE = ShareGroupHeartbeatResponse

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    rack_id: str | None = wire(STRING, nullable=0, default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire(array(STRING), nullable=0, default=None)
