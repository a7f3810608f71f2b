"""Nodes die, come back and are paused: which node leads and which one coordinates, to the millisecond."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.embedded.machine.observers import Observer
from aiogroup.embedded.machine.refusals import BrokerRefusal
from tests.embedded.test_connections import NAMED, framed, joining
from tests.support.embedded_clients import Machine

ORDERS = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))


def with_orders(**options):
    machine = Machine(nodes=3, **options)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 3, now_ms, replication_factor=3))
    return machine


def leaders(client):
    return [each.leader_id for each in client.ask(ORDERS).topics[0].partitions]


def coordinator(client):
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=("billing",))).coordinators
    return found.error_code or found.node_id


def test_leaders_stand_in_turn_with_their_racks_and_addresses():
    client = with_orders().client()
    answer = client.ask(ORDERS)
    assert leaders(client) == [1, 2, 3]
    assert [each.replica_nodes for each in answer.topics[0].partitions] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert [(each.node_id, each.host, each.rack) for each in answer.brokers] == [
        (number, "127.0.0.1", f"rack-{number}") for number in (1, 2, 3)
    ]


def test_topics_begin_at_the_nodes_in_turn():
    machine = with_orders()
    client = machine.client()
    machine.do(lambda cluster, now_ms: cluster.topics.create("payments", 1, now_ms))
    machine.do(lambda cluster, now_ms: cluster.topics.add_partitions(cluster.topics.get("payments"), 2, now_ms))
    answer = client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="payments"),)))
    assert [each.leader_id for each in answer.topics[0].partitions] == [2, 3, 1]


def test_after_a_death_others_lead_and_coordinate_to_the_millisecond():
    machine = with_orders(failover_ms=3_000)
    client, other = machine.client(1), machine.client(2)
    machine.do(lambda cluster, now_ms: cluster.coordinators.move("billing", 2, 0, now_ms))
    assert coordinator(client) == 2
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(2, now_ms))
    assert other.is_closed
    with pytest.raises(BrokerRefusal):
        machine.client(2)
    told = client.ask(ORDERS).topics[0].partitions[1]
    assert (told.error_code, told.leader_id, told.isr_nodes, told.offline_replicas) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        (3, 1),
        (2,),
    )
    machine.pass_ms(2_999)
    assert leaders(client) == [1, -1, 3]
    assert coordinator(client) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.pass_ms(1)
    assert leaders(client) == [1, 3, 3]
    assert client.ask(ORDERS).topics[0].partitions[1].leader_epoch == 1
    assert coordinator(client) in (1, 3)
    machine.do(lambda cluster, now_ms: cluster.nodes.start(2, now_ms))
    assert leaders(client) == [1, 3, 3], "who comes back leads nothing by itself"
    assert len(client.ask(ORDERS).brokers) == 3


def test_a_node_that_is_back_before_the_others_notice_keeps_leading_in_a_new_epoch():
    machine = with_orders(failover_ms=3_000)
    client = machine.client(1)
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(2, now_ms))
    machine.pass_ms(2_000)
    machine.do(lambda cluster, now_ms: cluster.nodes.start(2, now_ms))
    machine.pass_ms(5_000)
    assert leaders(client) == [1, 2, 3]
    assert client.ask(ORDERS).topics[0].partitions[1].leader_epoch == 1


def test_a_controlled_shutdown_hands_over_at_once():
    machine = with_orders(failover_ms=3_000)
    client = machine.client(1)
    machine.do(lambda cluster, now_ms: cluster.nodes.stop(2, now_ms))
    assert leaders(client) == [1, 3, 3]


def test_a_partition_without_a_live_replica_has_no_leader_until_one_is_back():
    machine = Machine(nodes=2)
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 2, now_ms))
    client = machine.client(1)
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(2, now_ms))
    assert leaders(client) == [1, -1]
    machine.do(lambda cluster, now_ms: cluster.nodes.start(2, now_ms))
    assert leaders(client) == [1, 2]


def test_a_paused_node_says_nothing_and_goes_on_with_what_came():
    machine = with_orders()
    client = machine.client(2)
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(2, now_ms))
    assert client.ask(NAMED) is None
    assert not client.connection.wants_input
    late = machine.client(2)
    assert late.ask(NAMED) is None
    machine.do(lambda cluster, now_ms: cluster.nodes.resume(2, now_ms))
    assert client.answer().error_code == 0
    assert late.answer().error_code == 0


def test_a_request_that_came_in_part_is_read_on_when_the_node_goes_on():
    machine = Machine()
    client = machine.client()
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(1, now_ms))
    frame = framed(NAMED, 4)
    client.connection.receive(frame[:9], 0)
    assert not client.connection.wants_input
    machine.cluster.take_output()
    machine.cluster.control(lambda now_ms: machine.cluster.nodes.resume(1, now_ms), 0)
    told = [output.connection for output in machine.cluster.take_output()]
    assert told == [client.connection], "whoever has the socket is to look whether it reads on"
    assert client.connection.wants_input


def test_a_node_that_is_silent_for_its_session_is_replaced_until_it_goes_on():
    machine = with_orders(properties={"broker.session.timeout.ms": "3000"})
    client, frozen = machine.client(1), machine.client(2)
    machine.do(lambda cluster, now_ms: cluster.coordinators.move("billing", 2, 0, now_ms))
    first = frozen.ask(joining())
    joined = frozen.ask(joining(first.member_id))
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    frozen.ask(SyncGroupRequest(group_id="billing", generation_id=1, member_id=joined.member_id, **named))
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(2, now_ms))
    machine.pass_ms(2_999)
    assert (leaders(client), coordinator(client)) == ([1, 2, 3], 2)
    machine.pass_ms(1)
    assert leaders(client) == [1, 3, 3]
    assert [each.node_id for each in client.ask(ORDERS).brokers] == [1, 3]
    assert client.ask(ORDERS).topics[0].partitions[0].isr_nodes == (1, 3)
    beat = HeartbeatRequest(group_id="billing", generation_id=1, member_id=joined.member_id)
    assert machine.client(coordinator(client)).ask(beat).error_code == 0
    assert frozen.ask(beat) is None
    machine.do(lambda cluster, now_ms: cluster.nodes.resume(2, now_ms))
    assert frozen.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert leaders(client) == [1, 3, 3]
    assert client.ask(ORDERS).topics[0].partitions[0].isr_nodes == (1, 2, 3)


def test_without_a_majority_no_silent_node_is_replaced():
    machine = with_orders()
    client = machine.client(1)
    for number in (2, 3):
        machine.do(lambda cluster, now_ms, number=number: cluster.nodes.pause(number, now_ms))
    machine.pass_ms(60_000)
    assert leaders(client) == [1, 2, 3]


@pytest.mark.parametrize("how", ["resume", "start"])
def test_a_silent_node_is_replaced_when_there_is_a_majority_again(how):
    machine = with_orders()
    client = machine.client(1)
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(2, now_ms))
    machine.do(lambda cluster, now_ms: (cluster.nodes.pause if how == "resume" else cluster.nodes.kill)(3, now_ms))
    machine.pass_ms(60_000)
    assert leaders(client)[1] == 2
    machine.do(lambda cluster, now_ms: getattr(cluster.nodes, how)(3, now_ms))
    machine.pass_ms(2_999)
    assert leaders(client)[1] == 2
    machine.pass_ms(1)
    assert leaders(client)[1] == 3
    machine.do(lambda cluster, now_ms: cluster.nodes.resume(2, now_ms))
    machine.pass_ms(60_000)
    assert len(client.ask(ORDERS).brokers) == 3


def test_answers_due_at_a_paused_node_are_sent_when_it_goes_on():
    machine = Machine()
    a, b = machine.client(), machine.client()
    first = a.ask(joining())
    a.ask(joining(first.member_id))
    second = b.ask(joining())
    b.send(joining(second.member_id))
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(1, now_ms))
    machine.pass_ms(30_000)
    assert b.answer() is None
    machine.do(lambda cluster, now_ms: cluster.nodes.resume(1, now_ms))
    assert b.answer().leader == second.member_id


def test_a_coordinator_that_moves_answers_waiting_members_and_loads():
    machine = with_orders()
    a, b, elsewhere = machine.client(1), machine.client(1), machine.client(3)
    first = a.ask(joining())
    a.ask(joining(first.member_id))
    second = b.ask(joining())
    b.send(joining(second.member_id))
    machine.do(lambda cluster, now_ms: cluster.coordinators.move("billing", 3, 500, now_ms))
    assert b.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert coordinator(a) == 3
    beat = HeartbeatRequest(group_id="billing", generation_id=1, member_id=first.member_id)
    assert a.ask(beat).error_code == ErrorCode.NOT_COORDINATOR
    assert elsewhere.ask(joining()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert elsewhere.ask(beat).error_code == 0
    machine.pass_ms(499)
    assert elsewhere.ask(joining()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    machine.pass_ms(1)
    assert elsewhere.ask(joining()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert elsewhere.ask(joining(group="another")).error_code == ErrorCode.NOT_COORDINATOR


class Listening(Observer):
    def __init__(self):
        self.expired = []

    def on_expired(self, group, member_id, now_ms):
        self.expired.append((member_id, now_ms))


@pytest.mark.parametrize("how", ["killed", "moved"])
def test_a_coordinator_that_is_gone_expires_nobody_and_the_next_one_gives_a_whole_session(how):
    machine = Machine(nodes=2, failover_ms=10_000)
    member = machine.client().ask(joining(), 3)
    sync = SyncGroupRequest(group_id="billing", generation_id=1, member_id=member.member_id)
    assert machine.client().ask(sync, 4).error_code == 0
    listening = Listening()
    machine.cluster.observers.all.append(listening)
    machine.pass_ms(25_000)
    if how == "killed":
        machine.do(lambda cluster, now_ms: cluster.nodes.kill(1, now_ms))
    else:
        machine.do(lambda cluster, now_ms: cluster.coordinators.move("billing", 2, 10_000, now_ms))
    machine.pass_ms(10_000 + 29_999)
    assert listening.expired == []
    machine.pass_ms(1)
    assert listening.expired == [(member.member_id, 65_000)]


def test_a_node_that_returns_to_a_dead_cluster_coordinates():
    machine = Machine(nodes=2)
    for node_id in (1, 2):
        machine.do(lambda cluster, now_ms, node_id=node_id: cluster.nodes.kill(node_id, now_ms))
    machine.do(lambda cluster, now_ms: cluster.nodes.start(1, now_ms))
    assert coordinator(machine.client(1)) == 1


def test_the_fetch_sessions_of_a_node_die_with_it():
    machine = Machine()
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 1, now_ms))
    topic_id = machine.cluster.topics.get("orders").topic_id
    wanted = (FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0, fetch_offset=0),)),)
    session_id = machine.client().ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=wanted)).session_id
    assert session_id
    again = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=1)
    assert machine.client().ask(again).error_code == 0
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(1, now_ms))
    machine.do(lambda cluster, now_ms: cluster.nodes.start(1, now_ms))
    assert machine.client().ask(again).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("step", ["start", "pause", "resume"])
def test_what_a_node_cannot_do_is_refused(step):
    machine = Machine(nodes=2)
    nodes = machine.cluster.nodes
    if step != "start":
        nodes.kill(2, 0)
    with pytest.raises(BrokerRefusal):
        {"start": nodes.start, "pause": nodes.pause, "resume": nodes.resume}[step](2, 0)
