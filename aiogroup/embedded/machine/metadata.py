"""Describes the cluster: ApiVersions, and Metadata with nodes, topics and leaders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import NOT_ASKED
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aiogroup._core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.connection import Ranges
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.logs.topics import Partition, Topic, Topics, refusal_of_name
from aiogroup.embedded.machine.nodes import Nodes
from aiogroup.embedded.machine.settings import Settings

__all__ = ["ClusterMetadata"]

NAMES_CLIENT_SINCE = 3
FEATURES_FROM_0_SINCE = 4
"""Clients before version 4 of ApiVersions cannot read a feature whose least version is 0 (KAFKA-17492)."""
CLIENT_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SUPPORTED: tuple[SupportedFeatureKey, ...] = (SupportedFeatureKey("transaction.version", 0, 1),)
FINALIZED: tuple[FinalizedFeatureKey, ...] = (FinalizedFeatureKey("transaction.version", 1, 1),)
"""Transactions of version 2 (KIP-890) are not served: Java's producer uses them only if this version is 2."""
BY_ID_SINCE = 12
NO_LEADER = -1
TOPIC_OPERATIONS = 0b1101_1111_1000
"""Read, write, create, delete, alter, describe, describe and alter configs: all operations, as without an authorizer
(AclEntry.supportedOperations).
"""
CLUSTER_OPERATIONS = 0b1_1111_1010_0000


class ClusterMetadata:
    """Serves ApiVersions and Metadata at all nodes."""

    def __init__(
        self, cluster_id: str, topics: Topics, nodes: Nodes, settings: Settings, faults: Faults, ranges: Ranges
    ) -> None:
        self._cluster_id = cluster_id
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults
        self._ranges = ranges
        self._api_keys = tuple(ApiVersion(each.API_KEY, *ranges[each]) for each in ranges)
        self._supported = SUPPORTED
        self._finalized = FINALIZED

    def offer(self, feature: str, version: int) -> None:
        """List a feature that is on in the whole cluster, with this single version."""
        self._supported += (SupportedFeatureKey(feature, version, version),)
        self._finalized += (FinalizedFeatureKey(feature, version, version),)

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {ApiVersionsRequest: self.api_versions, MetadataRequest: self.metadata}

    # ApiVersions.

    def api_versions(self, exchange: Exchange, request: ApiVersionsRequest, now_ms: int) -> None:
        version = exchange.version
        lowest, highest = self._ranges[ApiVersionsRequest]
        if not lowest <= version <= highest:
            # The answer is in version 0, and has only the range of ApiVersions (KIP-511).
            own = ApiVersion(ApiVersionsRequest.API_KEY, lowest, highest)
            exchange.answer(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (own,)), now_ms)
            return
        code = self._faults.refusal(exchange)
        if not code and version >= NAMES_CLIENT_SINCE and not _names_a_client(request):
            code = ErrorCode.INVALID_REQUEST
        if code:
            exchange.answer(ApiVersionsResponse(error_code=code), now_ms)
            return
        is_old = version < FEATURES_FROM_0_SINCE
        response = ApiVersionsResponse(
            api_keys=self._api_keys,
            supported_features=tuple(each for each in self._supported if each.min_version or not is_old),
            finalized_features_epoch=1,
            finalized_features=self._finalized,
        )
        exchange.answer(response, now_ms)

    # Metadata.

    def metadata(self, exchange: Exchange, request: MetadataRequest, now_ms: int) -> None:
        if code := _refusal_of_all(request, exchange.version):
            asked = request.topics or ()
            refused = tuple(MetadataResponseTopic(code, each.name or "", each.topic_id) for each in asked)
            exchange.answer(MetadataResponse(brokers=(), topics=refused, error_code=code), now_ms)
            return
        topics = self._all(exchange, request) if request.topics is None else self._asked(exchange, request, now_ms)
        up = self._nodes.up
        exchange.answer(
            MetadataResponse(
                brokers=tuple(MetadataResponseBroker(each.node_id, each.host, each.port, each.rack) for each in up),
                cluster_id=self._cluster_id,
                controller_id=up[0].node_id if up else -1,
                topics=tuple(topics),
                cluster_authorized_operations=(
                    CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
                ),
            ),
            now_ms,
        )

    def _all(self, exchange: Exchange, request: MetadataRequest) -> Iterable[MetadataResponseTopic]:
        return [self._told(exchange, request, topic) for topic in self._topics]

    def _asked(self, exchange: Exchange, request: MetadataRequest, now_ms: int) -> Iterable[MetadataResponseTopic]:
        """Each topic once, in the order of the request, except that unknown ids come first and unknown names last
        (KafkaApis.handleTopicMetadataRequest).
        """
        asked = tuple(dict.fromkeys(request.topics or ()))
        by_id = tuple(each for each in asked if each.topic_id != ZERO_UUID)
        if by_id:
            unknown_first = sorted(by_id, key=lambda each: self._topics.by_id(each.topic_id) is not None)
            return [self._by_id(exchange, request, each) for each in unknown_first]
        names = sorted((each.name or "" for each in asked), key=lambda name: self._topics.get(name) is None)
        return [self._by_name(exchange, request, each, now_ms) for each in names]

    def _by_id(
        self, exchange: Exchange, request: MetadataRequest, asked: MetadataRequestTopic
    ) -> MetadataResponseTopic:
        topic = self._topics.by_id(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
        return self._told(exchange, request, topic)

    def _by_name(self, exchange: Exchange, request: MetadataRequest, name: str, now_ms: int) -> MetadataResponseTopic:
        topic = self._topics.get(name)
        if topic is not None:
            return self._told(exchange, request, topic)
        place = Place(topic=name)
        code = self._faults.refusal(exchange, place)
        if not code:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if refusal_of_name(name, self._topics) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif request.allow_auto_topic_creation and self._settings["auto.create.topics.enable"]:
                # This answer says that the topic does not exist; the next one will have it
                # (DefaultAutoTopicCreationManager).
                self._create(name, now_ms)
            code = self._faults.denial(exchange, place) or code
        return MetadataResponseTopic(code, name)

    def _create(self, name: str, now_ms: int) -> None:
        settings = self._settings
        factor = min(settings["default.replication.factor"], len(self._nodes))
        self._topics.create(name, settings["num.partitions"], now_ms, replication_factor=factor)

    def _told(self, exchange: Exchange, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
        place = Place(topic=topic.name)
        if code := self._faults.refusal(exchange, place) or self._faults.denial(exchange, place):
            return MetadataResponseTopic(code, topic.name, topic.topic_id)
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=tuple(self._partition(exchange, each) for each in topic.partitions),
            topic_authorized_operations=(
                TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
            ),
        )

    def _partition(self, exchange: Exchange, partition: Partition) -> MetadataResponsePartition:
        live = self._nodes.live(partition.replicas)
        fault = ErrorCode.NONE
        if self._faults.is_set:
            place = Place(topic=partition.topic.name, partition=partition.index)
            fault = self._faults.refusal(exchange, place) or self._faults.denial(exchange, place)
        has_leader = self._nodes.is_up(partition.leader) and fault is not ErrorCode.LEADER_NOT_AVAILABLE
        code = fault or (ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE)
        replicas = partition.replicas
        if exchange.version == 0:
            # The oldest clients do not get replicas whose nodes are down (errorUnavailableEndpoints).
            if has_leader and len(live) < len(replicas) and not fault:
                code = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas = live
        return MetadataResponsePartition(
            error_code=code,
            partition_index=partition.index,
            leader_id=partition.leader if has_leader else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=live,
            offline_replicas=tuple(each for each in partition.replicas if each not in live),
        )


def _names_a_client(request: ApiVersionsRequest) -> bool:
    return all(
        CLIENT_NAME.fullmatch(text) is not None
        for text in (request.client_software_name, request.client_software_version)
    )


def _refusal_of_all(request: MetadataRequest, version: int) -> ErrorCode:
    """Why the whole request is refused, or NONE. The answer then has no nodes (MetadataRequest.getErrorResponse)."""
    topics = request.topics or ()
    is_unnamed = any(each.name is None for each in topics)
    has_id = any(each.topic_id != ZERO_UUID for each in topics)
    if version < BY_ID_SINCE:
        return ErrorCode.INVALID_REQUEST if is_unnamed or has_id else ErrorCode.NONE
    # Kafka does not handle a topic with neither a name nor an id.
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_unnamed and not has_id else ErrorCode.NONE
