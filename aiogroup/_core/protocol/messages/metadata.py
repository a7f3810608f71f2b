"""Metadata (3).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
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
class MetadataResponseBroker(Structure):
    """A list of brokers present in the cluster."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, nullable=1, default=None, ignorable=True)


@structure
class MetadataResponsePartition(Structure):
    """Each partition in the topic."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    offline_replicas: tuple[int, ...] = wire(array(INT32), since=5, ignorable=True)


@structure
class MetadataResponseTopic(Structure):
    """Each topic in the response."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable=12)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    is_internal: bool = wire(BOOLEAN, since=1, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, since=8, default=-2147483648)


@structure
class MetadataResponse(Response):
    """The answer to `MetadataRequest`."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = wire(INT32, since=1, default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=-2147483648)
    error_code: int = wire(INT16, since=13, ignorable=True)


@structure
class MetadataRequestTopic(Structure):
    """The topics to fetch metadata for."""

    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    name: str | None = wire(STRING, nullable=10)


@structure
class MetadataRequest(Request[MetadataResponse]):
    """Asks for brokers and `topics`: None asks for all, an empty tuple for the brokers alone. A topic is asked for by
    name, or since version 12 by id with `name=None`, which is also the name of one that is unknown.
    """

    API_KEY = 3
    MIN_VERSION = 0
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9
    RESPONSE = MetadataResponse

    topics: tuple[MetadataRequestTopic, ...] | None = wire(array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = wire(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOLEAN, since=8, until=10)
    include_topic_authorized_operations: bool = wire(BOOLEAN, since=8)
