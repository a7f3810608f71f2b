"""DeleteRecords (21), DescribeProducers (61).

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
class DeleteRecordsPartitionResult(Structure):
    """Each partition that we wanted to delete records from."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@structure
class DeleteRecordsTopicResult(Structure):
    """Each topic that we wanted to delete records from."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(array(DeleteRecordsPartitionResult))


@structure
class DeleteRecordsResponse(Response):
    """The answer to `DeleteRecordsRequest`."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(array(DeleteRecordsTopicResult))


@structure
class DeleteRecordsPartition(Structure):
    """Each partition that we want to delete records from."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@structure
class DeleteRecordsTopic(Structure):
    """Each topic that we want to delete records from."""

    name: str = wire(STRING)
    partitions: tuple[DeleteRecordsPartition, ...] = wire(array(DeleteRecordsPartition))


@structure
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Deletes records from the begin of logs (KIP-107); -1 stands for the high watermark. `low_watermark` is the first
    offset afterwards.
    """

    API_KEY = 21
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2
    RESPONSE = DeleteRecordsResponse

    topics: tuple[DeleteRecordsTopic, ...] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)


@structure
class ProducerState(Structure):
    """The active producers for the partition."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@structure
class ProducersOfPartition(Structure):
    """Each partition in the response."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    active_producers: tuple[ProducerState, ...] = wire(array(ProducerState))


@structure
class ProducersOfTopic(Structure):
    """Each topic in the response."""

    name: str = wire(STRING)
    partitions: tuple[ProducersOfPartition, ...] = wire(array(ProducersOfPartition))


@structure
class DescribeProducersResponse(Response):
    """The answer to `DescribeProducersRequest`."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[ProducersOfTopic, ...] = wire(array(ProducersOfTopic))


@structure
class DescribeProducersTopic(Structure):
    """The topics to list producers for."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@structure
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Asks what partitions remember of producers (KIP-664); -1 stands for no transaction."""

    API_KEY = 61
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RESPONSE = DescribeProducersResponse

    topics: tuple[DescribeProducersTopic, ...] = wire(array(DescribeProducersTopic))
