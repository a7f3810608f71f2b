"""Produce (0), as KafkaApis, ReplicaManager and Partition serve it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.append import Appended, AppendRules, append, has_flag, only_batch
from aiogroup.embedded.machine.logs.batches import HEADER_BYTES, TRANSACTIONAL, header_of
from aiogroup.embedded.machine.transactions.states import Expected
from aiogroup.embedded.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiogroup.embedded.messages.ranges import REFUSED_PRODUCE

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Partition, Topic, Topics
    from aiogroup.embedded.machine.refusals import Troubles
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["Produces"]

NO_ANSWER, LEADER, ALL_IN_SYNC = 0, 1, -1
FIRST_BY_ID = 13
FIRST_WITH_LEADERS = 10
KNOWS_ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
"""From this version on the partitions' leaders add partitions to a transaction, not the producer. Kafka's leaders do so
whatever the cluster's transaction.version is.
"""
OF_COORDINATORS = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Address(Protocol):
    """Where a node is reached."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def rack(self) -> str | None: ...


class Nodes(Protocol):
    """The questions of an append about nodes."""

    def get(self, node_id: int, /) -> Address | None:
        """The address of a node."""

    def live(self, replicas: Iterable[int], /) -> tuple[int, ...]:
        """The replicas whose nodes are up."""


class Transactions(Protocol):
    """The questions of an append about transactions."""

    def verify(
        self, transactional_id: str, producer: Expected, partition: tuple[str, int], now_ms: int, *, adds: bool = False
    ) -> ErrorCode:
        """Whether the first records of a transaction may be taken."""


class Produces:
    """Appends clients' batches."""

    def __init__(
        self,
        topics: Topics,
        nodes: Nodes,
        settings: Settings,
        faults: Faults,
        transactions: Transactions,
        troubles: Troubles,
    ) -> None:
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults
        self._transactions = transactions
        self._troubles = troubles

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {ProduceRequest: self.produce}

    def produce(self, exchange: Exchange, request: ProduceRequest, now_ms: int) -> None:
        if exchange.version <= REFUSED_PRODUCE:
            # Kafka offers these versions, but cannot read them: it breaks the connection.
            self._troubles.note("api", f"{exchange.client_id} sent Produce in version {exchange.version}", now_ms)
            exchange.peer.close()
            exchange.answer(None, now_ms)
            return
        refused = self._refusal_of_all(request)
        responses, leaders = [], dict[int, NodeEndpoint]()
        has_error = False
        for asked in request.topic_data:
            topic = self._topics.by_id(asked.topic_id) if exchange.version >= FIRST_BY_ID else self._named(asked.name)
            answers = []
            for data in asked.partition_data:
                appended = Appended(refused) if refused else self._one(exchange, request, asked, topic, data, now_ms)
                leader = self._leader(exchange, topic, data.index, appended, leaders)
                answers.append(_answer(data.index, appended, leader))
                has_error = has_error or appended.error is not ErrorCode.NONE
            responses.append(TopicProduceResponse(asked.name, asked.topic_id, tuple(answers)))
        if request.acks == NO_ANSWER:
            if has_error:
                # The producer expects no answer. Kafka breaks the connection to make it ask for metadata.
                exchange.peer.close()
            exchange.answer(None, now_ms)
            return
        exchange.answer(ProduceResponse(tuple(responses), node_endpoints=tuple(leaders.values())), now_ms)

    def _named(self, name: str) -> Topic | None:
        return self._topics.get(name)

    @staticmethod
    def _refusal_of_all(request: ProduceRequest) -> ErrorCode:
        """Why the whole request is refused, or NONE."""
        producers: dict[tuple[int, int], None] = {}
        for topic in request.topic_data:
            for each in topic.partition_data:
                found = has_flag(each.records, TRANSACTIONAL)
                if isinstance(found, ErrorCode):
                    return found
                if found and request.transactional_id is None:
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                if found and each.records is not None and len(each.records) >= HEADER_BYTES:
                    header = header_of(each.records)
                    producers[header.producer_id, header.producer_epoch] = None
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else ErrorCode.NONE

    def _one(
        self,
        exchange: Exchange,
        request: ProduceRequest,
        asked: TopicProduceData,
        topic: Topic | None,
        data: PartitionProduceData,
        now_ms: int,
    ) -> Appended:
        """Append one partition's batch."""
        place = Place(topic=topic.name if topic else asked.name, partition=data.index)
        if self._faults.is_set and (code := self._faults.refusal(exchange, place)):
            return Appended(code)
        if topic is None and exchange.version >= FIRST_BY_ID:
            return Appended(ErrorCode.UNKNOWN_TOPIC_ID)
        if topic is None or not 0 <= data.index < len(topic.partitions):
            return Appended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = only_batch(data.records, exchange.version)
        if isinstance(batch, ErrorCode):
            return Appended(batch)
        partition = topic.partitions[data.index]
        if code := self._unverified(exchange, request, partition, batch, now_ms):
            return Appended(code)
        appended = self._append(exchange, request.acks, partition, batch, now_ms)
        if self._faults.is_set and (code := self._faults.denial(exchange, place)):
            return Appended(code)
        return appended

    def _unverified(
        self, exchange: Exchange, request: ProduceRequest, partition: Partition, batch: bytearray, now_ms: int
    ) -> ErrorCode:
        """Why the first batch of a transaction in this partition is refused (AddPartitionsToTxnManager), or NONE."""
        if request.transactional_id is None or len(batch) < HEADER_BYTES:
            return ErrorCode.NONE
        header = header_of(batch)
        if not header.is_transactional or header.producer_id < 0:
            return ErrorCode.NONE
        if partition.leader != exchange.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.log.producers.is_in_transaction(header.producer_id, header.producer_epoch):
            return ErrorCode.NONE
        partition.log.producers.verifying(header)
        code = self._transactions.verify(
            request.transactional_id,
            Expected(header.producer_id, header.producer_epoch),
            (partition.topic.name, partition.index),
            now_ms,
            adds=exchange.version >= ADDS_PARTITIONS_SINCE,
        )
        if code is ErrorCode.TRANSACTION_ABORTABLE and exchange.version < KNOWS_ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        # Older producers would give up at a coordinator's error. With this error they try again.
        return ErrorCode.NOT_ENOUGH_REPLICAS if code in OF_COORDINATORS else code

    def _append(self, exchange: Exchange, acks: int, partition: Partition, batch: bytearray, now_ms: int) -> Appended:
        topic = partition.topic
        if acks not in (NO_ANSWER, LEADER, ALL_IN_SYNC):
            return Appended(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic.is_internal:
            return Appended(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if partition.leader != exchange.node_id:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ALL_IN_SYNC:
            wanted = min(self._settings.of_topic(topic, "min.insync.replicas"), len(partition.replicas))
            if len(self._nodes.live(partition.replicas)) < wanted:
                return Appended(ErrorCode.NOT_ENOUGH_REPLICAS, log_start_offset=partition.log.start_offset)
        rules = AppendRules.of(self._settings, topic)
        appended = append(partition.log, batch, partition.leader_epoch, rules, now_ms)
        if appended.size_bytes:
            partition.appended(appended.size_bytes, now_ms)
        elif appended.error is ErrorCode.POLICY_VIOLATION:
            name = "max_bytes" if "max_bytes" in (appended.message or "") else "unpacked"
            self._troubles.note(name, f"{topic.name}-{partition.index}: {appended.message}", now_ms)
        return appended

    def _leader(
        self,
        exchange: Exchange,
        topic: Topic | None,
        index: int,
        appended: Appended,
        leaders: dict[int, NodeEndpoint],
    ) -> LeaderIdAndEpoch | None:
        """The current leader, if it is not the node that was asked, and its address (KIP-951)."""
        if appended.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER or exchange.version < FIRST_WITH_LEADERS:
            return None
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        partition = topic.partitions[index]
        node = self._nodes.get(partition.leader)
        if node is not None:
            leaders[partition.leader] = NodeEndpoint(partition.leader, node.host, node.port, node.rack)
        return LeaderIdAndEpoch(partition.leader, partition.leader_epoch)


def _answer(index: int, appended: Appended, leader: LeaderIdAndEpoch | None) -> PartitionProduceResponse:
    errors = tuple(BatchIndexAndErrorMessage(place, message) for place, message in appended.record_errors)
    answer = PartitionProduceResponse(
        index,
        appended.error,
        appended.base_offset,
        appended.append_time_ms,
        appended.log_start_offset,
        errors,
        appended.message,
    )
    return answer if leader is None else replace(answer, current_leader=leader)
