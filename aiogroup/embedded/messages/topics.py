"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT8,
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

LAST_BY_NAME = 5
"""Up to this version DeleteTopics names topics by name alone."""


@structure
class CreatableTopicConfigs(Structure):
    """One setting of a new topic (KIP-525)."""

    name: str = wire(STRING, since=5)
    value: str | None = wire(STRING, since=5, nullable=5)
    read_only: bool = wire(BOOLEAN, since=5)
    config_source: int = wire(INT8, since=5, default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOLEAN, since=5)


@structure
class CreatableTopicResult(Structure):
    """What became of one topic. `configs` is null where `topic_config_error_code` says why it is missing."""

    name: str = wire(STRING)
    topic_id: UUID = wire(UUID16, since=7, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, nullable=0, ignorable=True)
    topic_config_error_code: int = wire(INT16, since=5, tag=0, ignorable=True)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        array(CreatableTopicConfigs), since=5, nullable=5, ignorable=True
    )


@structure
class CreateTopicsResponse(Response):
    """What became of each topic."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(array(CreatableTopicResult))


@structure
class CreatableReplicaAssignment(Structure):
    """The nodes of one partition, the preferred leader first."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(array(INT32))


@structure
class CreatableTopicConfig(Structure):
    """One setting."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@structure
class CreatableTopic(Structure):
    """One topic; -1 as `num_partitions` and `replication_factor` stands for the cluster's own, or for `assignments`."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(array(CreatableTopicConfig))


@structure
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Makes topics; `validate_only` looks whether they could be made."""

    API_KEY = 19
    MIN_VERSION = 2
    MAX_VERSION = 7
    FLEXIBLE_SINCE = 5
    RESPONSE = CreateTopicsResponse

    topics: tuple[CreatableTopic, ...] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60_000)
    validate_only: bool = wire(BOOLEAN, since=1)


@structure
class DeletableTopicResult(Structure):
    """What became of one topic; `name` is null where an id was not found."""

    name: str | None = wire(STRING, nullable=6)
    topic_id: UUID = wire(UUID16, since=6, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)


@structure
class DeleteTopicsResponse(Response):
    """What became of each topic."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(array(DeletableTopicResult))


@structure
class DeleteTopicState(Structure):
    """One topic, by its name or by its id."""

    name: str | None = wire(STRING, since=6, nullable=6, default=None)
    topic_id: UUID = wire(UUID16, since=6)


@structure
class TopicsByName(Structure):
    """The request up to version 5."""

    topic_names: tuple[str, ...] = wire(array(STRING))
    timeout_ms: int = wire(INT32)


@structure
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Deletes topics, by id since version 6."""

    API_KEY = 20
    MIN_VERSION = 1
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 4
    RESPONSE = DeleteTopicsResponse

    topics: tuple[DeleteTopicState, ...] = wire(array(DeleteTopicState), since=6)
    timeout_ms: int = wire(INT32)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return TopicsByName if version <= LAST_BY_NAME else cls

    def lower(self, version: int) -> Structure:
        if version > LAST_BY_NAME:
            return self
        names = tuple(topic.name for topic in self.topics if topic.name is not None)
        if len(names) != len(self.topics):
            raise UnsupportedVersionError(f"version {version} of DeleteTopicsRequest names topics by name")
        return TopicsByName(names, self.timeout_ms)

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        if version > LAST_BY_NAME:
            return form  # type: ignore[no-any-return]
        return cls(tuple(DeleteTopicState(name) for name in form.topic_names), form.timeout_ms)


@structure
class CreatePartitionsTopicResult(Structure):
    """What became of one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@structure
class CreatePartitionsResponse(Response):
    """What became of each topic."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(array(CreatePartitionsTopicResult))


@structure
class CreatePartitionsAssignment(Structure):
    """The nodes of one new partition."""

    broker_ids: tuple[int, ...] = wire(array(INT32))


@structure
class CreatePartitionsTopic(Structure):
    """One topic; `count` is the number of its partitions afterwards, null `assignments` leave the nodes to Kafka."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(array(CreatePartitionsAssignment), nullable=0)


@structure
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Adds partitions; `validate_only` looks whether they could be added."""

    API_KEY = 37
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2
    RESPONSE = CreatePartitionsResponse

    topics: tuple[CreatePartitionsTopic, ...] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOLEAN)
