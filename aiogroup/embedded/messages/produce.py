"""Produce (0): appends record batches. Topics are named by id since version 13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.messages.fetch import LeaderIdAndEpoch
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
    """One record because of which its whole batch was refused (KIP-467)."""

    batch_index: int = wire(INT32, since=8)
    batch_index_error_message: str | None = wire(STRING, since=8, nullable=8, default=None)


@structure
class PartitionProduceResponse(Structure):
    """One partition; `log_append_time_ms` is -1 unless the topic keeps the time of the append."""

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
    """One topic: `name` up to version 12, `topic_id` since 13."""

    name: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(array(PartitionProduceResponse))


@structure
class ProduceNodeEndpoint(Structure):
    """The address of a leader named in `current_leader` (KIP-951)."""

    node_id: int = wire(INT32, since=10)
    host: str = wire(STRING, since=10)
    port: int = wire(INT32, since=10)
    rack: str | None = wire(STRING, since=10, nullable=10, default=None)


@structure
class ProduceResponse(Response):
    """What became of each partition's batch. A request with `acks=0` gets no answer."""

    responses: tuple[TopicProduceResponse, ...] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    node_endpoints: tuple[ProduceNodeEndpoint, ...] = wire(array(ProduceNodeEndpoint), since=10, tag=0)


@structure
class PartitionProduceData(Structure):
    """One partition. `records` is a slice of the frame: it keeps the whole frame alive."""

    index: int = wire(INT32)
    records: bytes | memoryview | None = wire(RECORDS, nullable=0)


@structure
class TopicProduceData(Structure):
    """One topic: `name` up to version 12, `topic_id` since 13."""

    name: str = wire(STRING, until=12, ignorable=True)
    topic_id: UUID = wire(UUID16, since=13, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(array(PartitionProduceData))


@structure
class ProduceRequest(Request[ProduceResponse]):
    """Appends; `acks` is 0 for no answer, 1 for the leader's, -1 for that of all replicas in sync."""

    API_KEY = 0
    MIN_VERSION = 3
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9
    RESPONSE = ProduceResponse

    transactional_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: tuple[TopicProduceData, ...] = wire(array(TopicProduceData))
