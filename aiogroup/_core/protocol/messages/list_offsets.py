"""ListOffsets (2): the offset that belongs to a time, or to one of the marks below."""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    INT8,
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

LATEST = -1
EARLIEST = -2


@structure
class ListOffsetsPartitionResponse(Structure):
    """One partition; `offset` is -1 if no record is that new."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@structure
class ListOffsetsTopicResponse(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(array(ListOffsetsPartitionResponse))


@structure
class ListOffsetsResponse(Response):
    """One offset and error per partition."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(array(ListOffsetsTopicResponse))


@structure
class ListOffsetsPartition(Structure):
    """One partition and the time (milliseconds) or mark asked for."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@structure
class ListOffsetsTopic(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition))


@structure
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Asks leaders for offsets. `isolation_level=1` makes the latest one the last stable offset."""

    API_KEY = 2
    MIN_VERSION = 1
    MAX_VERSION = 11
    FLEXIBLE_SINCE = 6
    RESPONSE = ListOffsetsResponse

    # Kafka's schema has 0 here, which is a broker's id: a consumer must say -1.
    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, since=2)
    topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, since=10, ignorable=True)
