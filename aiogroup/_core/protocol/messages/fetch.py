"""Fetch (1).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
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
class EpochEndOffset(Structure):
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    indicates the largest epoch and its end offset such that subsequent records are known to diverge.
    """

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@structure
class LeaderIdAndEpoch(Structure):
    """The current leader of the partition."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@structure
class SnapshotId(Structure):
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should be
    used in the FetchSnapshot request.
    """

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@structure
class AbortedTransaction(Structure):
    """The aborted transactions."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@structure
class PartitionData(Structure):
    """The topic partitions."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, since=12, tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        array(AbortedTransaction), since=4, nullable=4, ignorable=True
    )
    preferred_read_replica: int = wire(INT32, since=11, default=-1)
    records: bytes | memoryview | None = wire(RECORDS, nullable=0)


@structure
class FetchableTopicResponse(Structure):
    """The response topics."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData))


@structure
class NodeEndpoint(Structure):
    """Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
    FENCED_LEADER_EPOCH.
    """

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)


@structure
class FetchResponse(Response):
    """The answer to `FetchRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16, since=7, ignorable=True)
    session_id: int = wire(INT32, since=7)
    responses: tuple[FetchableTopicResponse, ...] = wire(array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), since=16, tag=0)


@structure
class ReplicaState(Structure):
    """The state of the replica in the follower."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


@structure
class FetchPartition(Structure):
    """The partitions to fetch."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: UUID = wire(UUID16, since=17, tag=0, ignorable=True)
    high_watermark: int = wire(INT64, since=18, tag=1, default=9223372036854775807, ignorable=True)


@structure
class FetchTopic(Structure):
    """The topics to fetch."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition))


@structure
class ForgottenTopic(Structure):
    """In an incremental fetch request, the partitions to remove."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class FetchRequest(Request[FetchResponse]):
    """Asks for records; without `session_id` and `session_epoch` it is outside of any session (KIP-227). Topics are
    named by id since version 13: set both if both are known. Of the answer `error_code` is the session's, and `records`
    are slices of the frame, which they keep alive.
    """

    API_KEY = 1
    MIN_VERSION = 4
    MAX_VERSION = 18
    FLEXIBLE_SINCE = 12
    RESPONSE = FetchResponse

    cluster_id: str | None = wire(STRING, since=12, nullable=12, tag=0, default=None, ignorable=True)
    replica_id: int = wire(INT32, until=14, default=-1)
    replica_state: ReplicaState = wire(ReplicaState, since=15, tag=1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, since=3, default=2147483647, ignorable=True)
    isolation_level: int = wire(INT8, since=4, ignorable=True)
    session_id: int = wire(INT32, since=7, ignorable=True)
    session_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(array(ForgottenTopic), since=7)
    rack_id: str = wire(STRING, since=11, ignorable=True)
