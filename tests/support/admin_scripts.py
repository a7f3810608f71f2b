"""Requests of administrators, sent raw to a node of Kafka and to the embedded broker, and the answers.

Transcripts of Kafka 4.3.1 are kept in tests/embedded/admin/golden.json; `python -m tests.support.admin_scripts` records
them again. Left out: throttling, texts, hosts, ids, and whatever the node's own setting decides.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.embedded.machine.logs.batches import build
from aiogroup.embedded.messages.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    ElectableTopic,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    TopicRequest,
)
from aiogroup.embedded.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from aiogroup.embedded.messages.groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiogroup.embedded.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from aiogroup.embedded.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.embedded_clients import Machine
from tests.support.group_scripts import reads
from tests.support.log_scripts import LATE_SECONDS, RealBroker, Talk, some

GOLDEN = Path(__file__).parent.parent / "embedded" / "admin" / "golden.json"
UNKNOWN, ANY, TOPIC, NODE, LOGGER, METRICS, GROUP = 0, 1, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class RealAdmin(RealBroker):
    """A node of Kafka."""

    def __init__(self, address):
        super().__init__(address)
        self._marker = None

    def settle(self):
        """Wait until the node has applied all changes so far: it applies them in order, each as a whole."""
        if self._marker is None:
            self._marker = f"marker-{time.time_ns():x}"
            self.send(CreateTopicsRequest((CreatableTopic(self._marker, 1, 1),), 5_000), 5)
            self.await_leader(self._marker, 1)
        for _ in range(2):
            value = str(time.time_ns())
            change = AlterConfigsResource(TOPIC, self._marker, (AlterableConfig("flush.ms", value),))
            self.send(AlterConfigsRequest((change,)), 1)
            asked = DescribeConfigsRequest((DescribeConfigsResource(TOPIC, self._marker, ("flush.ms",)),))
            while self.send(asked, 1).results[0].configs[0].value != value:
                pass


DEVKAFKA = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "num.partitions": "1",
}
"""The settings that aiogroup/devkafka sets. Administrators see that they are set."""


class WholeMachine:
    """The embedded broker's machine, and one client of its first node."""

    def __init__(self, **options):
        self.machine = Machine(properties=DEVKAFKA, **options)
        self.machine.pass_ms(1_800_000_000_000)
        self._client = self.machine.client()

    @property
    def now_ms(self):
        return self.machine.now_ms

    def send(self, request, version):
        if self._client.is_closed:
            self._client = self.machine.client()
        answer = self._client.ask(request, version)
        return "closed" if self._client.is_closed else answer

    def await_leader(self, topic, partitions_count):
        assert len(self.machine.cluster.topics.get(topic).partitions) >= partitions_count

    def settle(self):
        pass


def code_of(message):
    return ErrorCode(message.error_code).name


class AdminTalk(Talk):
    """Sends a script's requests and records the answers. Groups get the same suffix as topics."""

    # Settings.

    def _resource(self, kind, name):
        return self.name(name) if kind in (TOPIC, GROUP, METRICS) else name

    def describe(self, *resources, version=4, synonyms=False, docs=False, shape=None):
        """`resources`: (kind, name, keys). `shape` picks what is recorded of a setting."""
        asked = tuple(
            DescribeConfigsResource(kind, self._resource(kind, name), *(keys or (None,)))
            for kind, name, *keys in resources
        )
        answer = self.broker.send(DescribeConfigsRequest(asked, synonyms, docs), version)
        if isinstance(answer, str):
            self.said("describe", answer)
            return
        for each in sorted(answer.results, key=lambda each: (each.resource_type, each.resource_name)):
            told = sorted(each.configs, key=lambda one: one.name)
            name = self.plain(each.resource_name)
            self.said("describe", version, each.resource_type, name, code_of(each), _shown(each))
            for one in told:
                self.said(*(shape or _whole)(one))

    def alter(self, *resources, version=2, validate_only=False):
        """`resources`: (kind, name, {setting: value})."""
        asked = tuple(
            AlterConfigsResource(kind, self._resource(kind, name), _pairs(AlterableConfig, config))
            for kind, name, config in resources
        )
        self._altered("alter", AlterConfigsRequest(asked, validate_only), version)

    def change(self, *resources, version=1, validate_only=False):
        """`resources`: (kind, name, [(setting, operation, value)])."""
        asked = tuple(
            IncrementalAlterConfigsResource(
                kind, self._resource(kind, name), tuple(IncrementalAlterableConfig(*each) for each in changes)
            )
            for kind, name, changes in resources
        )
        self._altered("change", IncrementalAlterConfigsRequest(asked, validate_only), version)

    def _altered(self, what, request, version):
        answer = self.broker.send(request, version)
        if isinstance(answer, str):
            self.said(what, answer)
            return
        for each in sorted(answer.responses, key=lambda each: (each.resource_type, each.resource_name)):
            self.said(what, each.resource_type, self.plain(each.resource_name), code_of(each), _shown(each))
        self.broker.settle()

    def own(self, topic):
        """The topic's own settings."""
        self.describe((TOPIC, topic), shape=lambda one: (one.name, one.value) if one.config_source == 1 else ())

    def said(self, *what):
        if what:
            super().said(*what)

    def resources(self, *kinds, version=1):
        answer = self.broker.send(ListConfigResourcesRequest(kinds), version)
        told = sorted(
            [each.resource_type, self.plain(each.resource_name)]
            for each in answer.config_resources
            if each.resource_type not in (TOPIC, GROUP) or each.resource_name.endswith(self._end)
        )
        self.said("resources", version, list(kinds), code_of(answer), told)

    # Groups.

    def coordinated(self, request, version):
        """The coordinator's answer, once it serves."""
        ends_at = time.monotonic() + LATE_SECONDS
        while answer_codes(answer := self.broker.send(request, version)) & NOT_YET:
            assert time.monotonic() < ends_at, answer
            self.broker.send(FindCoordinatorRequest(coordinator_keys=("any",)), 4)
        return answer

    def join(self, group, *topics, kind="consumer", metadata=None):
        """One member, which leads; returns its id."""
        about = reads(*map(self.name, topics)) if metadata is None else metadata
        offers = (JoinGroupRequestProtocol("range", about),)
        joined = self.coordinated(
            JoinGroupRequest(self.name(group), 30_000, 30_000, protocol_type=kind, protocols=offers), 3
        )
        self.said("join", group, code_of(joined))
        share = (SyncGroupRequestAssignment(joined.member_id, b""),)
        synced = self.broker.send(
            SyncGroupRequest(self.name(group), joined.generation_id, joined.member_id, assignments=share), 3
        )
        self.said("sync", group, code_of(synced))
        return joined.member_id

    def leave(self, group, member_id):
        self.said(
            "leave",
            code_of(self.broker.send(LeaveGroupRequest(self.name(group), members=(MemberIdentity(member_id),)), 2)),
        )

    def commit(self, group, *places):
        """`places`: (topic, partition)."""
        topics = tuple(
            OffsetCommitRequestTopic(
                self.name(topic), partitions=(OffsetCommitRequestPartition(partition, 5 + partition),)
            )
            for topic, partition in places
        )
        answer = self.coordinated(OffsetCommitRequest(self.name(group), topics=topics), 8)
        self.said("commit", group, [code_of(each) for topic in answer.topics for each in topic.partitions])

    def committed(self, group):
        asked = OffsetFetchRequestGroup(self.name(group), topics=None)
        (answer,) = self.coordinated(OffsetFetchRequest(groups=(asked,)), 8).groups
        told = sorted(
            [self.plain(topic.name), each.partition_index, each.committed_offset]
            for topic in answer.topics
            for each in topic.partitions
        )
        self.said("committed", group, code_of(answer), told)

    def delete_groups(self, *groups, version=2):
        answer = self.coordinated(DeleteGroupsRequest(tuple(map(self.name, groups))), version)
        told = sorted([self.plain(each.group_id), code_of(each)] for each in answer.results)
        self.said("delete groups", version, *told)

    def delete_offsets(self, group, *places):
        """`places`: (topic, partition)."""
        topics = tuple(
            OffsetDeleteRequestTopic(self.name(topic), tuple(map(OffsetDeleteRequestPartition, partitions)))
            for topic, *partitions in places
        )
        answer = self.coordinated(OffsetDeleteRequest(self.name(group), topics), 0)
        told = sorted(
            [self.plain(topic.name), each.partition_index, code_of(each)]
            for topic in answer.topics
            for each in topic.partitions
        )
        self.said("delete offsets", group, code_of(answer), told)

    # The cluster.

    def cluster(self, version, **asked):
        answer = self.broker.send(DescribeClusterRequest(**asked), version)
        nodes = [[each.broker_id, each.rack, each.is_fenced] for each in answer.brokers]
        operations = answer.cluster_authorized_operations
        self.said("cluster", version, code_of(answer), answer.endpoint_type, answer.controller_id, nodes, operations)

    def partitions(self, *topics, limit=2_000, cursor=None):
        asked = tuple(TopicRequest(self.name(each)) for each in topics)
        place = None if cursor is None else Cursor(self.name(cursor[0]), cursor[1])
        answer = self.broker.send(DescribeTopicPartitionsRequest(asked, limit, place), 0)
        if isinstance(answer, str):
            self.said("partitions", answer)
            return
        following = answer.next_cursor
        self.said("next", None if following is None else [self.plain(following.topic_name), following.partition_index])
        for each in answer.topics:
            operations = each.topic_authorized_operations
            has_id = each.topic_id != ZERO_UUID
            self.said("topic", self.plain(each.name or ""), code_of(each), has_id, each.is_internal, operations)
            for one in each.partitions:
                told = [*one.replica_nodes], [*one.isr_nodes], [*one.offline_replicas]
                eligible = [*one.eligible_leader_replicas], [*one.last_known_elr]
                self.said(one.partition_index, code_of(one), one.leader_id, one.leader_epoch, *told, *eligible)

    def elect(self, *topics, kind=0, version=2, timeout_ms=5_000):
        """`topics`: (name, partitions); none: all."""
        asked = tuple(ElectableTopic(self.name(name), tuple(partitions)) for name, *partitions in topics) or None
        answer = self.broker.send(ElectLeadersRequest(kind, asked, timeout_ms), version)
        told = [
            [self.plain(topic.topic), each.partition_id, code_of(each)]
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]
        self.said("elect", version, kind, code_of(answer), told)

    def moving(self, *topics):
        """`topics`: (name, partitions); none: all."""
        asked = tuple(ListPartitionReassignmentsTopics(self.name(name), tuple(each)) for name, *each in topics) or None
        answer = self.broker.send(ListPartitionReassignmentsRequest(5_000, asked), 0)
        self.said("moving", code_of(answer), len(answer.topics))


def answer_codes(message):
    """All error codes in an answer."""
    found = set()
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if name == "error_code":
            found.add(value)
        for each in value if isinstance(value, tuple) else ():
            if hasattr(type(each), "__dataclass_fields__"):
                found |= answer_codes(each)
    return found


def _pairs(kind, config):
    return tuple(kind(*each) for each in (config.items() if isinstance(config, dict) else config))


def _shown(result):
    """Whether there is a message. In some places Kafka sends an empty message, in others none."""
    return result.error_message and "text"


def _whole(one):
    synonyms = [[each.name, each.value, each.source] for each in one.synonyms]
    flags = int(one.read_only), int(one.is_sensitive)
    return one.name, one.value, one.config_source, *flags, one.config_type, synonyms


def _kind(one):
    """The shape of a node's setting without its value, which is the node's own."""
    return one.name, int(one.read_only), int(one.is_sensitive), one.config_type


SETTINGS = (
    "auto.create.topics.enable",
    "compression.type",
    "default.replication.factor",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "log.cleaner.delete.retention.ms",
    "log.cleanup.policy",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.segment.bytes",
    "max.connections",
    "max.incremental.fetch.session.cache.slots",
    "max.request.partition.size.limit",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.topic.num.partitions",
    "producer.id.expiration.ms",
    "replica.selector.class",
    "socket.request.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.num.partitions",
    "transactional.id.expiration.ms",
    "unclean.leader.election.enable",
)
"""Settings of nodes that the embedded broker has."""


def described_topics(talk):
    talk.create({"name": "set", "config": [("retention.ms", "5000"), ("cleanup.policy", "compact,delete")]})
    talk.describe((TOPIC, "set"), synonyms=True)
    some_keys = ["retention.ms", "cleanup.policy", "max.message.bytes"]
    for version in (1, 2, 3, 4):
        talk.describe((TOPIC, "set", tuple(some_keys)), version=version, synonyms=True)
        talk.describe((TOPIC, "set", tuple(some_keys)), version=version)
    talk.describe((TOPIC, "set", ()), shape=lambda one: (one.name,))
    talk.describe((TOPIC, "set", ("no.name", "retention.ms")), shape=lambda one: (one.name,))
    talk.describe((TOPIC, "none"), (TOPIC, "!/"), (TOPIC, ""), (TOPIC, "set", ("flush.ms",)))
    talk.describe((TOPIC, "set", ("flush.ms",)), (TOPIC, "set", ("retention.ms",)))
    talk.describe()


def described_nodes(talk):
    talk.describe((NODE, "1", SETTINGS), shape=_kind)
    talk.describe((NODE, "1", ("log.retention.ms", "num.partitions", "no.name")), synonyms=True)
    for name in ("", "2", "x"):
        talk.describe((NODE, name))
    talk.describe((METRICS, "none"), (METRICS, ""), (GROUP, ""))
    for name in ("", "2", "x"):
        talk.describe((LOGGER, name))
    for kind in (UNKNOWN, ANY, 3, 99):
        talk.describe((kind, "1"), (TOPIC, "none"))


def altered_topics(talk):
    talk.create({"name": "old", "config": [("retention.ms", "5000")]}, {"name": "two"})
    talk.own("old")
    for version in (0, 1, 2):
        talk.alter((TOPIC, "old", {"max.message.bytes": str(1000 + version), "flush.ms": "7"}), version=version)
        talk.own("old")
    talk.alter((TOPIC, "old", {"retention.ms": "9"}), validate_only=True)
    talk.alter((TOPIC, "old", {"retention.ms": "x"}), validate_only=True)
    talk.own("old")
    for config in (
        {"retention.ms": "x"},
        {"no.name": "1"},
        {"flush.ms": None},
        {"retention.ms": "1", "max.message.bytes": "-1"},
        [("flush.ms", "1"), ("flush.ms", "2")],
        {"cleanup.policy": "compact,drop"},
        {"cleanup.policy": ""},
        {"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "7"},
        {"compression.type": "zip"},
        {"min.insync.replicas": "0"},
    ):
        talk.alter((TOPIC, "old", config))
    talk.own("old")
    talk.alter((TOPIC, "old", {}))
    talk.own("old")
    talk.alter((TOPIC, "none", {"flush.ms": "1"}), (TOPIC, "two", {"flush.ms": "1"}), (TOPIC, "!/", {}))
    talk.alter((TOPIC, "none", {"flush.ms": "x"}))
    talk.alter((TOPIC, "", {"flush.ms": "1"}))
    talk.alter()
    for kind, name in ((UNKNOWN, "x"), (ANY, "x"), (3, "x"), (LOGGER, "1"), (99, "x"), (NODE, "2"), (NODE, "x")):
        talk.alter((kind, name, {"flush.ms": "1"}))


def changed_topics(talk):
    talk.create({"name": "new", "config": [("retention.ms", "5000")]}, {"name": "two"})
    for version in (0, 1):
        talk.change((TOPIC, "new", [("max.message.bytes", SET, str(2000 + version))]), version=version)
        talk.own("new")
    for changes in (
        [("retention.ms", DELETE, None), ("flush.ms", SET, "8")],
        [("retention.ms", DELETE, None)],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact,delete")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", APPEND, "drop")],
        [("cleanup.policy", DELETE, "whatever")],
        [("leader.replication.throttled.replicas", APPEND, "0:1,1:1")],
        [("leader.replication.throttled.replicas", APPEND, "1:1,2:1")],
        [("leader.replication.throttled.replicas", SUBTRACT, "1:1")],
        [("leader.replication.throttled.replicas", SUBTRACT, "0:1,2:1")],
        [("flush.ms", APPEND, "1")],
        [("flush.ms", SUBTRACT, "1")],
        [("flush.ms", 4, "1")],
        [("flush.ms", -1, "1")],
        [("flush.ms", SET, None)],
        [("cleanup.policy", APPEND, None)],
        [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)],
        [("no.name", SET, "1")],
        [("no.name", DELETE, None)],
        [("no.name", APPEND, "1")],
        [("flush.ms", SET, "x")],
        [("segment.bytes", SET, "5")],
        [("message.timestamp.type", SET, "Whenever")],
        [("message.timestamp.type", SET, "LogAppendTime")],
        [("retention.ms", SET, " 7 ")],
        [],
    ):
        talk.change((TOPIC, "new", changes))
        talk.own("new")
    talk.change((TOPIC, "new", [("flush.ms", SET, "9")]), validate_only=True)
    talk.change((TOPIC, "none", [("flush.ms", SET, "9")]), validate_only=True)
    talk.own("new")
    talk.change((TOPIC, "none", [("flush.ms", SET, "9")]), (TOPIC, "two", [("flush.ms", SET, "9")]))
    talk.change((TOPIC, "", [("flush.ms", SET, "9")]), (TOPIC, "!/", [("flush.ms", SET, "9")]))
    talk.change((TOPIC, "two", [("flush.ms", SET, "2")]), (TOPIC, "two", [("flush.ms", SET, "3")]))
    talk.own("two")
    talk.change()
    for kind, name in ((UNKNOWN, "x"), (ANY, "x"), (3, "x"), (99, "x"), (NODE, "2"), (NODE, "x")):
        talk.change((kind, name, [("flush.ms", SET, "1")]))


def changed_nodes(talk):
    """Changes settings of the whole cluster and of one node. In the end everything is as before."""
    talk.create({"name": "plain"})
    keys = "log.cleaner.delete.retention.ms", "message.max.bytes", "log.cleanup.policy"
    topic_keys = "delete.retention.ms", "max.message.bytes", "cleanup.policy"

    def look():
        talk.describe((NODE, "1", keys), synonyms=True)
        talk.describe((NODE, "", keys), synonyms=True)
        talk.describe((TOPIC, "plain", topic_keys), synonyms=True)

    look()
    for name, value in (("", "5"), ("1", "6")):
        talk.change((NODE, name, [("log.cleaner.delete.retention.ms", SET, value)]))
        look()
    talk.change((NODE, "", [("message.max.bytes", SET, "2000000")]), validate_only=True)
    talk.change((NODE, "", [("log.cleanup.policy", APPEND, "compact")]))
    look()
    for name in ("", "1"):
        for changes in (
            [("num.partitions", SET, "5")],
            [("node.id", SET, "5")],
            [("message.max.bytes", SET, "x")],
            [("message.max.bytes", SET, "-1")],
            [("message.max.bytes", APPEND, "5")],
            [("message.max.bytes", 9, "5")],
            [("message.max.bytes", SET, None)],
            [("message.max.bytes", DELETE, None)],
            [("message.max.bytes", SET, "1"), ("message.max.bytes", SET, "2")],
            [("log.cleanup.policy", SET, "drop")],
        ):
            talk.change((NODE, name, changes))
    talk.change((NODE, "", [("message.max.bytes", SET, "1")]), (NODE, "", [("message.max.bytes", SET, "2")]))
    look()
    talk.alter((NODE, "1", {"message.max.bytes": "2000000"}))
    look()
    talk.alter((NODE, "1", {"num.partitions": "5"}), (NODE, "", {"message.max.bytes": "x"}))
    talk.change((NODE, "", [("min.insync.replicas", DELETE, None)]), (NODE, "1", [("min.insync.replicas", SET, "1")]))
    talk.alter((NODE, "", {}))
    talk.describe((NODE, "", ("min.insync.replicas",)))
    talk.alter((NODE, "1", {}))
    talk.change((NODE, "", [(name, DELETE, None) for name in keys]))
    look()


def at_once(talk):
    """A change applies to the next record."""
    talk.create({"name": "live"})
    batch = build(some(at_ms=talk.now_ms - 1_000))
    keyless = build(some(1, talk.now_ms - 1_000, key=None))
    for why, changes in (
        ("small", [("max.message.bytes", SET, str(len(batch) - 1))]),
        ("large", [("max.message.bytes", DELETE, None)]),
        ("compacted", [("cleanup.policy", SET, "compact")]),
        ("both", [("cleanup.policy", APPEND, "delete")]),
        ("stamped", [("message.timestamp.type", SET, "LogAppendTime"), ("cleanup.policy", DELETE, None)]),
        ("recent", [("message.timestamp.type", DELETE, None), ("message.timestamp.before.max.ms", SET, "0")]),
    ):
        talk.change((TOPIC, "live", changes))
        talk.produce(why, bytes(batch), "live")
        talk.produce(f"{why}, keyless", bytes(keyless), "live")
    talk.alter((TOPIC, "live", {"cleanup.policy": "compact"}))
    talk.delete_records(("live", 0, 1))
    talk.alter((TOPIC, "live", {}))
    talk.delete_records(("live", 0, 1))


def config_resources(talk):
    talk.create({"name": "one"}, {"name": "two", "config": [("flush.ms", "1")]})
    for kinds in (
        (),
        (TOPIC,),
        (NODE,),
        (LOGGER,),
        (METRICS,),
        (GROUP,),
        (TOPIC, NODE),
        (UNKNOWN,),
        (ANY,),
        (3,),
        (99,),
    ):
        talk.resources(*kinds)
    talk.resources(TOPIC, 99)
    talk.resources(version=0)


def deleted_groups(talk):
    talk.create({"name": "read", "count": 2})
    for version in (0, 1, 2):
        member_id = talk.join("busy", "read")
        talk.commit("simple", ("read", 0))
        talk.delete_groups("busy", "none", "simple", version=version)
        talk.committed("simple")
        talk.leave("busy", member_id)
        talk.delete_groups("busy", version=version)
        talk.delete_groups("busy", version=version)
    talk.delete_groups()
    talk.delete_groups("none", "none")
    talk.delete_groups("")
    talk.commit("simple", ("read", 0))
    talk.delete_groups("simple", "simple")


def deleted_offsets(talk):
    talk.create({"name": "read", "count": 2}, {"name": "other"})
    talk.commit("group", ("read", 0), ("read", 1), ("other", 0))
    member_id = talk.join("group", "read")
    talk.delete_offsets("group", ("read", 0), ("other", 0, 1), ("none", 0))
    talk.committed("group")
    talk.delete_offsets("group", ("other", 0))
    talk.leave("group", member_id)
    talk.delete_offsets("group", ("read", 1))
    talk.committed("group")
    talk.delete_offsets("group")
    talk.delete_offsets("group", ("read", 0))
    talk.committed("group")
    talk.delete_offsets("group", ("read", 0))
    for group in ("none", ""):
        talk.delete_offsets(group, ("read", 0), ("none", 0))
        talk.delete_offsets(group, ("none", 0))
    talk.join("worker", kind="connect", metadata=b"")
    talk.delete_offsets("worker", ("read", 0))
    talk.join("damaged", metadata=b"\0")
    talk.delete_offsets("damaged", ("read", 0))


def clusters(talk):
    for version in (0, 1, 2):
        talk.cluster(version)
        talk.cluster(version, include_cluster_authorized_operations=True)
    for version in (1, 2):
        for endpoint in (2, 0, 9):
            talk.cluster(version, endpoint_type=endpoint)
    talk.cluster(2, include_fenced_brokers=True)


def pages(talk):
    talk.create({"name": "b", "count": 3}, {"name": "a", "count": 2}, {"name": "c"})
    talk.partitions("b", "a", "c")
    talk.partitions("c", "none", "a")
    talk.partitions("c", "c", "!/", "a")
    for limit in (1, 2, 3, 5, 6, 0, -1):
        talk.partitions("b", "a", "none", "c", limit=limit)
    for cursor in (("b", 0), ("b", 1), ("b", 3), ("b", 9), ("c", 0), ("none", 0), ("a", -1), ("zzz", 0)):
        talk.partitions("a", "b", "c", "none", cursor=cursor, limit=2)
    talk.partitions("a", cursor=("b", 0))


def elections(talk):
    talk.create({"name": "led", "count": 2})
    for version in (0, 1, 2):
        talk.elect(("led", 0, 1), version=version)
        talk.elect(version=version)
        talk.elect(("led", 0), version=version, timeout_ms=0)
    talk.elect(("led", 0), ("none", 0), ("led", 7), ("led", -1))
    talk.elect(("led", 0), ("none", 0), kind=1)
    talk.elect(("led", 0), kind=9)
    talk.elect(kind=1)


def reassignments(talk):
    talk.create({"name": "still"})
    talk.moving()
    talk.moving(("still", 0))
    talk.moving(("still", 5), ("none", 0))


def overlong_messages(talk):
    """Names and values that fit into a request, and not into the message of a refusal."""
    long, fine, other, third = "x" * 32_767, talk.name("fine"), talk.name("other"), talk.name("third")
    talk.create({"name": "fine"})
    setting = ("retention.ms", SET, long)
    for request, version in (
        *((CreateTopicsRequest((CreatableTopic(long, 1, 1),), 5_000), version) for version in (2, 5, 7)),
        (CreateTopicsRequest((CreatableTopic(other, 1, 1), CreatableTopic(long, 1, 1)), 5_000), 7),
        (CreateTopicsRequest((CreatableTopic(other, 1, 1),), 5_000), 7),
        (CreateTopicsRequest((CreatableTopic(third, 1, 1), CreatableTopic(long, 1, 1)), 5_000, True), 7),
        (CreateTopicsRequest((CreatableTopic(third, 1, 1, (), (CreatableTopicConfig(long, "1"),)),), 5_000), 7),
        (AlterConfigsRequest((AlterConfigsResource(TOPIC, long, ()),)), 2),
        (AlterConfigsRequest((AlterConfigsResource(TOPIC, fine, (AlterableConfig(long, "1"),)),)), 2),
        (AlterConfigsRequest((AlterConfigsResource(NODE, long, ()),)), 2),
        (
            IncrementalAlterConfigsRequest(
                (IncrementalAlterConfigsResource(TOPIC, fine, (IncrementalAlterableConfig(*setting),)),)
            ),
            1,
        ),
        (DescribeConfigsRequest((DescribeConfigsResource(TOPIC, long), DescribeConfigsResource(TOPIC, fine))), 4),
        (DescribeConfigsRequest((DescribeConfigsResource(LOGGER, long),)), 4),
        (DescribeConfigsRequest((DescribeConfigsResource(TOPIC, fine, (long,)),)), 4),
        (ElectLeadersRequest(0, (ElectableTopic(long, (0,)), ElectableTopic(fine, (0,))), 5_000), 2),
    ):
        answer = talk.broker.send(request, version)
        talk.said(type(request).api_name(), version, answer if isinstance(answer, str) else _told(answer))
        talk.broker.settle()


def odd_requests(talk):
    """Requests that no sane client sends, and that Kafka does not expect."""
    one, two = talk.name("one"), talk.name("two")
    talk.create({"name": "one"}, {"name": "two", "count": 2})
    (answer,) = talk.broker.send(MetadataRequest(topics=(MetadataRequestTopic(name=one),)), 12).topics
    by_id = DeleteTopicState(None, answer.topic_id)
    dotted, ruled = talk.name("x.y"), talk.name("x_y")
    pair = CreatableTopic(dotted, 1, 1), CreatableTopic(ruled, 1, 1)
    deleted = (
        DeleteRecordsTopic(two, (DeleteRecordsPartition(0, -2), DeleteRecordsPartition(0, 0))),
        DeleteRecordsTopic(two, (DeleteRecordsPartition(1, -2),)),
        DeleteRecordsTopic(two, (DeleteRecordsPartition(1, -1),)),
    )
    for request, version in (
        *((CreateTopicsRequest((CreatableTopic(talk.name("late"), 1, 1),), late), 5) for late in (0, -1)),
        (CreateTopicsRequest((CreatableTopic(talk.name("late"), 1, 1),), 0, True), 5),
        (DeleteTopicsRequest(topics=(DeleteTopicState(two), by_id), timeout_ms=0), 6),
        (CreatePartitionsRequest((CreatePartitionsTopic(one, 2, None),), 0, False), 3),
        (ElectLeadersRequest(0, (ElectableTopic(one, (0,)),), 0), 2),
        (DeleteTopicsRequest(topics=(by_id, DeleteTopicState(one), DeleteTopicState("none")), timeout_ms=5_000), 6),
        (DeleteTopicsRequest(topics=(by_id, by_id), timeout_ms=5_000), 6),
        (CreatePartitionsRequest((CreatePartitionsTopic(one, 1, None),), 5_000, False), 3),
        (CreateTopicsRequest(pair, 5_000, True), 5),
        (CreateTopicsRequest(pair[:1], 5_000), 5),
        (CreateTopicsRequest(pair, 5_000, True), 5),
        *((MetadataRequest(topics=(MetadataRequestTopic(name=None),)), version) for version in (10, 12, 13)),
        (DeleteRecordsRequest(deleted, 5_000), 2),
        (DescribeProducersRequest(tuple(DescribeProducersTopic(each, (0,)) for each in (two, "none", ""))), 0),
        *((_offsets(two, isolation_level=level), 7) for level in (0, 2, -1)),
        (_offsets(two, two), 7),
        *((_fetch(two, isolation_level=2), version) for version in (11, 12)),
        *((_end_of_epoch(two, known), 4) for known in (-1, -2, 0, 1)),
    ):
        answer = talk.broker.send(request, version)
        talk.said(type(request).api_name(), version, answer if isinstance(answer, str) else _told(answer))


def _offsets(*topics, **more):
    asked = (ListOffsetsPartition(0, -1, -1),)
    return ListOffsetsRequest(topics=tuple(ListOffsetsTopic(each, asked) for each in topics), **more)


def _fetch(topic, **more):
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    return FetchRequest(max_wait_ms=1, topics=(FetchTopic(topic, partitions=(asked,)),), **more)


def _end_of_epoch(topic, known_epoch):
    asked = OffsetForLeaderPartition(0, known_epoch, 0)
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic, (asked,)),))


def _told(message):
    """The codes of an answer in order, and whether there are messages, ids and numbers."""
    found = []
    for name in type(message).__dataclass_fields__:
        value = getattr(message, name)
        if name == "error_code":
            found.append(ErrorCode(value).name)
        elif name in ("error_message", "topic_id", "configs"):
            found.append(bool(value and value != ZERO_UUID))
        elif name in ("num_partitions", "replication_factor"):
            found.append(value)
        elif isinstance(value, tuple):
            found += sorted((_told(each) for each in value if hasattr(type(each), "__dataclass_fields__")), key=str)
    return found


SCRIPTS = (
    overlong_messages,
    odd_requests,
    described_topics,
    described_nodes,
    altered_topics,
    changed_topics,
    changed_nodes,
    at_once,
    config_resources,
    deleted_groups,
    deleted_offsets,
    clusters,
    pages,
    elections,
    reassignments,
)


def golden():
    """Kafka's transcripts by the names of the scripts."""
    return json.loads(GOLDEN.read_text())


def record(only=()):
    """Record Kafka's transcripts again."""
    from aiogroup.devkafka import Cluster

    found = golden() if only else {}
    with Cluster() as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        broker = RealAdmin((host, int(port)))
        for script in SCRIPTS:
            if not only or script.__name__ in only:
                talk = AdminTalk(broker, f"{time.time_ns():x}")
                script(talk)
                found[script.__name__] = talk.transcript
        broker.close()
    lines = [
        f"  {json.dumps(each.__name__)}: [\n    " + ",\n    ".join(map(json.dumps, found[each.__name__])) + "\n  ]"
        for each in SCRIPTS
    ]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record(sys.argv[1:])
