"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), as ControllerApis and ReplicationControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.topic_config import effective_settings
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Topic, Topics
    from aiogroup.embedded.machine.refusals import Troubles
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["TopicRequests"]

ITS_OWN = -1
"""As a number of partitions or replicas: the cluster's default, or the number in the assignments."""
METADATA_TOPIC = "__cluster_metadata"
MAX_NEW_PARTITIONS = 10_000
"""The limit of one request: the largest batch of Kafka's controller (QuorumController.MAX_RECORDS_PER_USER_OP)."""


class Nodes(Protocol):
    """The questions about nodes when replicas are placed."""

    def get(self, node_id: int, /) -> object | None:
        """A node that the cluster has, whether it is up or not."""

    def live(self, replicas: Iterable[int], /) -> tuple[int, ...]:
        """The replicas whose nodes are up."""

    def __len__(self) -> int: ...


class RefusedTopicError(Exception):
    """The refusal of one topic of a request."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


LATE = ErrorCode.REQUEST_TIMED_OUT
"""The answer to a request that gives the controller no time at all; nothing is done."""


class TopicRequests:
    """Makes and deletes topics, and adds partitions, for administrators."""

    def __init__(self, topics: Topics, nodes: Nodes, settings: Settings, faults: Faults, troubles: Troubles) -> None:
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults
        self._troubles = troubles

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            CreateTopicsRequest: self.create_topics,
            DeleteTopicsRequest: self.delete_topics,
            CreatePartitionsRequest: self.create_partitions,
        }

    def _look_before(self, exchange: Exchange, name: str) -> None:
        if self._faults.is_set and (code := self._faults.refusal(exchange, Place(topic=name))):
            raise RefusedTopicError(code)

    def _look_after(self, exchange: Exchange, name: str) -> None:
        if self._faults.is_set and (code := self._faults.denial(exchange, Place(topic=name))):
            raise RefusedTopicError(code)

    # CreateTopics.

    def create_topics(self, exchange: Exchange, request: CreateTopicsRequest, now_ms: int) -> None:
        if request.timeout_ms <= 0:
            late = tuple(
                CreatableTopicResult(each.name, error_code=LATE, error_message=None) for each in request.topics
            )
            exchange.answer(CreateTopicsResponse(topics=late), now_ms)
            return
        # Names are compared with the names of existing topics, and not with each other.
        refusals = {each.name: refusal_of_name(each.name, self._topics) for each in request.topics}
        results = []
        counts = Counter(asked.name for asked in request.topics)
        new_count = sum(len(asked.assignments) or max(asked.num_partitions, 1) for asked in request.topics)
        for asked in request.topics:
            if counts[asked.name] > 1:
                continue
            try:
                self._look_before(exchange, asked.name)
                result = self._create(asked, refusals[asked.name], new_count, request.validate_only, now_ms)
                self._look_after(exchange, asked.name)
            except RefusedTopicError as refused:
                result = CreatableTopicResult(asked.name, error_code=refused.code, error_message=refused.message)
                self._troubles.note_settings(exchange.client_id, f"topic {asked.name}", refused.message, now_ms)
            results.append(result)
        for name, count in counts.items():
            if count > 1:
                code = ErrorCode.INVALID_REQUEST
                results.append(CreatableTopicResult(name, error_code=code, error_message="Duplicate topic name."))
        exchange.answer(CreateTopicsResponse(topics=tuple(results)), now_ms)

    def _create(
        self, asked: CreatableTopic, message: str | None, new_count: int, validate_only: bool, now_ms: int
    ) -> CreatableTopicResult:
        if new_count >= MAX_NEW_PARTITIONS:
            raise RefusedTopicError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        if asked.name == METADATA_TOPIC:
            raise RefusedTopicError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            )
        if self._topics.get(asked.name) is not None:
            raise RefusedTopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
        if message is not None:
            raise RefusedTopicError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        config = {each.name: each.value for each in asked.configs}
        if (message := self._settings.topic_refusal(config)) is not None:
            raise RefusedTopicError(ErrorCode.INVALID_CONFIG, message)
        known = {name: value for name, value in config.items() if value is not None}
        assignments = self._assignments(asked)
        partitions_count, factor = self._numbers(asked, assignments)
        if validate_only:
            topic_id = self._topics.new_id()
        else:
            topic = self._topics.create(
                asked.name,
                partitions_count,
                now_ms,
                replication_factor=factor,
                assignments=assignments,
                config=known,
            )
            topic_id = topic.topic_id
            self._lead(topic, 0)
        return CreatableTopicResult(
            asked.name,
            topic_id,
            error_message=None,
            num_partitions=partitions_count,
            replication_factor=factor,
            configs=tuple(
                CreatableTopicConfigs(each.name, each.value, config_source=each.source)
                for each in effective_settings(self._settings, known)
            ),
        )

    def _lead(self, topic: Topic, from_index: int) -> None:
        """New partitions are led by the first replica that is up, in their first epoch."""
        for partition in topic.partitions[from_index:]:
            partition.leader = next(iter(self._nodes.live(partition.replicas)), -1)

    def _numbers(self, asked: CreatableTopic, assignments: list[tuple[int, ...]] | None) -> tuple[int, int]:
        """The number of partitions, and of replicas."""
        if assignments is not None:
            return len(assignments), len(assignments[0])
        partitions_count, factor = asked.num_partitions, asked.replication_factor
        if factor < ITS_OWN or factor == 0:
            raise RefusedTopicError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if partitions_count < ITS_OWN or partitions_count == 0:
            raise RefusedTopicError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if factor == ITS_OWN:
            factor = self._settings["default.replication.factor"]
        if factor > len(self._nodes):
            raise RefusedTopicError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot "
                f"be reached because only {len(self._nodes)} broker(s) are registered.",
            )
        return (self._settings["num.partitions"] if partitions_count == ITS_OWN else partitions_count), factor

    def _assignments(self, asked: CreatableTopic) -> list[tuple[int, ...]] | None:
        """The replicas of each partition, if the request names them."""
        if not asked.assignments:
            return None
        for number, what in ((asked.replication_factor, "replication factor"), (asked.num_partitions, "numPartitions")):
            if number != ITS_OWN:
                raise RefusedTopicError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        by_index: dict[int, tuple[int, ...]] = {}
        for each in asked.assignments:
            if each.partition_index in by_index:
                raise RefusedTopicError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {each.partition_index}",
                )
            factor = len(next(iter(by_index.values()))) if by_index else None
            self._check_replicas(each.partition_index, each.broker_ids, factor)
            by_index[each.partition_index] = each.broker_ids
        if sorted(by_index) != list(range(len(by_index))):
            raise RefusedTopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return [by_index[index] for index in range(len(by_index))]

    def _check_replicas(self, index: int, replicas: Sequence[int], factor: int | None) -> None:
        """ReplicationControlManager.validateManualPartitionAssignment."""
        message = None
        strangers = [each for each in sorted(replicas) if self._nodes.get(each) is None]
        repeated = [each for each, count in sorted(Counter(replicas).items()) if count > 1]
        if not replicas:
            message = "The manual partition assignment includes an empty replica list."
        elif strangers:
            message = (
                f"The manual partition assignment includes broker {strangers[0]}, but no such broker is registered."
            )
        elif repeated:
            message = f"The manual partition assignment includes the broker {repeated[0]} more than once."
        elif factor is not None and len(replicas) != factor:
            message = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )
        elif not self._nodes.live(replicas):
            message = (
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        if message is not None:
            raise RefusedTopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

    # DeleteTopics.

    def delete_topics(self, exchange: Exchange, request: DeleteTopicsRequest, now_ms: int) -> None:
        topics = request.topics or tuple(map(DeleteTopicState, request.topic_names))
        if request.timeout_ms <= 0:
            late = tuple(DeletableTopicResult(each.name, each.topic_id, LATE) for each in topics)
            exchange.answer(DeleteTopicsResponse(responses=late), now_ms)
            return
        results = []
        counts = Counter((asked.name, asked.topic_id) for asked in topics)
        for each in self._topics_named_twice(topics):
            del counts[None, each.topic_id], counts[each.name, ZERO_UUID]
            why = "The provided topic name maps to an ID that was already supplied."
            results.append(DeletableTopicResult(each.name, each.topic_id, ErrorCode.INVALID_REQUEST, why))
        for (name, topic_id), count in counts.items():
            try:
                result = self._delete(exchange, DeleteTopicState(name, topic_id), count > 1, now_ms)
            except RefusedTopicError as refused:
                result = DeletableTopicResult(name, topic_id, refused.code, refused.message)
            results.append(result)
        exchange.answer(DeleteTopicsResponse(responses=tuple(results)), now_ms)

    def _topics_named_twice(self, wanted: tuple[DeleteTopicState, ...]) -> list[Topic]:
        """The topics that are asked for both by name and by id."""
        ids = {asked.topic_id for asked in wanted if asked.name is None}
        names = dict.fromkeys(asked.name for asked in wanted if asked.topic_id == ZERO_UUID)
        topics = (self._topics.get(name) for name in names if name is not None)
        return [topic for topic in topics if topic is not None and topic.topic_id in ids]

    def _delete(
        self, exchange: Exchange, asked: DeleteTopicState, is_repeated: bool, now_ms: int
    ) -> DeletableTopicResult:
        has_id = asked.topic_id != ZERO_UUID
        if asked.name is None and not has_id:
            raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if asked.name is not None and has_id:
            raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if is_repeated:
            what = "id" if has_id else "name"
            raise RefusedTopicError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
        topic = self._topics.by_id(asked.topic_id) if asked.name is None else self._topics.get(asked.name)
        self._look_before(exchange, asked.name or (topic.name if topic else ""))
        if topic is None:
            if has_id:
                raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            raise RefusedTopicError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        self._topics.delete(topic, now_ms)
        self._look_after(exchange, topic.name)
        return DeletableTopicResult(topic.name, topic.topic_id)

    # CreatePartitions.

    def create_partitions(self, exchange: Exchange, request: CreatePartitionsRequest, now_ms: int) -> None:
        if request.timeout_ms <= 0:
            late = tuple(CreatePartitionsTopicResult(each.name, LATE) for each in request.topics)
            exchange.answer(CreatePartitionsResponse(results=late), now_ms)
            return
        results = []
        counts = Counter(asked.name for asked in request.topics)
        for name, count in counts.items():
            if count > 1:
                code = ErrorCode.INVALID_REQUEST
                results.append(CreatePartitionsTopicResult(name, code, "Duplicate topic name."))
        for asked in request.topics:
            if counts[asked.name] > 1:
                continue
            result = CreatePartitionsTopicResult(asked.name)
            try:
                self._look_before(exchange, asked.name)
                self._add_partitions(asked, request.validate_only, now_ms)
                self._look_after(exchange, asked.name)
            except RefusedTopicError as refused:
                result = CreatePartitionsTopicResult(asked.name, refused.code, refused.message)
            results.append(result)
        exchange.answer(CreatePartitionsResponse(results=tuple(results)), now_ms)

    def _add_partitions(self, asked: CreatePartitionsTopic, validate_only: bool, now_ms: int) -> None:
        topic = self._topics.get(asked.name)
        if topic is None:
            raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        count = len(topic.partitions)
        if asked.count == count:
            raise RefusedTopicError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
        if asked.count < count:
            raise RefusedTopicError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {count} partition(s); {asked.count} would not be an increase.",
            )
        if asked.count - count > MAX_NEW_PARTITIONS:
            # The controller's batch becomes too large, which Kafka does not handle here.
            raise RefusedTopicError(ErrorCode.UNKNOWN_SERVER_ERROR)
        factor = len(topic.partitions[0].replicas)
        assignments = None
        if asked.assignments is not None:
            assignments = [each.broker_ids for each in asked.assignments]
            if len(assignments) != asked.count - count:
                raise RefusedTopicError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Attempted to add {asked.count - count} additional partition(s), but only {len(assignments)} "
                    "assignment(s) were specified.",
                )
            for index, replicas in enumerate(assignments, count):
                self._check_replicas(index, replicas, factor)
        if not validate_only:
            self._topics.add_partitions(
                topic, asked.count - count, now_ms, replication_factor=factor, assignments=assignments
            )
            self._lead(topic, count)
