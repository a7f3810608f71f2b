"""OffsetForLeaderEpoch (23).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

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
    """Each partition in the topic we fetched offsets for."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = wire(INT64, default=-1)


@structure
class OffsetForLeaderTopicResult(Structure):
    """Each topic we fetched offsets for."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartitionResult, ...] = wire(array(OffsetForLeaderPartitionResult))


@structure
class OffsetForLeaderEpochResponse(Response):
    """The answer to `OffsetForLeaderEpochRequest`."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(array(OffsetForLeaderTopicResult))


@structure
class OffsetForLeaderPartition(Structure):
    """Each partition to get offsets for."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = wire(INT32)


@structure
class OffsetForLeaderTopic(Structure):
    """Each topic to get offsets for."""

    topic: str = wire(STRING)
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(array(OffsetForLeaderPartition))


@structure
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Asks leaders where epochs ended, which detects truncation (KIP-320): the end of the largest epoch not above the
    requested one; -1 and -1 if none is known.
    """

    API_KEY = 23
    MIN_VERSION = 2
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RESPONSE = OffsetForLeaderEpochResponse

    replica_id: int = wire(INT32, since=3, default=-1, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(array(OffsetForLeaderTopic))
