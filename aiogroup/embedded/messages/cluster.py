"""DescribeCluster (60), DescribeTopicPartitions (75), DescribeLogDirs (35), ElectLeaders (43),
ListPartitionReassignments (46).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
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
class DescribeClusterBroker(Structure):
    """Each broker in the response."""

    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)
    is_fenced: bool = wire(BOOLEAN, since=2)


@structure
class DescribeClusterResponse(Response):
    """The answer to `DescribeClusterRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=-2147483648)


@structure
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Asks for the nodes (KIP-700); `endpoint_type` is 1 for brokers, 2 for controllers."""

    API_KEY = 60
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RESPONSE = DescribeClusterResponse

    include_cluster_authorized_operations: bool = wire(BOOLEAN)
    endpoint_type: int = wire(INT8, since=1, default=1)
    include_fenced_brokers: bool = wire(BOOLEAN, since=2)


@structure
class DescribeTopicPartitionsResponsePartition(Structure):
    """Each partition in the topic."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire(array(INT32))
    isr_nodes: tuple[int, ...] = wire(array(INT32))
    eligible_leader_replicas: tuple[int, ...] | None = wire(array(INT32), nullable=0, default=None)
    last_known_elr: tuple[int, ...] | None = wire(array(INT32), nullable=0, default=None)
    offline_replicas: tuple[int, ...] = wire(array(INT32), ignorable=True)


@structure
class DescribeTopicPartitionsResponseTopic(Structure):
    """Each topic in the response."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable=0)
    topic_id: UUID = wire(UUID16, ignorable=True)
    is_internal: bool = wire(BOOLEAN, ignorable=True)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(INT32, default=-2147483648)


@structure
class Cursor(Structure):
    """The next topic and partition index to fetch details for."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@structure
class DescribeTopicPartitionsResponse(Response):
    """The answer to `DescribeTopicPartitionsRequest`."""

    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = wire(Cursor, nullable=0, default=None)


@structure
class TopicRequest(Structure):
    """The topics to fetch details for."""

    name: str = wire(STRING)


@structure
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    """Asks for partitions in pages (KIP-966); `next_cursor` is null on the last."""

    API_KEY = 75
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RESPONSE = DescribeTopicPartitionsResponse

    topics: tuple[TopicRequest, ...] = wire(array(TopicRequest))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: Cursor | None = wire(Cursor, nullable=0, default=None)


@structure
class DescribeLogDirsPartition(Structure):
    """The partitions."""

    partition_index: int = wire(INT32)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOLEAN)


@structure
class DescribeLogDirsTopic(Structure):
    """The topics."""

    name: str = wire(STRING)
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(array(DescribeLogDirsPartition))


@structure
class DescribeLogDirsResult(Structure):
    """The log directories."""

    error_code: int = wire(INT16)
    log_dir: str = wire(STRING)
    topics: tuple[DescribeLogDirsTopic, ...] = wire(array(DescribeLogDirsTopic))
    total_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = wire(BOOLEAN, since=5, ignorable=True)


@structure
class DescribeLogDirsResponse(Response):
    """The answer to `DescribeLogDirsRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, since=3, ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(array(DescribeLogDirsResult))


@structure
class DescribableLogDirTopic(Structure):
    """Each topic that we want to describe log directories for, or null for all topics."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """Asks one node for the sizes of logs; null `topics` stand for all."""

    API_KEY = 35
    MIN_VERSION = 1
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 2
    RESPONSE = DescribeLogDirsResponse

    topics: tuple[DescribableLogDirTopic, ...] | None = wire(array(DescribableLogDirTopic), nullable=0)


@structure
class PartitionResult(Structure):
    """The results for each partition."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)


@structure
class ReplicaElectionResult(Structure):
    """The election results, or an empty array if the requester did not have permission and the request asks for all
    partitions.
    """

    topic: str = wire(STRING)
    partition_result: tuple[PartitionResult, ...] = wire(array(PartitionResult))


@structure
class ElectLeadersResponse(Response):
    """The answer to `ElectLeadersRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, since=1)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(array(ReplicaElectionResult))


@structure
class ElectableTopic(Structure):
    """The topic partitions to elect leaders."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """Elects preferred (0) or unclean (1) leaders (KIP-460); null stands for all partitions."""

    API_KEY = 43
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2
    RESPONSE = ElectLeadersResponse

    election_type: int = wire(INT8, since=1)
    topic_partitions: tuple[ElectableTopic, ...] | None = wire(array(ElectableTopic), nullable=0)
    timeout_ms: int = wire(INT32, default=60000)


@structure
class OngoingPartitionReassignment(Structure):
    """The ongoing reassignments for each partition."""

    partition_index: int = wire(INT32)
    replicas: tuple[int, ...] = wire(array(INT32))
    adding_replicas: tuple[int, ...] = wire(array(INT32))
    removing_replicas: tuple[int, ...] = wire(array(INT32))


@structure
class OngoingTopicReassignment(Structure):
    """The ongoing reassignments for each topic."""

    name: str = wire(STRING)
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(array(OngoingPartitionReassignment))


@structure
class ListPartitionReassignmentsResponse(Response):
    """The answer to `ListPartitionReassignmentsRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    topics: tuple[OngoingTopicReassignment, ...] = wire(array(OngoingTopicReassignment))


@structure
class ListPartitionReassignmentsTopics(Structure):
    """The topics to list partition reassignments for, or null to list everything."""

    name: str = wire(STRING)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@structure
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """Asks which replicas move (KIP-455); null `topics` stand for all."""

    API_KEY = 46
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RESPONSE = ListPartitionReassignmentsResponse

    timeout_ms: int = wire(INT32, default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        array(ListPartitionReassignmentsTopics), nullable=0, default=None
    )
