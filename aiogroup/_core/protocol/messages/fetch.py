"""Fetch (1): records, in sessions (KIP-227), with epochs (KIP-320). Topics are named by id since version 13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.messages.topics import need_ids, need_names
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

FIRST_BY_ID = 13
MAX_INT32 = 0x7FFF_FFFF
MAX_INT64 = 0x7FFF_FFFF_FFFF_FFFF


@structure
class EpochEndOffset(Structure):
    """Where the leader's log diverges from the reader's; -1 if it does not."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)


@structure
class LeaderIdAndEpoch(Structure):
    """The leader, sent with errors 6 and 74 (KIP-951); -1 if it is not sent."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@structure
class SnapshotId(Structure):
    """For controllers: the snapshot to load."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@structure
class AbortedTransaction(Structure):
    """The records of this producer from this offset up to its abort marker are aborted."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@structure
class PartitionData(Structure):
    """One partition. `records` is a slice of the frame: it keeps the whole frame alive."""

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
    """One topic: `topic` up to version 12, `topic_id` since 13."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData))


@structure
class NodeEndpoint(Structure):
    """The address of a leader named in `current_leader` (KIP-951)."""

    node_id: int = wire(INT32, since=16)
    host: str = wire(STRING, since=16)
    port: int = wire(INT32, since=16)
    rack: str | None = wire(STRING, since=16, nullable=16, default=None)


@structure
class FetchResponse(Response):
    """The partitions; a session leaves out those in which nothing changed. `error_code` is the session's."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16, since=7, ignorable=True)
    session_id: int = wire(INT32, since=7)
    responses: tuple[FetchableTopicResponse, ...] = wire(array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), since=16, tag=0)


@structure
class ReplicaState(Structure):
    """For followers, which no consumer is."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)


NO_REPLICA = ReplicaState()


@structure
class FetchPartition(Structure):
    """One partition and the offset to read on from."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, since=12, default=-1)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: UUID = wire(UUID16, since=17, tag=0, ignorable=True)
    high_watermark: int = wire(INT64, since=18, tag=1, default=MAX_INT64, ignorable=True)


@structure
class FetchTopic(Structure):
    """One topic: `topic` is sent up to version 12, `topic_id` since 13; set both if both are known."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition))


@structure
class ForgottenTopic(Structure):
    """Partitions to take out of the session, named as in `FetchTopic`."""

    topic: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class FetchRequest(Request[FetchResponse]):
    """Asks for records; without `session_id` and `session_epoch` it is outside of any session."""

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
    max_bytes: int = wire(INT32, since=3, default=MAX_INT32, ignorable=True)
    isolation_level: int = wire(INT8, since=4, ignorable=True)
    session_id: int = wire(INT32, since=7, ignorable=True)
    session_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(array(ForgottenTopic), since=7)
    rack_id: str = wire(STRING, since=11, ignorable=True)

    def lower(self, version: int) -> Structure:
        named: tuple[FetchTopic | ForgottenTopic, ...] = (*self.topics, *self.forgotten_topics_data)
        if version >= FIRST_BY_ID:
            need_ids("FetchRequest", version, FIRST_BY_ID, (topic.topic_id for topic in named))
        else:
            need_names("FetchRequest", version, FIRST_BY_ID, (topic.topic for topic in named))
        return self
