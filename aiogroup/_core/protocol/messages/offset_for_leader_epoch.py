"""OffsetForLeaderEpoch (23): the end offset of a leader epoch of a partition; detects truncation (KIP-320)."""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class OffsetForLeaderPartitionResult(Structure):
    """The end of the largest epoch not above the requested one; -1 and -1 if none is known."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = wire(INT64, default=-1)


@structure
class OffsetForLeaderTopicResult(Structure):
    """One topic."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartitionResult, ...] = wire(array(OffsetForLeaderPartitionResult))


@structure
class OffsetForLeaderEpochResponse(Response):
    """One epoch and error per partition."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(array(OffsetForLeaderTopicResult))


@structure
class OffsetForLeaderPartition(Structure):
    """One partition: the current epoch as the client knows it, and the epoch whose end is requested."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = wire(INT32)


@structure
class OffsetForLeaderTopic(Structure):
    """One topic."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(array(OffsetForLeaderPartition))


@structure
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Asks leaders where epochs ended."""

    API_KEY = 23
    MIN_VERSION = 2
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RESPONSE = OffsetForLeaderEpochResponse

    # Kafka's schema has -2 ("debug"), with which a broker answers from followers too: a consumer must say -1.
    replica_id: int = wire(INT32, since=3, default=-1, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(array(OffsetForLeaderTopic))
