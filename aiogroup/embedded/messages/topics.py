"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    array,
    structure,
    wire,
)

if TYPE_CHECKING:
    from uuid import UUID


@structure
class CreatableTopicConfigs(Structure):
    """Configuration of the topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOLEAN)
    config_source: int = wire(INT8, default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOLEAN)


@structure
class CreatableTopicResult(Structure):
    """Results for each topic we tried to create."""

    name: str = wire(STRING)
    topic_id: UUID = wire(UUID16, since=7, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, nullable=1, ignorable=True)
    topic_config_error_code: int = wire(INT16, since=5, tag=0, ignorable=True)
    num_partitions: int = wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = wire(INT16, since=5, default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        array(CreatableTopicConfigs), since=5, nullable=5, ignorable=True
    )


@structure
class CreateTopicsResponse(Response):
    """The answer to `CreateTopicsRequest`."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = wire(array(CreatableTopicResult))


@structure
class CreatableReplicaAssignment(Structure):
    """The manual partition assignment, or the empty array if we are using automatic assignment."""

    partition_index: int = wire(INT32)
    broker_ids: tuple[int, ...] = wire(array(INT32))


@structure
class CreatableTopicConfig(Structure):
    """The custom topic configurations to set."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@structure
class CreatableTopic(Structure):
    """The topics to create."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = wire(array(CreatableTopicConfig))


@structure
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Makes topics; `validate_only` looks whether they could be made. -1 as `num_partitions` and `replication_factor`
    stands for the cluster's own, or for `assignments`.
    """

    API_KEY = 19
    MIN_VERSION = 2
    MAX_VERSION = 7
    FLEXIBLE_SINCE = 5
    RESPONSE = CreateTopicsResponse

    topics: tuple[CreatableTopic, ...] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOLEAN, since=1)


@structure
class DeletableTopicResult(Structure):
    """The results for each topic we tried to delete."""

    name: str | None = wire(STRING, nullable=6)
    topic_id: UUID = wire(UUID16, since=6, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)


@structure
class DeleteTopicsResponse(Response):
    """The answer to `DeleteTopicsRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(array(DeletableTopicResult))


@structure
class DeleteTopicState(Structure):
    """The name or topic ID of the topic."""

    name: str | None = wire(STRING, nullable=0, default=None)
    topic_id: UUID = wire(UUID16)


@structure
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Deletes `topic_names`; since version 6 `topics`, by name or by id, of which an unknown one has no name in the
    answer.
    """

    API_KEY = 20
    MIN_VERSION = 1
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 4
    RESPONSE = DeleteTopicsResponse

    topics: tuple[DeleteTopicState, ...] = wire(array(DeleteTopicState), since=6)
    topic_names: tuple[str, ...] = wire(array(STRING), until=5, ignorable=True)
    timeout_ms: int = wire(INT32)


@structure
class CreatePartitionsTopicResult(Structure):
    """The partition creation results for each topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@structure
class CreatePartitionsResponse(Response):
    """The answer to `CreatePartitionsRequest`."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(array(CreatePartitionsTopicResult))


@structure
class CreatePartitionsAssignment(Structure):
    """The new partition assignments."""

    broker_ids: tuple[int, ...] = wire(array(INT32))


@structure
class CreatePartitionsTopic(Structure):
    """Each topic that we want to create new partitions inside."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(array(CreatePartitionsAssignment), nullable=0)


@structure
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Adds partitions until there are `count`; null `assignments` leave the nodes to Kafka, and `validate_only` looks
    whether they could be added.
    """

    API_KEY = 37
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2
    RESPONSE = CreatePartitionsResponse

    topics: tuple[CreatePartitionsTopic, ...] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOLEAN)
