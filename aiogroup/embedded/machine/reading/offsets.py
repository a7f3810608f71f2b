"""ListOffsets: the offset that belongs to a time or to a mark (ReplicaManager.fetchOffset)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiogroup._core.protocol.constants import EARLIEST, LATEST
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.logs.batches import UnreadableBatchError
from aiogroup.embedded.machine.logs.topics import Partition, Topics
from aiogroup.embedded.machine.reading.replicas import ISOLATION_LEVELS, why_not

__all__ = ["Offsets"]

MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version that knows each mark. In an older version the partition gets UNSUPPORTED_VERSION."""
FIRST_WITH_EPOCH = 4

READ_COMMITTED = 1
DEBUGGING = -2
"""The replica id to which every replica answers, and not only the leader."""
CONSUMER = -1
"""The replica id of consumers. Any other replica id gets the log's end, whatever the isolation level is."""

Found = tuple[int, int, int]
"""An offset, its timestamp, and its leader epoch; each is -1 if there is none."""
NOTHING: Found = (-1, -1, -1)


class Offsets:
    """Serves ListOffsets at all nodes."""

    def __init__(self, topics: Topics, faults: Faults) -> None:
        self._topics = topics
        self._faults = faults

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {ListOffsetsRequest: self.list_offsets}

    def list_offsets(self, exchange: Exchange, request: ListOffsetsRequest, now_ms: int) -> None:
        named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
        topics = tuple(
            ListOffsetsTopicResponse(
                topic.name,
                tuple(
                    self._partition(exchange, request, topic.name, each, is_twice=count > 1)
                    for each, count in (
                        (each, named.pop((topic.name, each.partition_index), 0)) for each in topic.partitions
                    )
                    # A partition that is named twice is answered once, with INVALID_REQUEST.
                    if count
                ),
            )
            for topic in request.topics
        )
        answered = tuple(topic for topic in topics if topic.partitions)
        exchange.answer(ListOffsetsResponse(topics=answered), now_ms)

    def _partition(
        self, exchange: Exchange, request: ListOffsetsRequest, topic: str, ask: ListOffsetsPartition, *, is_twice: bool
    ) -> ListOffsetsPartitionResponse:
        index = ask.partition_index
        place = Place(topic=topic, partition=index)
        code = self._faults.refusal(exchange, place)
        if not code:
            code, found = self._find(exchange, request, topic, ask, is_twice=is_twice)
        if not code:
            code = self._faults.denial(exchange, place)
        if code:
            return ListOffsetsPartitionResponse(index, code)
        offset, timestamp, epoch = found
        if exchange.version < FIRST_WITH_EPOCH:
            epoch = -1
        return ListOffsetsPartitionResponse(index, code, timestamp, offset, epoch)

    def _find(
        self, exchange: Exchange, request: ListOffsetsRequest, topic: str, ask: ListOffsetsPartition, *, is_twice: bool
    ) -> tuple[ErrorCode, Found]:
        if is_twice:
            return ErrorCode.INVALID_REQUEST, NOTHING
        if ask.timestamp < 0 and exchange.version < SINCE.get(ask.timestamp, exchange.version + 1):
            return ErrorCode.UNSUPPORTED_VERSION, NOTHING
        if request.isolation_level not in ISOLATION_LEVELS:
            return ErrorCode.UNKNOWN_SERVER_ERROR, NOTHING
        partition = self._topics.partition(topic, ask.partition_index)
        code = why_not(
            partition,
            exchange.node_id,
            ask.current_leader_epoch,
            only_leader=request.replica_id != DEBUGGING,
        )
        if code or partition is None:
            return code, NOTHING
        is_committed = request.isolation_level == READ_COMMITTED and request.replica_id == CONSUMER
        try:
            return ErrorCode.NONE, offset_of(partition, ask.timestamp, is_committed=is_committed)
        except UnreadableBatchError as error:
            # Kafka's decompressors throw exceptions that have no error code.
            return ErrorCode.UNKNOWN_SERVER_ERROR if error.is_compression else ErrorCode.INVALID_RECORD, NOTHING


def offset_of(partition: Partition, timestamp: int, *, is_committed: bool) -> Found:
    """The offset for a time or a mark in a partition (UnifiedLog.fetchOffsetByTimestamp).

    Raises:
        UnreadableBatchError: the batch in which a time lies cannot be read.
    """
    log = partition.log
    end_offset = log.last_stable_offset if is_committed else log.end_offset
    if timestamp == LATEST:
        return end_offset, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        # No log is tiered: everything is local, and no upload is pending.
        return log.start_offset, -1, log.epoch_at(log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_by_time(timestamp)
    # For records that the reader may not see yet, no offset is found.
    return NOTHING if found is None or found[0] >= end_offset else found
