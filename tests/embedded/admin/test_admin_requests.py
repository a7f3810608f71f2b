"""Requests of administrators: answered as by Kafka 4.3.1 (golden.json), and cases that no script can show."""

from __future__ import annotations

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded import Broker, BrokerRefusal
from aiogroup.embedded.machine import snapshots
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.messages.cluster import DescribeClusterRequest
from aiogroup.embedded.messages.configs import IncrementalAlterConfigsRequest
from aiogroup.embedded.messages.groups import DeleteGroupsRequest, OffsetDeleteRequest
from tests.support.admin_scripts import (
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    NODE,
    SCRIPTS,
    SET,
    TOPIC,
    AdminTalk,
    WholeMachine,
    golden,
)


@pytest.fixture
def make_talk():
    """Makes talks with a machine. An error inside the machine fails the test."""
    machines = []

    def make(**options):
        machine = WholeMachine(**options)
        machines.append(machine.machine)
        return AdminTalk(machine, "pure")

    yield make
    assert [each for machine in machines for each in machine.cluster.troubles.kept if each.refusal.name == "bug"] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_the_answers_are_those_of_kafka(make_talk, script):
    talk = make_talk()
    script(talk)
    assert talk.transcript == golden()[script.__name__]


def cluster_of(talk):
    return talk.broker.machine.cluster


def codes_of(talk, what):
    return [line[3] for line in talk.transcript if line[0] == what]


# Elections, with three nodes.


def test_the_preferred_leader_comes_back_by_election(make_talk):
    talk = make_talk(nodes=3)
    talk.create({"name": "led", "count": 3, "factor": 3})
    machine, cluster = talk.broker.machine, cluster_of(talk)
    second = cluster.topics.partition("led-pure", 1)
    assert second.replicas == (2, 3, 1)
    machine.do(lambda cluster, now_ms: cluster.nodes.stop(2, now_ms))
    talk.elect(("led", 1))
    talk.elect(("led", 1), kind=1)
    machine.do(lambda cluster, now_ms: cluster.nodes.start(2, now_ms))
    assert (second.leader, second.leader_epoch) == (3, 1)
    talk.elect()
    assert (second.leader, second.leader_epoch) == (2, 2)
    assert [line[4] for line in talk.transcript[1:]] == [
        [["led", 1, "PREFERRED_LEADER_NOT_AVAILABLE"]],
        [["led", 1, "ELECTION_NOT_NEEDED"]],
        [["led", 1, "NONE"]],
    ]


def test_no_replica_is_up(make_talk):
    talk = make_talk(nodes=2)
    talk.create({"name": "led", "count": 2, "factor": 1})
    talk.broker.machine.do(lambda cluster, now_ms: cluster.nodes.stop(2, now_ms))
    for kind in (0, 1):
        talk.elect(("led", 1), kind=kind)
    talk.partitions("led")
    assert [line[4][0][2] for line in talk.transcript[1:3]] == [
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    ]
    assert talk.transcript[-1] == [1, "NONE", -1, 1, [2], [], [2], [], []]


def test_nodes_that_are_down_are_listed_as_fenced_if_asked_for(make_talk):
    talk = make_talk(nodes=2)
    talk.broker.machine.do(lambda cluster, now_ms: cluster.nodes.stop(2, now_ms))
    for version, asks, seen in ((2, True, [(1, False), (2, True)]), (2, False, [(1, False)]), (1, False, [(1, False)])):
        answer = talk.broker.send(DescribeClusterRequest(include_fenced_brokers=asks), version)
        assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == seen


# Settings.


def test_the_nodes_have_their_settings_in_common(make_talk):
    talk = make_talk(nodes=2)
    talk.create({"name": "plain"})
    talk.change((NODE, "1", [("message.max.bytes", SET, "5")]))
    talk.change((NODE, "", [("message.max.bytes", SET, "5")]))
    talk.describe((TOPIC, "plain", ("max.message.bytes",)))
    assert codes_of(talk, "change") == ["INVALID_REQUEST", "NONE"]
    assert talk.transcript[-1][:3] == ["max.message.bytes", "5", 3]
    (trouble,) = cluster_of(talk).troubles.kept
    assert "in common" in str(trouble)


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_only_the_embedded_broker_refuses_is_a_trouble(make_talk, validate_only):
    talk = make_talk()
    for setting in (("remote.storage.enable", "true"), ("retention.ms", "-2"), ("x", "1")):
        talk.create({"name": "t", "config": [setting]}, validate_only=validate_only)
    assert [code for line in talk.transcript for code in line if code == "INVALID_CONFIG"] == ["INVALID_CONFIG"] * 3
    (trouble,) = map(str, cluster_of(talk).troubles.kept)  # Kafka refuses the other two as well
    assert "no tiered storage: leave remote.storage.enable out" in trouble


def test_settings_that_are_not_told_are_a_trouble(make_talk):
    talk = make_talk()
    talk.describe((GROUP, "billing", None), (LOGGER, "1", None), (METRICS, "m", None), (NODE, "1", None))
    troubles = cluster_of(talk).troubles.kept
    assert [each.what.partition("asked for ")[2] for each in troubles] == [
        "settings of group billing-pure",
        "settings of logger 1",
    ]
    assert {each.refusal.name for each in troubles} == {"settings"}


@pytest.mark.parametrize(
    ("kind", "name", "setting", "value"),
    [
        (NODE, "", "log.cleaner.threads", "2"),
        (TOPIC, "plain", "remote.storage.enable", "true"),
        (METRICS, "mine", "interval.ms", "100"),
        (GROUP, "billing", "consumer.session.timeout.ms", "100"),
        (LOGGER, "1", "kafka", "INFO"),
    ],
)
def test_what_is_not_there_is_told(make_talk, kind, name, setting, value):
    talk = make_talk()
    talk.create({"name": "plain"})
    talk.change((kind, name, [(setting, SET, value)]))
    assert talk.transcript[-1][3] in ("INVALID_REQUEST", "INVALID_CONFIG")
    (trouble,) = cluster_of(talk).troubles.kept
    assert "embedded broker" in trouble.what
    assert trouble.refusal.name == "settings"


def test_a_refused_resource_changes_nothing_and_the_others_are_changed(make_talk):
    talk = make_talk()
    talk.create({"name": "one", "config": [("flush.ms", "1")]}, {"name": "two"})
    talk.change(
        (TOPIC, "one", [("flush.ms", DELETE, None), ("retention.ms", SET, "x")]),
        (TOPIC, "two", [("flush.ms", SET, "2")]),
    )
    topics = cluster_of(talk).topics
    assert (topics.get("one-pure").config, topics.get("two-pure").config) == ({"flush.ms": "1"}, {"flush.ms": "2"})


def test_a_resource_that_is_named_twice_is_refused(make_talk):
    """Kafka gives no answer at all: a known difference."""
    talk = make_talk()
    talk.create({"name": "one"}, {"name": "two"})
    talk.alter(*((TOPIC, name, {"flush.ms": "2"}) for name in ("one", "one", "two")))
    assert codes_of(talk, "alter") == ["INVALID_REQUEST", "INVALID_REQUEST", "NONE"]
    topics = cluster_of(talk).topics
    assert (topics.get("one-pure").config, topics.get("two-pure").config) == ({}, {"flush.ms": "2"})


def test_loggers_and_groups_have_no_settings(make_talk):
    talk = make_talk()
    talk.describe((LOGGER, "1"), (GROUP, "billing"))
    assert [line[3:] for line in talk.transcript] == [["1", "NONE", ""], ["billing", "NONE", ""]]


def test_a_fault_comes_before_or_after_a_change(make_talk):
    talk = make_talk()
    talk.create({"name": "one"}, {"name": "two"}, {"name": "three"})
    api, faults = IncrementalAlterConfigsRequest.api_name(), cluster_of(talk).faults
    faults.add(Fault(api, ErrorCode.NOT_CONTROLLER, Place(topic="one-pure")))
    faults.add(Fault(api, ErrorCode.REQUEST_TIMED_OUT, Place(topic="two-pure"), after=True))
    talk.change(*((TOPIC, name, [("flush.ms", SET, "2")]) for name in ("one", "two", "three")))
    assert codes_of(talk, "change") == ["NOT_CONTROLLER", "NONE", "REQUEST_TIMED_OUT"]
    topics = cluster_of(talk).topics
    assert ["flush.ms" in topics.get(f"{name}-pure").config for name in ("one", "two", "three")] == [False, True, True]


# Groups.


def test_a_fault_comes_before_or_after_a_deletion(make_talk):
    talk = make_talk()
    talk.create({"name": "read"})
    for group in ("one", "two", "three"):
        talk.commit(group, ("read", 0))
    faults = cluster_of(talk).faults
    faults.add(Fault(DeleteGroupsRequest.api_name(), ErrorCode.GROUP_AUTHORIZATION_FAILED, Place(group="one-pure")))
    after = Place(group="two-pure")
    faults.add(Fault(DeleteGroupsRequest.api_name(), ErrorCode.REQUEST_TIMED_OUT, after, after=True))
    talk.delete_groups("one", "two", "three")
    told = talk.transcript[-1][2:]
    assert told == [["one", "GROUP_AUTHORIZATION_FAILED"], ["three", "NONE"], ["two", "REQUEST_TIMED_OUT"]]
    offsets = [talk.committed(group) or talk.transcript[-1][3] for group in ("one", "two", "three")]
    assert offsets == [[["read", 0, 5]], [], []]


@pytest.mark.parametrize(("after", "left"), [(False, [["read", 1, 6]]), (True, [])])
def test_a_fault_at_one_partition_keeps_its_offset_unless_it_comes_after(make_talk, after, left):
    talk, code = make_talk(), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    talk.create({"name": "read", "count": 2})
    talk.commit("one", ("read", 0), ("read", 1))
    place = Place(topic="read-pure", partition=1, group="one-pure")
    cluster_of(talk).faults.add(Fault(OffsetDeleteRequest.api_name(), code, place, after=after))
    talk.delete_offsets("one", ("read", 0, 1))
    assert talk.transcript[-1][3] == [["read", 0, "NONE"], ["read", 1, "TOPIC_AUTHORIZATION_FAILED"]]
    talk.committed("one")
    assert talk.transcript[-1][3] == left


def test_a_deleted_group_stays_deleted_when_its_coordinator_moves(make_talk):
    talk = make_talk(nodes=2)
    talk.create({"name": "read"})
    for group in ("gone", "stays"):
        talk.commit(group, ("read", 0))
    talk.delete_groups("gone")
    machine = talk.broker.machine
    for node_id in (2, 1):
        machine.do(lambda cluster, now_ms, to=node_id: cluster.coordinators.move("gone-pure", to, 0, now_ms))
        machine.do(lambda cluster, now_ms, to=node_id: cluster.coordinators.move("stays-pure", to, 0, now_ms))
    talk.delete_groups("gone", "stays")
    assert talk.transcript[-1][2:] == [["gone", "GROUP_ID_NOT_FOUND"], ["stays", "NONE"]]


def test_only_the_coordinator_deletes(make_talk):
    talk = make_talk(nodes=2)
    nodes = talk.broker.send(MetadataRequest(topics=()), 9).brokers
    assert len(nodes) == 2
    other = talk.broker.machine.client(2)
    assert other.ask(DeleteGroupsRequest(("any",))).results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert other.ask(OffsetDeleteRequest("any")).error_code == ErrorCode.NOT_COORDINATOR


# Calls of a test, after an administrator has changed the topic.


async def test_compaction_and_retention_follow_what_an_administrator_sets():
    async with Broker() as broker:
        broker.create_topic("orders")
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()

        async def change(**config):
            settings = {name.replace("_", "."): value for name, value in config.items()}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "orders", configs=settings)])

        try:
            for number in range(3):
                broker.produce("orders", b"%d" % number, key=b"k", timestamp_ms=1)
            with pytest.raises(BrokerRefusal, match="not compacted"):
                broker.compact("orders")
            await change(cleanup_policy="compact")
            broker.compact("orders")
            assert [each.offset for each in broker.records("orders")] == [2]
            with pytest.raises(BrokerRefusal, match="do not expire"):
                broker.expire("orders")
            await change(cleanup_policy="compact,delete", retention_ms="-1")
            broker.expire("orders")
            assert [each.offset for each in broker.records("orders")] == [2]
            await change(cleanup_policy="delete", retention_ms="1000", message_timestamp_type="LogAppendTime")
            broker.produce("orders", b"new", timestamp_ms=1)
            broker.expire("orders")
            assert [(each.offset, each.is_append_time) for each in broker.records("orders")] == [(3, True)]
        finally:
            await admin.close()


def test_a_snapshot_has_the_settings_of_the_cluster(make_talk):
    talk = make_talk()
    cluster, machine = cluster_of(talk), talk.broker.machine
    talk.change((NODE, "", [("message.max.bytes", SET, "5")]))
    kept = snapshots.take(cluster)
    talk.change((NODE, "", [("message.max.bytes", SET, "6"), ("log.retention.ms", SET, "7")]))
    assert (cluster.settings["message.max.bytes"], cluster.settings["log.retention.ms"]) == (6, 7)
    machine.do(lambda cluster, now_ms: snapshots.restore(cluster, kept, now_ms))
    assert (cluster.settings["message.max.bytes"], cluster.settings["log.retention.ms"]) == (5, 604_800_000)
