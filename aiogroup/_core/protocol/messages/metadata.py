"""Metadata (3): brokers, topics, and who leads which partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    STRING,
    UUID16,
    Request,
    Response,
    Structure,
    Value,
    array,
    structure,
    wire,
)
from aiogroup.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from uuid import UUID

NOT_ASKED = -0x8000_0000
"""Authorized operations that were not asked for."""


@structure
class MetadataResponseBroker(Structure):
    """One broker, at the address of the listener that was asked."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, nullable=1, default=None, ignorable=True)


@structure
class MetadataResponsePartition(Structure):
    """One partition; `leader_id` is -1 without a leader."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    offline_replicas: tuple[int, ...] = wire(array(INT32), since=5, ignorable=True)


@structure
class MetadataResponseTopic(Structure):
    """One topic; `name` is None if the requested topic id is unknown."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable=12)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    is_internal: bool = wire(BOOLEAN, since=1, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = wire(array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, since=8, default=NOT_ASKED)


@structure
class MetadataResponse(Response):
    """The cluster as one broker sees it."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = wire(array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = wire(INT32, since=1, default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = wire(array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=NOT_ASKED)
    error_code: int = wire(INT16, since=13, ignorable=True)


@structure
class MetadataRequestTopic(Structure):
    """A topic by name, or since version 12 by id with `name=None`."""

    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    name: str | None = wire(STRING, nullable=10)


@structure
class MetadataRequest(Request[MetadataResponse]):
    """Asks for `topics`; None asks for all, an empty tuple for the brokers alone."""

    API_KEY = 3
    MIN_VERSION = 0
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9
    RESPONSE = MetadataResponse

    topics: tuple[MetadataRequestTopic, ...] | None = wire(array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = wire(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOLEAN, since=8, until=10)
    include_topic_authorized_operations: bool = wire(BOOLEAN, since=8)

    def lower(self, version: int) -> Structure:
        # Brokers accept ids without names since version 12, though the schema has ids since 10 (KIP-516).
        if version < 12 and any(topic.topic_id != ZERO_UUID and topic.name is None for topic in self.topics or ()):
            raise UnsupportedVersionError(
                f"version {version} of MetadataRequest cannot ask by topic id: name the topics"
            )
        if version > 0:
            return self
        if self.topics == ():
            raise UnsupportedVersionError("version 0 of MetadataRequest cannot ask for no topics: no topics mean all")
        return MetadataRequest(
            self.topics or (),
            self.allow_auto_topic_creation,
            self.include_cluster_authorized_operations,
            self.include_topic_authorized_operations,
        )

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        return cls(topics=None) if version == 0 and not form.topics else form
