"""ApiVersions, Metadata and FindCoordinator of the embedded broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.groups.coordinators import java_bucket, java_hash
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.messages.ranges import RANGES
from tests.support.any_version import ranges_of
from tests.support.embedded_clients import Machine

NAMED = ApiVersionsRequest(client_software_name="scripted", client_software_version="1")


def asked(*names, **more):
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names), **more)


def codes(answer):
    return [topic.error_code for topic in answer.topics]


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_lists_what_is_offered(version):
    answer = Machine().client().ask(NAMED, version)
    assert ranges_of(answer) == {each.API_KEY: bounds for each, bounds in RANGES.items()}
    if version >= 3:
        assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [
            ("transaction.version", 1)
        ]
        assert len(answer.supported_features) == (version >= 4)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("a", "")])
def test_a_client_that_names_itself_with_other_characters_is_refused(name, version):
    answer = Machine().client().ask(ApiVersionsRequest(client_software_name=name, client_software_version=version))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_an_older_broker_offers_less():
    machine = Machine(api_versions={"JoinGroup": (0, 3)})
    assert ranges_of(machine.client().ask(NAMED))[JoinGroupRequest.API_KEY] == (0, 3)
    with pytest.raises(BrokerRefusal):
        Machine(api_versions={"JoinGroup": (0, 99)})


def test_unknown_names_come_last_and_unknown_ids_first():
    machine = Machine()
    for name in ("orders", "returns"):
        machine.do(lambda cluster, now_ms, name=name: cluster.topics.create(name, 1, now_ms))
    client = machine.client()
    answer = client.ask(asked("no-1", "returns", "no-2", "orders"), 8)
    assert [topic.name for topic in answer.topics] == ["returns", "orders", "no-1", "no-2"]
    ids = {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(topics=None), 13).topics}
    wanted = [ids["returns"], UUID(int=1), ids["orders"], UUID(int=2)]
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(topic_id=each) for each in wanted))
    assert [topic.topic_id for topic in client.ask(request, 13).topics] == [wanted[1], wanted[3], wanted[0], wanted[2]]


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_knows_a_topic(version):
    machine = Machine()
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 2, now_ms))
    client = machine.client()
    for request in (asked("orders"), MetadataRequest(topics=None)):
        (topic,) = client.ask(request, version).topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "orders", 2)


@pytest.mark.parametrize(("key_type", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_an_internal_topic_is_there_once_somebody_has_looked_for_a_coordinator(key_type, name):
    properties = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    machine = Machine(nodes=3, properties=properties)
    client = machine.client()
    assert client.ask(MetadataRequest(topics=None)).topics == ()
    for key in ("billing", "shipping"):
        client.ask(FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type))
    (topic,) = client.ask(MetadataRequest(topics=None)).topics
    assert (topic.name, topic.is_internal, topic.error_code, len(topic.partitions)) == (name, True, 0, 4)
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=("billing",), key_type=key_type)).coordinators
    assert topic.partitions[java_bucket("billing", 4)].leader_id == found.node_id
    (by_name,) = client.ask(asked(name)).topics
    assert by_name == topic


def test_topics_that_are_not_there_and_names_that_no_topic_can_have():
    client = Machine().client()
    assert codes(client.ask(asked("orders", "a b", ""))) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert client.ask(MetadataRequest(topics=())).topics == ()


def test_topics_by_id_and_the_new_id_of_a_topic_that_is_created_again():
    machine = Machine()
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    client = machine.client()
    (topic,) = client.ask(asked("orders")).topics
    by_id = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic.topic_id, name=None),))
    assert client.ask(by_id).topics[0].name == "orders"
    machine.do(lambda cluster, now_ms: cluster.topics.delete(cluster.topics.get("orders"), now_ms))
    (gone,) = client.ask(by_id).topics
    assert (gone.error_code, gone.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    assert client.ask(asked("orders")).topics[0].topic_id not in (topic.topic_id, UUID(int=0))


def test_versions_before_12_cannot_ask_by_id():
    """They have ids on the wire, which the client's encoder does not write."""
    machine = Machine()
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    client = machine.client()
    asked_both = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=machine.cluster.topics.get("orders").topic_id, name="orders"),)
    )
    assert codes(client.ask(asked_both, 11)) == [ErrorCode.INVALID_REQUEST]


def test_the_oldest_version_is_told_which_replicas_cannot_be_found():
    machine = Machine(nodes=2)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms, replication_factor=2))
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(2, now_ms))
    for version, code, replicas in ((0, ErrorCode.REPLICA_NOT_AVAILABLE, (1,)), (1, 0, (1, 2))):
        (partition,) = machine.client().ask(asked("orders"), version).topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (code, 1, replicas)


@pytest.mark.parametrize(
    ("is_on", "asks_for_it", "is_made"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_topics_are_made_when_they_are_asked_for(is_on, asks_for_it, is_made):
    machine = Machine(properties={"auto.create.topics.enable": str(is_on).lower(), "num.partitions": "3"})
    client = machine.client()
    request = asked("orders", "a b", allow_auto_topic_creation=asks_for_it)
    assert codes(client.ask(request)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
    topic = client.ask(request).topics[0]
    assert (topic.error_code == 0, len(topic.partitions)) == (is_made, 3 if is_made else 0)


def test_a_fault_hits_its_topic_alone():
    machine = Machine()
    for name in ("orders", "bills"):
        machine.do(lambda cluster, now_ms, name=name: cluster.topics.create(name, 1, now_ms))
    fault = Fault("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, Place(topic="orders"))
    machine.cluster.faults.add(fault)
    client = machine.client()
    assert codes(client.ask(asked("bills", "orders"))) == [0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert codes(client.ask(asked("bills", "orders"))) == [0, 0]
    assert fault.used_count == 1


@pytest.mark.parametrize(
    ("text", "number"), [("", 0), ("a", 97), ("billing", -109829509), ("polygenelubricants", -(2**31)), ("😀", 1772899)]
)
def test_javas_hash(text, number):
    assert java_hash(text) == number


def test_a_groups_coordinator_is_found_by_javas_hash():
    machine = Machine(nodes=3, properties={"offsets.topic.num.partitions": "5"})
    client = machine.client()
    answer = client.ask(FindCoordinatorRequest(coordinator_keys=("billing", "polygenelubricants", "a")))
    # Partitions 109829509 % 5 = 4, 0, 97 % 5 = 2; the nodes take turns.
    assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [
        ("billing", 2, 0),
        ("polygenelubricants", 1, 0),
        ("a", 3, 0),
    ]
    for version in range(4):
        (one,) = client.ask(FindCoordinatorRequest(coordinator_keys=("billing",)), version).coordinators
        assert (one.node_id, one.error_code) == (2, 0)


def test_a_transactional_ids_coordinator_is_found_by_javas_hash_too():
    machine = Machine(nodes=3, properties={"transaction.state.log.num.partitions": "5"})
    keys = ("billing", "polygenelubricants", "a")
    answer = machine.client().ask(FindCoordinatorRequest(key_type=1, coordinator_keys=keys))
    assert [(each.node_id, each.error_code) for each in answer.coordinators] == [(2, 0), (1, 0), (3, 0)]


def test_the_coordinator_of_a_share_group_is_refused_and_kept_as_a_trouble():
    machine = Machine()
    (found,) = machine.client().ask(FindCoordinatorRequest(key_type=2, coordinator_keys=("t",))).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert "real Kafka" in found.error_message
    assert [each.refusal.name for each in machine.cluster.troubles.kept] == ["share groups"]
