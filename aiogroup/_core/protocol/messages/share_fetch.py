"""ShareFetch (78).

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
    RECORDS,
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
class AcquiredRecords(Structure):
    """The acquired records."""

    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    delivery_count: int = wire(INT16)


@structure
class PartitionData(Structure):
    """The topic partitions."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    acknowledge_error_code: int = wire(INT16)
    acknowledge_error_message: str | None = wire(STRING, nullable=0, default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)
    records: bytes | memoryview | None = wire(RECORDS)
    acquired_records: tuple[AcquiredRecords, ...] = wire(array(AcquiredRecords))


@structure
class ShareFetchableTopicResponse(Structure):
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
class ShareFetchResponse(Response):
    """The answer to `ShareFetchRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, since=1)
    responses: tuple[ShareFetchableTopicResponse, ...] = wire(array(ShareFetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint))


@structure
class AcknowledgementBatch(Structure):
    """Record batches to acknowledge."""

    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    acknowledge_types: tuple[int, ...] = wire(array(INT8))


@structure
class FetchPartition(Structure):
    """The partitions to fetch."""

    partition_index: int = wire(INT32)
    partition_max_bytes: int = wire(INT32, until=0)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(array(AcknowledgementBatch))


@structure
class FetchTopic(Structure):
    """The topics to fetch."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition))


@structure
class ForgottenTopic(Structure):
    """The partitions to remove from this share session."""

    topic_id: UUID = wire(UUID16)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Asks for records of a share group, in a share session (KIP-932), and acknowledges earlier ones."""

    API_KEY = 78
    MIN_VERSION = 1
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RESPONSE = ShareFetchResponse

    group_id: str | None = wire(STRING, nullable=0, default=None)
    member_id: str | None = wire(STRING, nullable=0)
    share_session_epoch: int = wire(INT32)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=2147483647)
    max_records: int = wire(INT32, since=1)
    batch_size: int = wire(INT32, since=1)
    share_acquire_mode: int = wire(INT8, since=2, ignorable=True)
    is_renew_ack: bool = wire(BOOLEAN, since=2)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(array(ForgottenTopic))
