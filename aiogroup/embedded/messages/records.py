"""Logs of partitions: DeleteRecords (21) and DescribeProducers (61)."""

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
class DeleteRecordsPartitionResult(Structure):
    """What became of one partition; `low_watermark` is its first offset afterwards."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@structure
class DeleteRecordsTopicResult(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(array(DeleteRecordsPartitionResult))


@structure
class DeleteRecordsResponse(Response):
    """What became of each partition."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(array(DeleteRecordsTopicResult))


@structure
class DeleteRecordsPartition(Structure):
    """One partition and its new first offset; -1 stands for the high watermark."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@structure
class DeleteRecordsTopic(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(array(DeleteRecordsPartition))


@structure
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Deletes records from the begin of logs (KIP-107)."""

    API_KEY = 21
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2
    RESPONSE = DeleteRecordsResponse

    topics: tuple[DeleteRecordsTopic, ...] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


@structure
class ProducerState(Structure):
    """What a partition remembers of one producer; -1 stands for no transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@structure
class ProducersOfPartition(Structure):
    """The producers of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    active_producers: tuple[ProducerState, ...] = wire(array(ProducerState))


@structure
class ProducersOfTopic(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[ProducersOfPartition, ...] = wire(array(ProducersOfPartition))


@structure
class DescribeProducersResponse(Response):
    """The producers of each partition."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[ProducersOfTopic, ...] = wire(array(ProducersOfTopic))


@structure
class DescribeProducersTopic(Structure):
    """Partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@structure
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Asks what partitions remember of producers (KIP-664)."""

    API_KEY = 61
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RESPONSE = DescribeProducersResponse

    topics: tuple[DescribeProducersTopic, ...] = wire(array(DescribeProducersTopic))
