"""Rules about whole requests and answers: what each does, where, how often; and the record of exchanges."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.metadata import MetadataResponse
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from aiogroup.embedded.machine.faults.rules import CUT, DROPPED, Raw
from aiogroup.embedded.machine.faults.watch import Watch
from aiogroup.embedded.machine.logs.batches import Record, build
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.clients import Clients

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
LIST = ListOffsetsRequest(topics=(ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1),)),))
BEAT, OFFSETS = (HEARTBEAT, 4), (LIST, 7)


@pytest.fixture
def clients():
    return Clients(nodes=2)


@pytest.fixture
def rules(clients):
    return clients.cluster.rules


@pytest.fixture
def client(clients):
    return clients.connect()


def numbers(client):
    return [number for number, _ in client.take()]


def test_without_rules(client):
    client.send(*BEAT)
    assert numbers(client) == [1]


def test_delay(clients, rules, client):
    rule = rules.delay("Heartbeat", ms=100, times=1)
    client.send(*BEAT)
    client.send(*OFFSETS)
    assert numbers(client) == []
    clients.pass_ms(99)
    assert numbers(client) == []
    clients.pass_ms(1)
    assert numbers(client) == [1, 2], "an answer behind one that is delayed waits too"
    assert rule.used_count == 1
    client.send(*BEAT)
    assert numbers(client) == [3]


def test_two_delays_of_one_connection_come_one_after_the_other(clients, rules, client):
    rules.delay(ms=100)
    other = clients.connect(2)
    client.send(*BEAT)
    client.send(*BEAT)
    other.send(*BEAT)
    clients.pass_ms(100)
    assert (numbers(client), numbers(other)) == ([1], [1])
    clients.pass_ms(100)
    assert numbers(client) == [2]


def test_hold_until_it_is_removed(clients, rules, client):
    rule = rules.hold("Heartbeat", times=2)
    other = clients.connect()
    for each in (client, other):
        each.send(*BEAT)
    third = clients.connect()
    third.send(*BEAT)
    clients.pass_ms(10_000)
    assert [numbers(each) for each in (client, other, third)] == [[], [], [1]]
    assert rule.used_count == 2
    clients.control(rule.remove)
    assert [numbers(each) for each in (client, other)] == [[1], [1]]
    client.send(*BEAT)
    assert numbers(client) == [2]


def test_clear_releases_what_a_used_up_rule_holds(clients, rules, client):
    rules.hold(times=1)
    client.send(*BEAT)
    clients.control(rules.clear)
    assert numbers(client) == [1]


def test_the_connection_works_at_further_requests_while_an_answer_is_held(clients, rules, client):
    """As behind a proxy, the broker sees further requests, up to a bound, and the answers keep their order."""
    rule = rules.hold(times=1)
    for _ in range(150):
        client.send(*BEAT)
    assert clients.cluster.watch.count("Heartbeat") == 101
    clients.control(rule.remove)
    assert numbers(client) == list(range(1, 151))
    assert clients.cluster.watch.count("Heartbeat") == 150


@pytest.mark.parametrize("before", [True, False])
def test_drop(clients, rules, client, before):
    rule = rules.drop("Heartbeat", before=before, times=1)
    client.send(*BEAT)
    client.send(*BEAT)
    assert numbers(client) == [2]
    assert (rule.used_count, client.is_closed) == (1, False)
    first, second = clients.cluster.watch.requests("Heartbeat")
    assert (first.answered_at_ms is None) is before, "with before its handler never sees it"
    assert second.answered_at_ms == 1_000


@pytest.mark.parametrize("before", [True, False])
def test_cut(clients, rules, client, before):
    rules.cut("Heartbeat", before=before)
    client.send(*OFFSETS)
    client.send(*BEAT)
    assert numbers(client) == [1]
    assert client.is_closed
    (seen,) = clients.cluster.watch.requests("Heartbeat")
    assert (seen.answered_at_ms is None) is before


def test_a_cut_behind_an_answer_that_is_held(clients, rules, client):
    rule = rules.hold("ListOffsets")
    client.send(*OFFSETS)
    rules.cut("Heartbeat")
    client.send(*BEAT)
    assert not client.is_closed
    clients.control(rule.remove)
    assert (numbers(client), client.is_closed) == ([1], True)


def test_answers_behind_a_cut_use_no_rule(clients, rules, client):
    held = rules.hold("ListOffsets")
    dropped = rules.drop("Heartbeat", times=1)
    rules.cut("Heartbeat", times=1)
    for each in (OFFSETS, BEAT, BEAT):
        client.send(*each)
    clients.control(held.remove)
    assert (client.is_closed, dropped.used_count) == (True, 0)


@pytest.mark.parametrize(
    ("how", "is_whole"),
    [("bytes", True), ("truncated", True), ("unfinished", False), ("length", False), ("correlation_id", True)],
)
def test_corrupt(clients, rules, client, how, is_whole):
    client.send(*OFFSETS)
    whole, client.received = client.received, b""
    rules.corrupt("ListOffsets", how=how, times=1)
    client.send(*OFFSETS)
    assert client.received != whole
    size = int.from_bytes(client.received[:4], "big", signed=True)
    assert (size == len(client.received) - 4) is is_whole


def test_rewrite(rules, client):
    def change(exchange):
        return dataclasses.replace(exchange.response, error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    with rules.rewrite("Heartbeat", change) as rule:
        assert client.ask(*BEAT).error_code == 27
    assert rule.used_count == 1
    assert client.ask(*BEAT).error_code == 25


@pytest.mark.parametrize(
    ("outcome", "received", "is_closed"),
    [
        (b"\x00\x00\x00\x01\x02", b"\x00\x00\x00\x05\x00\x00\x00\x01\x02", False),
        (Raw(b"xy"), b"xy", False),
        (CUT, b"", True),
        (DROPPED, b"", False),
    ],
)
def test_what_a_change_may_return(rules, client, outcome, received, is_closed):
    rules.rewrite("Heartbeat", lambda _exchange: outcome)
    client.send(*BEAT)
    assert (client.received, client.is_closed) == (received, is_closed)


def test_a_change_that_raises_is_a_trouble(clients, rules, client):
    rules.rewrite("Heartbeat", lambda exchange: exchange.nothing)
    client.send(*BEAT)
    assert client.is_closed
    (trouble,) = clients.cluster.troubles.kept
    assert "AttributeError" in trouble.what


@pytest.mark.parametrize(
    "outcome",
    ["no bytes", 5, [b"no bytes"], Raw("no bytes"), MetadataResponse(), HeartbeatResponse(error_code=70_000)],
    ids=["text", "number", "list", "raw text", "another answer", "a value that does not fit"],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_an_invalid_result_of_a_change_affects_only_its_connection(clients, rules, client, outcome, is_late):
    rules.rewrite("Heartbeat", lambda _exchange: outcome)
    if is_late:
        rules.delay("ListOffsets", ms=10, times=1)
        client.send(*OFFSETS)
    client.send(*BEAT)
    clients.pass_ms(10)
    assert client.is_closed
    assert [each.refusal.name for each in clients.cluster.troubles.kept] == ["rule"]
    assert clients.connect().ask(LIST, 7) is not None


def test_throttle(clients, rules, client):
    rules.throttle("Heartbeat", ms=300, times=1)
    assert client.ask(*BEAT).throttle_time_ms == 300
    client.send(*BEAT)
    clients.pass_ms(299)
    assert numbers(client) == []
    clients.pass_ms(1)
    assert numbers(client) == [2]


def test_the_newest_matching_rule_applies_at_its_node(clients, rules, client):
    rules.drop("Heartbeat")
    newest = rules.rewrite("Heartbeat", lambda _exchange: None, node_id=2)
    client.send(*BEAT)
    other = clients.connect(2)
    other.send(*BEAT)
    assert (numbers(client), numbers(other), newest.used_count) == ([], [1], 1)


def test_rules_that_make_no_sense_are_refused(rules):
    with pytest.raises(BrokerRefusal, match="did you mean 'Fetch'"):
        rules.drop("Fetsch")
    with pytest.raises(BrokerRefusal, match="times=0"):
        rules.drop("Fetch", times=0)
    with pytest.raises(BrokerRefusal, match="how='loud'"):
        rules.corrupt("Fetch", how="loud")


@pytest.mark.parametrize("event", ["another connects", "another is lost"])
def test_an_answer_by_time_lets_the_next_request_through(clients, rules, client, event):
    """Whatever tells the machine the time, the request after the answered one is handled."""
    other = clients.connect()
    rules.throttle("Heartbeat", ms=300, times=1)
    client.send(*BEAT)
    client.send(*BEAT)
    clients.now_ms += 300
    if event == "another connects":
        clients.connect()
    else:
        other.connection.lost(clients.now_ms)
    clients.collect()
    assert numbers(client) == [1, 2]


class TestWatch:
    def test_by_api_group_and_client(self, clients):
        one, two = clients.connect(name="one"), clients.connect(2, name="two")
        one.send(*BEAT)
        two.send(HeartbeatRequest(group_id="other", generation_id=1, member_id="m"), 3)
        two.send(OffsetFetchRequest(groups=(OffsetFetchRequestGroup("g", topics=None),)), 8)
        watch = clients.cluster.watch
        assert [each.client_id for each in watch.requests("Heartbeat")] == ["one", "two"]
        assert [each.api for each in watch.requests(group="g")] == ["Heartbeat", "OffsetFetch"]
        (seen,) = watch.requests(HeartbeatRequest, client_id="two")
        assert (seen.node_id, seen.version, seen.at_ms, seen.answered_at_ms) == (2, 3, 1_000, 1_000)
        assert seen.answer.error_code == ErrorCode.NOT_COORDINATOR
        assert (watch.count(), watch.count("Heartbeat"), watch.count("Fetch")) == (3, 2, 0)
        assert (watch.count("Heartbeat", 2), watch.count(node_id=2), watch.count(node_id=1)) == (1, 2, 1)
        assert [each.api for each in watch.last(2)] == ["Heartbeat", "OffsetFetch"]
        assert "Heartbeat" in str(seen)

    def test_an_answer_that_comes_later(self, clients, client):
        clients.cluster.topics.create("t", 1, clients.now_ms)
        topic_id = clients.cluster.topics.get("t").topic_id
        wanted = FetchTopic("t", topic_id, (FetchPartition(0, partition_max_bytes=100),))
        client.send(FetchRequest(topics=(wanted,), max_wait_ms=200, min_bytes=1), 18)
        (seen,) = clients.cluster.watch.requests("Fetch")
        assert seen.answered_at_ms is None
        clients.pass_ms(200)
        assert (seen.answered_at_ms, seen.answer.responses[0].partitions[0].records) == (1_200, b"")

    def test_it_keeps_no_records(self, clients, client):
        topic = clients.cluster.topics.create("t", 1, clients.now_ms)
        batch = bytes(build([Record(0, clients.now_ms, None, b"payload")]))
        data = TopicProduceData(topic_id=topic.topic_id, partition_data=(PartitionProduceData(0, batch),))
        assert (
            client.ask(ProduceRequest(acks=-1, topic_data=(data,)), 13).responses[0].partition_responses[0].base_offset
            == 0
        )
        wanted = FetchTopic("t", topic.topic_id, (FetchPartition(0, partition_max_bytes=1_000),))
        assert client.ask(FetchRequest(topics=(wanted,)), 18).responses[0].partitions[0].records
        produced, fetched = clients.cluster.watch.requests()
        assert produced.request.topic_data[0].partition_data[0].records is None
        assert fetched.answer.responses[0].partitions[0].records == b""
        assert fetched.answer.responses[0].partitions[0].high_watermark == 1

    def test_it_is_bounded(self, clients, client):
        watch = Watch(most=3)
        clients.cluster.observers.all.append(watch)
        for _ in range(5):
            client.send(*BEAT)
        assert [each.number for each in watch.requests()] == [3, 4, 5]
        assert all(each.answered_at_ms for each in watch.requests())
        assert watch.count("Heartbeat") == 5
