"""DeleteRecords (21), DescribeLogDirs (35), DescribeProducers (61)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.messages.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aiogroup.embedded.messages.records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducersOfPartition,
    ProducersOfTopic,
    ProducerState,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.log import Budget
    from aiogroup.embedded.machine.logs.topics import Partition, Topics
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["LogRequests"]

HIGH_WATERMARK = -1
"""As an offset of DeleteRecords: delete all records."""
FOLDER = "/memory"
"""There is no such folder, but tools expect a path."""


class LogRequests:
    """Deletes records from the start of logs, and reports their sizes and producers."""

    def __init__(self, topics: Topics, settings: Settings, faults: Faults, budget: Budget) -> None:
        self._topics = topics
        self._settings = settings
        self._faults = faults
        self._budget = budget

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            DeleteRecordsRequest: self.delete_records,
            DescribeLogDirsRequest: self.describe_log_dirs,
            DescribeProducersRequest: self.describe_producers,
        }

    def _led(self, exchange: Exchange, topic: str, index: int) -> Partition | ErrorCode:
        """The partition, if the node leads it; else why the node cannot serve it."""
        if self._faults.is_set and (code := self._faults.refusal(exchange, Place(topic=topic, partition=index))):
            return code
        partition = self._topics.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != exchange.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition

    def _denial(self, exchange: Exchange, topic: str, index: int) -> ErrorCode:
        if not self._faults.is_set:
            return ErrorCode.NONE
        return self._faults.denial(exchange, Place(topic=topic, partition=index))

    # DeleteRecords.

    def delete_records(self, exchange: Exchange, request: DeleteRecordsRequest, now_ms: int) -> None:
        """If a partition is named twice, the last offset wins."""
        offsets: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            offsets.setdefault(topic.name, {}).update((each.partition_index, each.offset) for each in topic.partitions)
        topics = []
        for name, by_index in offsets.items():
            results = []
            for index, offset in by_index.items():
                found = self._led(exchange, name, index)
                if not isinstance(found, ErrorCode):
                    found = self._delete_before(found, offset)
                code = found if isinstance(found, ErrorCode) else self._denial(exchange, name, found.index)
                start = -1 if code or isinstance(found, ErrorCode) else found.log.start_offset
                results.append(DeleteRecordsPartitionResult(index, start, code))
            topics.append(DeleteRecordsTopicResult(name, tuple(results)))
        exchange.answer(DeleteRecordsResponse(topics=tuple(topics)), now_ms)

    def _delete_before(self, partition: Partition, offset: int) -> Partition | ErrorCode:
        """Partition.deleteRecordsOnLeader. The state of producers stays."""
        if partition.topic.is_internal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if "delete" not in self._settings.of_topic(partition.topic, "cleanup.policy"):
            return ErrorCode.POLICY_VIOLATION
        log = partition.log
        before = log.end_offset if offset == HIGH_WATERMARK else offset
        if not 0 <= before <= log.end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        log.delete_before(before)
        return partition

    # DescribeLogDirs.

    def describe_log_dirs(self, exchange: Exchange, request: DescribeLogDirsRequest, now_ms: int) -> None:
        """Each node has one folder, with all replicas that it holds. Topics and partitions that do not exist are left
        out.
        """
        code = self._faults.refusal(exchange) or self._faults.denial(exchange)
        wanted = None if request.topics is None else {each.topic: frozenset(each.partitions) for each in request.topics}
        topics = () if code else tuple(self._sizes(exchange.node_id, wanted))
        result = DescribeLogDirsResult(
            ErrorCode.NONE,
            FOLDER,
            topics,
            total_bytes=self._budget.max_bytes,
            usable_bytes=self._budget.max_bytes - self._budget.used_bytes,
        )
        exchange.answer(DescribeLogDirsResponse(error_code=code, results=() if code else (result,)), now_ms)

    def _sizes(self, node_id: int, wanted: Mapping[str, frozenset[int]] | None) -> Iterator[DescribeLogDirsTopic]:
        for topic in self._topics:
            indexes = None if wanted is None else wanted.get(topic.name, frozenset())
            partitions = tuple(
                DescribeLogDirsPartition(each.index, each.log.size_bytes)
                for each in topic.partitions
                if node_id in each.replicas and (indexes is None or each.index in indexes)
            )
            if partitions:
                yield DescribeLogDirsTopic(topic.name, partitions)

    # DescribeProducers.

    def describe_producers(self, exchange: Exchange, request: DescribeProducersRequest, now_ms: int) -> None:
        topics = tuple(
            ProducersOfTopic(
                topic.name, tuple(self._producers(exchange, topic.name, index) for index in topic.partition_indexes)
            )
            for topic in request.topics
        )
        exchange.answer(DescribeProducersResponse(topics=topics), now_ms)

    def _producers(self, exchange: Exchange, topic: str, index: int) -> ProducersOfPartition:
        found = self._led(exchange, topic, index)
        if isinstance(found, ErrorCode):
            if found is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._topics.get(topic) is not None:
                return ProducersOfPartition(index, found)
            if (message := refusal_of_name(topic)) is not None:
                return ProducersOfPartition(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            return ProducersOfPartition(index, found, "This server does not host this topic-partition.")
        if code := self._denial(exchange, topic, index):
            return ProducersOfPartition(index, code)
        states = tuple(
            ProducerState(
                each.producer_id,
                each.epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                found.log.producers.open_offset(each.producer_id),
            )
            for each in found.log.producers.by_id.values()
        )
        return ProducersOfPartition(index, ErrorCode.NONE, active_producers=states)
