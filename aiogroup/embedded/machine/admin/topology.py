"""DescribeCluster (60), DescribeTopicPartitions (75), ElectLeaders (43), ListPartitionReassignments (46)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import NOT_ASKED
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.machine.metadata import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from aiogroup.embedded.messages.cluster import (
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Partition, Topic, Topics
    from aiogroup.embedded.machine.nodes import Nodes
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["Topology"]

BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints."""
PREFERRED, UNCLEAN = 0, 1
"""Types of elections."""
CODE_OF_ALL_SINCE = 1
"""Before this version ElectLeaders has no error code for the whole request: the code is only at each partition."""
NO_LEADER = -1


class Topology:
    """Tells administrators the nodes and partitions, and elects leaders."""

    def __init__(self, cluster_id: str, topics: Topics, nodes: Nodes, settings: Settings, faults: Faults) -> None:
        self._cluster_id = cluster_id
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            DescribeClusterRequest: self.describe_cluster,
            DescribeTopicPartitionsRequest: self.describe_partitions,
            ElectLeadersRequest: self.elect_leaders,
            ListPartitionReassignmentsRequest: self.list_reassignments,
        }

    def _code(self, exchange: Exchange) -> ErrorCode:
        return self._faults.refusal(exchange) or self._faults.denial(exchange)

    # DescribeCluster.

    def describe_cluster(self, exchange: Exchange, request: DescribeClusterRequest, now_ms: int) -> None:
        """AuthHelper.computeDescribeClusterResponse. Nodes that are down are included as fenced, if the request asks
        for them.
        """
        code, message = self._code(exchange), None
        if not code and request.endpoint_type == CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        elif not code and request.endpoint_type != BROKERS:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            message = f"Unsupported endpoint type {request.endpoint_type}"
        if code:
            exchange.answer(DescribeClusterResponse(error_code=code, error_message=message or code.name), now_ms)
            return
        up = self._nodes.up
        brokers = tuple(
            DescribeClusterBroker(each.node_id, each.host, each.port, each.rack, is_fenced=not each.is_up)
            for each in (self._nodes if request.include_fenced_brokers else up)
        )
        asks = request.include_cluster_authorized_operations
        response = DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=up[0].node_id if up else -1,
            brokers=brokers,
            cluster_authorized_operations=CLUSTER_OPERATIONS if asks else NOT_ASKED,
        )
        exchange.answer(response, now_ms)

    # DescribeTopicPartitions.

    def describe_partitions(self, exchange: Exchange, request: DescribeTopicPartitionsRequest, now_ms: int) -> None:
        """By name, in pages (DescribeTopicPartitionsRequestHandler)."""
        cursor = request.cursor
        first = "" if cursor is None else cursor.topic_name
        asks_all = not request.topics
        names = (each.name for each in (self._topics if asks_all else request.topics))
        wanted = sorted({name for name in names if name >= first})
        is_valid = cursor is None or (cursor.partition_index >= 0 and (asks_all or first in wanted))
        code = self._code(exchange) or (ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST)
        if code:
            refused = tuple(_without_partitions(code, each.name) for each in request.topics)
            exchange.answer(DescribeTopicPartitionsResponse(topics=refused), now_ms)
            return
        limit = max(min(self._settings["max.request.partition.size.limit"], request.response_partition_limit), 1)
        begin = 0 if cursor is None else cursor.partition_index
        topics, following = [], None
        for name in wanted:
            if not limit:
                following = Cursor(name, 0)
                break
            topic = self._topics.get(name)
            code = self._faults.refusal(exchange, Place(topic=name))
            if topic is None or code:
                topics.append(_without_partitions(code or _code_of_unknown(name), name, TOPIC_OPERATIONS))
                continue
            from_index = begin if name == first else 0
            to_index = min(len(topic.partitions), from_index + limit)
            topics.append(self._told(topic, from_index, to_index))
            if to_index < len(topic.partitions):
                following = Cursor(name, to_index)
                break
            limit -= len(topics[-1].partitions)
        exchange.answer(DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=following), now_ms)

    def _told(self, topic: Topic, from_index: int, to_index: int) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            ErrorCode.NONE,
            topic.name,
            topic.topic_id,
            is_internal=topic.is_internal,
            partitions=tuple(self._partition(each) for each in topic.partitions[from_index:to_index]),
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(self, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
        live = self._nodes.live(partition.replicas)
        return DescribeTopicPartitionsResponsePartition(
            ErrorCode.NONE,
            partition.index,
            partition.leader if self._nodes.is_up(partition.leader) else NO_LEADER,
            partition.leader_epoch,
            partition.replicas,
            live,
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=tuple(each for each in partition.replicas if each not in live),
        )

    # ElectLeaders.

    def elect_leaders(self, exchange: Exchange, request: ElectLeadersRequest, now_ms: int) -> None:
        """ReplicationControlManager.electLeaders. A request for all partitions gets no result for those that needed no
        election.
        """
        whole = self._code(exchange)
        if not whole and request.election_type not in (PREFERRED, UNCLEAN):
            whole = ErrorCode.INVALID_REQUEST
        if not whole and request.timeout_ms <= 0:
            whole = ErrorCode.REQUEST_TIMED_OUT
        asks_all = request.topic_partitions is None
        results = []
        for name, index in self._electable(request):
            code = whole or self._elect(exchange, name, index, request.election_type, now_ms)
            if not asks_all or code is not ErrorCode.ELECTION_NOT_NEEDED:
                why = None if whole else self._why_not_elected(name, index, code)
                results.append((name, PartitionResult(index, code, why)))
        by_topic = tuple(ReplicaElectionResult(name, (result,)) for name, result in results)
        told = whole if exchange.version >= CODE_OF_ALL_SINCE else ErrorCode.NONE
        exchange.answer(ElectLeadersResponse(error_code=told, replica_election_results=by_topic), now_ms)

    def _electable(self, request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
        if request.topic_partitions is None:
            for topic in self._topics:
                for partition in topic.partitions:
                    yield topic.name, partition.index
            return
        for asked in request.topic_partitions:
            for index in asked.partitions:
                yield asked.topic, index

    def _elect(self, exchange: Exchange, name: str, index: int, kind: int, now_ms: int) -> ErrorCode:
        place = Place(topic=name, partition=index)
        if code := self._faults.refusal(exchange, place):
            return code
        partition = self._topics.partition(name, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = partition.replicas[0]
        if partition.leader == preferred or (kind == UNCLEAN and partition.leader != NO_LEADER):
            return ErrorCode.ELECTION_NOT_NEEDED
        live = self._nodes.live(partition.replicas)
        if kind == PREFERRED and preferred not in live:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if not live:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        partition.elect(live[0], now_ms)
        return self._faults.denial(exchange, place)

    def _why_not_elected(self, name: str, index: int, code: ErrorCode) -> str | None:
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return code.name if code else None
        return f"No such topic as {name}" if self._topics.get(name) is None else f"No such partition as {name}-{index}"

    # ListPartitionReassignments.

    def list_reassignments(self, exchange: Exchange, _request: ListPartitionReassignmentsRequest, now_ms: int) -> None:
        """No replica ever moves here."""
        code = self._code(exchange)
        message = code.name if code else None
        exchange.answer(ListPartitionReassignmentsResponse(error_code=code, error_message=message), now_ms)


def _code_of_unknown(name: str) -> ErrorCode:
    if refusal_of_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _without_partitions(
    code: ErrorCode, name: str, operations: int = NOT_ASKED
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(code, name, ZERO_UUID, topic_authorized_operations=operations)
