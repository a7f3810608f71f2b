"""Produce (0).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
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
class BatchIndexAndErrorMessage(Structure):
    """The batch indices of records that caused the batch to be dropped."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, nullable=0, default=None)


@structure
class LeaderIdAndEpoch(Structure):
    """The leader broker that the producer should use for future requests."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@structure
class PartitionProduceResponse(Structure):
    """Each partition that we produced to within the topic."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, since=5, default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        array(BatchIndexAndErrorMessage), since=8, ignorable=True
    )
    error_message: str | None = wire(STRING, since=8, nullable=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, since=10, tag=0)


@structure
class TopicProduceResponse(Structure):
    """Each produce response."""

    name: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(array(PartitionProduceResponse))


@structure
class NodeEndpoint(Structure):
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors NOT_LEADER_OR_FOLLOWER."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)


@structure
class ProduceResponse(Response):
    """The answer to `ProduceRequest`."""

    responses: tuple[TopicProduceResponse, ...] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), since=10, tag=0)


@structure
class PartitionProduceData(Structure):
    """Each partition to produce to."""

    index: int = wire(INT32)
    records: bytes | memoryview | None = wire(RECORDS, nullable=0)


@structure
class TopicProduceData(Structure):
    """Each topic to produce to."""

    name: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(array(PartitionProduceData))


@structure
class ProduceRequest(Request[ProduceResponse]):
    """Appends record batches; `acks` is 0 for no answer, 1 for the leader's, -1 for that of all replicas in sync.
    Topics are named by id since version 13. `records` are slices of the frame, which they keep alive.
    """

    API_KEY = 0
    MIN_VERSION = 3
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9
    RESPONSE = ProduceResponse

    transactional_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: tuple[TopicProduceData, ...] = wire(array(TopicProduceData))
