"""How a node treats bytes: one request at a time, answers in order. Bytes that are no request end the connection."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.framing import encode_request
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded.machine.observers import Observer
from tests.support.embedded_clients import CLIENT_ID, Machine

NAMED = ApiVersionsRequest(client_software_name="scripted", client_software_version="1")


def framed(request, version, number=1):
    frame = encode_request(request, version, number, CLIENT_ID)
    return len(frame).to_bytes(4, "big") + frame


def joining(member_id="", group="billing"):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", b""),),
    )


FRAMES = b"".join(
    (framed(NAMED, 4), framed(MetadataRequest(topics=None), 13, 2), framed(joining(), 9, 3), framed(NAMED, 0, 4))
)


def answers_to(pieces):
    machine = Machine()
    connection = machine.cluster.connect(1, 0)
    sent = b""
    for piece in pieces:
        connection.receive(piece, 0)
        sent += b"".join(buffer for output in machine.cluster.take_output() for buffer in output.buffers)
    assert not connection.is_closed
    assert machine.cluster.troubles.kept == []
    return sent


@given(st.lists(st.integers(0, len(FRAMES)), max_size=30))
def test_answers_do_not_depend_on_how_the_bytes_come(cuts):
    edges = [0, *sorted(cuts), len(FRAMES)]
    pieces = [FRAMES[begin:end] for begin, end in pairwise(edges)]
    assert answers_to(pieces) == answers_to([FRAMES])


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_garbage_never_raises(pieces):
    machine = Machine()
    connection = machine.cluster.connect(1, 0)
    for piece in pieces:
        connection.receive(piece, 0)
    machine.cluster.take_output()
    assert [each for each in machine.cluster.troubles.kept if each.refusal.name == "bug"] == []


@given(st.data())
def test_damaged_requests_never_raise(data):
    damaged = bytearray(FRAMES)
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    machine = Machine()
    connection = machine.cluster.connect(1, 0)
    connection.receive(bytes(damaged), 0)
    machine.cluster.take_output()
    assert [each for each in machine.cluster.troubles.kept if each.refusal.name == "bug"] == []


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x06\x40\x00\x01", b"\x00\x00\x00\x00", b"\x00\x00\x00\x03abc"]
)
def test_what_is_no_request_ends_the_connection(data):
    machine = Machine()
    client = machine.client()
    client.send_bytes(data)
    assert client.is_closed
    assert [each.refusal.name for each in machine.cluster.troubles.kept] == ["garbage"]
    client.send_bytes(framed(NAMED, 4))
    assert client.answer() is None


@pytest.mark.parametrize(("key", "version"), [(17, 0), (1_000, 0), (12, 5), (12, -1)])
def test_what_is_not_offered_ends_the_connection(key, version):
    machine = Machine()
    client = machine.client()
    body = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff"
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    assert client.is_closed
    assert [each.refusal.name for each in machine.cluster.troubles.kept] == ["api"]


@pytest.mark.parametrize("has_rule", [False, True])
def test_api_versions_in_a_version_to_come_is_answered_in_version_0(has_rule):
    client = Machine().client()
    if has_rule:
        client.machine.cluster.rules.drop("Fetch")
    frame = bytearray(framed(NAMED, 4))
    frame[6:8] = (77).to_bytes(2, "big")
    client.send(NAMED, 4)
    assert client.answer().error_code == 0
    client.connection.receive(bytes(frame), 0)
    (output,) = client.machine.cluster.take_output()
    answer = b"".join(output.buffers)
    assert answer[8:10] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert answer[10:] == b"\x00\x00\x00\x01" + b"\x00\x12" + b"\x00\x00" + b"\x00\x04"
    assert not client.is_closed


def test_the_next_request_is_begun_when_the_one_before_is_answered():
    machine = Machine()
    leader, other = machine.client(), machine.client()
    first = leader.ask(joining())
    leader.ask(joining(first.member_id))
    machine.do(lambda cluster, now_ms: None)
    second = other.ask(joining())
    other.send(joining(second.member_id))
    other.send(MetadataRequest(topics=()))
    assert other.answer() is None, "a JoinGroup waits, and what is behind it too"
    assert not other.connection.wants_input
    assert leader.ask(joining(first.member_id)).error_code == 0
    assert other.answer().error_code == 0
    assert other.answer().brokers
    assert other.connection.wants_input


def test_a_transport_that_is_full_holds_the_next_request_back():
    machine = Machine()
    client = machine.client()
    client.connection.set_writable(False, 0)
    assert client.ask(NAMED) is None
    assert not client.connection.wants_input
    client.connection.set_writable(True, 0)
    machine.deliver()
    assert client.answer().error_code == 0


def test_a_connection_answered_by_anothers_request_is_served_after_it():
    """A handler must not be interrupted by the next request of another connection."""

    class Watching(Observer):
        def __init__(self):
            self.depth = 0
            self.deepest = 0

        def before_request(self, exchange, now_ms):
            self.depth += 1
            self.deepest = max(self.depth, self.deepest)

        def on_answers(self, exchange, answered, now_ms):
            self.depth -= 1
            self.told = [each.api for each in answered]

    machine = Machine()
    a, b = machine.client(), machine.client()
    watching = Watching()
    first = a.ask(joining())
    a.ask(joining(first.member_id))
    second = b.ask(joining())
    b.send(joining(second.member_id))
    b.send(HeartbeatRequest(group_id="billing", generation_id=2, member_id=second.member_id))
    machine.cluster.observers.all.append(watching)
    a.send(joining(first.member_id))
    assert b.answer().generation_id == 2
    assert b.answer().error_code == 0
    assert watching.deepest == 1


def test_more_connections_than_are_allowed_are_closed():
    machine = Machine(properties={"max.connections": "2"})
    first, second, third = machine.client(), machine.client(), machine.client()
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
    assert [each.refusal.name for each in machine.cluster.troubles.kept] == ["connections"]
    first.connection.lost(0)
    assert not machine.client().is_closed


def test_a_node_that_dies_sends_nothing_on_a_connection_that_it_has_closed():
    """The node was paused when the first answer was due, and a rule was to break the connection at the second one."""
    machine = Machine(nodes=2)
    client = machine.client()
    machine.cluster.rules.delay("ApiVersions", ms=10)
    machine.cluster.rules.cut("Metadata")
    client.send(NAMED, 4)
    client.send(MetadataRequest(topics=()))
    machine.do(lambda cluster, now_ms: cluster.nodes.pause(1, now_ms))
    machine.pass_ms(10)
    assert client.is_closed
    machine.client(2)
    machine.do(lambda cluster, now_ms: cluster.nodes.kill(1, now_ms))
    assert client.answer() is None
