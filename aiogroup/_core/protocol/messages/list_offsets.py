"""ListOffsets (2).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

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


@structure
class ListOffsetsPartitionResponse(Structure):
    """Each partition in the response."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, since=1, default=-1)
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@structure
class ListOffsetsTopicResponse(Structure):
    """Each topic in the response."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(array(ListOffsetsPartitionResponse))


@structure
class ListOffsetsResponse(Response):
    """The answer to `ListOffsetsRequest`."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(array(ListOffsetsTopicResponse))


@structure
class ListOffsetsPartition(Structure):
    """Each partition in the request."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = wire(INT64)


@structure
class ListOffsetsTopic(Structure):
    """Each topic in the request."""

    name: str = wire(STRING)
    partitions: tuple[ListOffsetsPartition, ...] = wire(array(ListOffsetsPartition))


@structure
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Asks leaders for the offset that belongs to a time (milliseconds), or to a mark of `constants.py`; -1 if no
    record is that new. `isolation_level=1` makes the latest one the last stable offset.
    """

    API_KEY = 2
    MIN_VERSION = 1
    MAX_VERSION = 11
    FLEXIBLE_SINCE = 6
    RESPONSE = ListOffsetsResponse

    replica_id: int = wire(INT32, default=-1)
    isolation_level: int = wire(INT8, since=2)
    topics: tuple[ListOffsetsTopic, ...] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, since=10, ignorable=True)
