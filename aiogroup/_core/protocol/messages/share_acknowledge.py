"""ShareAcknowledge (79).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
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
class LeaderIdAndEpoch(Structure):
    """The current leader of the partition."""

    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)


@structure
class PartitionData(Structure):
    """The topic partitions."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)


@structure
class ShareAcknowledgeTopicResponse(Structure):
    """The response topics."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData))


@structure
class NodeEndpoint(Structure):
    """Endpoints for all current leaders enumerated in PartitionData with error NOT_LEADER_OR_FOLLOWER."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)


@structure
class ShareAcknowledgeResponse(Response):
    """The answer to `ShareAcknowledgeRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, since=2, ignorable=True)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = wire(array(ShareAcknowledgeTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint))


@structure
class AcknowledgementBatch(Structure):
    """Record batches to acknowledge."""

    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    acknowledge_types: tuple[int, ...] = wire(array(INT8))


@structure
class AcknowledgePartition(Structure):
    """The partitions containing records to acknowledge."""

    partition_index: int = wire(INT32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(array(AcknowledgementBatch))


@structure
class AcknowledgeTopic(Structure):
    """The topics containing records to acknowledge."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[AcknowledgePartition, ...] = wire(array(AcknowledgePartition))


@structure
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Acknowledges records of a share group, in a share session (KIP-932)."""

    API_KEY = 79
    MIN_VERSION = 1
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RESPONSE = ShareAcknowledgeResponse

    group_id: str | None = wire(STRING, nullable=0, default=None)
    member_id: str | None = wire(STRING, nullable=0)
    share_session_epoch: int = wire(INT32)
    is_renew_ack: bool = wire(BOOLEAN, since=2)
    topics: tuple[AcknowledgeTopic, ...] = wire(array(AcknowledgeTopic))
