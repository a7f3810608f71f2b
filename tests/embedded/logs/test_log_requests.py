"""Requests about topics and logs: answered as by Kafka 4.3.1 (golden.json), and cases that no script can show."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Fault
from aiogroup.embedded.machine.faults.faults import Place as FaultPlace
from aiogroup.embedded.machine.logs.batches import Record, build, header_of, is_intact, records_of
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from tests.support.log_scripts import SCRIPTS, PureBroker, Talk, golden


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_the_answers_are_those_of_kafka(script):
    talk = Talk(PureBroker(), "pure")
    script(talk)
    assert talk.transcript == golden()[script.__name__]


class ThreeNodes:
    """Nodes 1 to 3, some of which are down."""

    def __init__(self, *down):
        self.down = down

    def get(self, node_id):
        return Place(node_id) if 1 <= node_id <= 3 else None

    def live(self, replicas):
        return tuple(each for each in replicas if each not in self.down and 1 <= each <= 3)

    def __len__(self):
        return 3


@dataclass
class Place:
    node_id: int
    host = "127.0.0.1"

    @property
    def port(self):
        return 9000 + self.node_id

    @property
    def rack(self):
        return f"rack-{self.node_id}"


def batch(count=1, **producer):
    return bytes(build([Record(place, 0, b"k", b"v" * 50) for place in range(count)], **producer))


def produce(broker, *asked, version=12, acks=-1, ids=()):
    """`asked`: (topic, partition, records). The answer's partitions by topic and number."""
    data = tuple(
        TopicProduceData(topic, broker.topics.get(topic).topic_id, (PartitionProduceData(partition, records),))
        for topic, partition, records in asked
    )
    answer = broker.send(ProduceRequest(None, acks, 1_000, data), version)
    assert not isinstance(answer, str), answer
    names = {each.topic_id: each.name for each in broker.topics}
    return answer, {
        (topic.name or names[topic.topic_id], each.index): each
        for topic in answer.responses
        for each in topic.partition_responses
    }


def ends(broker, topic):
    return [each.log.end_offset for each in broker.topics.get(topic).partitions]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_node_that_does_not_lead_says_who_does(version):
    broker = PureBroker(nodes=ThreeNodes())
    for node, partition in zip((2, 1), broker.topics.create("t", 2, 0, replication_factor=3).partitions, strict=True):
        partition.elect(node, 0)
    answer, found = produce(broker, ("t", 0, batch()), ("t", 1, batch()), version=version)
    assert [each.error_code for each in found.values()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    leaders = [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in found.values()]
    nodes = [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
    if version < 10:
        assert leaders == [(-1, -1), (-1, -1)]
        assert nodes == []
    else:
        assert leaders == [(2, 1), (-1, -1)]
        assert nodes == [(2, "127.0.0.1", 9002, "rack-2")]
    assert ends(broker, "t") == [0, 1]


@pytest.mark.parametrize("came", range(5))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_kept_with_the_codec_of_its_topic(wanted, came):
    broker = PureBroker()
    stamped = {"compression.type": wanted, "message.timestamp.type": "LogAppendTime"}
    for name, config in (("t", {"compression.type": wanted}), ("stamped", stamped)):
        broker.topics.create(name, 1, 0, config=config)
        sent = batch(3, codec=came, producer_id=5, producer_epoch=2, base_sequence=7, is_transactional=False)
        for base_sequence in (7, 7):
            _, found = produce(broker, (name, 0, sent))
            assert (found[name, 0].error_code, found[name, 0].base_offset) == (0, 0), base_sequence
        (kept,) = broker.topics.partition(name, 0).log.batches()
        before, after = header_of(sent), header_of(kept)
        assert after.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(wanted)
        assert is_intact(kept, after.crc)
        assert [each.value for each in records_of(kept)] == [b"v" * 50] * 3
        for field in ("producer_id", "producer_epoch", "base_sequence", "last_offset_delta", "records_count"):
            assert getattr(after, field) == getattr(before, field), field
        assert after.max_timestamp == (broker.now_ms if name == "stamped" else before.max_timestamp)


def test_a_batch_that_grows_too_large_by_its_topics_codec_is_refused():
    broker = PureBroker()
    broker.topics.create("t", 1, 0, config={"compression.type": "uncompressed", "max.message.bytes": "2000"})
    small, large = (batch(count, codec=1) for count in (20, 100))
    assert len(large) < 2_000
    _, found = produce(broker, ("t", 0, large))
    assert (found["t", 0].error_code, ends(broker, "t")) == (ErrorCode.MESSAGE_TOO_LARGE, [0])
    _, found = produce(broker, ("t", 0, small))
    assert (found["t", 0].error_code, ends(broker, "t")) == (ErrorCode.NONE, [20])


def test_too_few_live_replicas_refuse_acks_of_all():
    broker = PureBroker(nodes=ThreeNodes(2, 3))
    broker.topics.create("safe", 1, 0, replication_factor=3, config={"min.insync.replicas": "2"})
    broker.topics.create("bold", 1, 0, replication_factor=3)
    broker.topics.create("small", 1, 0, replication_factor=1, config={"min.insync.replicas": "2"})
    asked = [(name, 0, batch()) for name in ("safe", "bold", "small")]
    _, found = produce(broker, *asked)
    assert [each.error_code for each in found.values()] == [ErrorCode.NOT_ENOUGH_REPLICAS, 0, 0]
    _, found = produce(broker, *asked, acks=1)
    assert [each.error_code for each in found.values()] == [0, 0, 0]
    assert [ends(broker, name) for name in ("safe", "bold", "small")] == [[1], [2], [2]]


def test_a_fault_refuses_one_partition_and_the_others_are_served():
    broker = PureBroker()
    broker.topics.create("t", 3, 0)
    broker.faults.add(Fault("Produce", ErrorCode.KAFKA_STORAGE_ERROR, FaultPlace(topic="t", partition=1)))
    denied = Fault("Produce", ErrorCode.REQUEST_TIMED_OUT, FaultPlace(topic="t", partition=2), after=True)
    broker.faults.add(denied)
    asked = [("t", number, batch()) for number in range(3)]
    _, found = produce(broker, *asked)
    assert [each.error_code for each in found.values()] == [
        0,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    assert ends(broker, "t") == [1, 0, 1]
    assert denied.used_count == 1
    produce(broker, *asked)
    assert ends(broker, "t") == [2, 1, 2]


def test_a_fault_of_an_administrator_comes_before_or_after_the_act():
    broker = PureBroker()
    for after in (False, True):
        for api in ("CreateTopics", "CreatePartitions", "DeleteTopics"):
            broker.faults.add(Fault(api, ErrorCode.REQUEST_TIMED_OUT, FaultPlace(topic="t"), after=after))
    talk = Talk(broker, "")

    def is_there():
        topic = broker.topics.get("t")
        return topic and len(topic.partitions)

    for act in (
        lambda: talk.create({"name": "t"}, {"name": "other"}),
        lambda: talk.add_partitions(("t", 2, None)),
        lambda: talk.delete("t"),
    ):
        talk.transcript.clear()
        before = is_there()
        act()
        assert is_there() == before
        broker.await_leader = lambda *_: None
        act()
        assert is_there() != before
        codes = [line[-1] if line[0] != "create" else line[2] for line in talk.transcript if line[1] == "t"]
        assert codes == ["REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT"]
    assert broker.topics.get("other") is not None


def test_a_full_broker_refuses_with_the_name_of_its_setting_and_drops_nothing():
    one = len(batch())
    broker = PureBroker(max_bytes=2 * one + 1)
    broker.topics.create("t", 2, 0)
    numbered = [batch(producer_id=1, producer_epoch=0, base_sequence=number) for number in range(3)]
    for each in numbered[:2]:
        _, found = produce(broker, ("t", 0, each))
        assert found["t", 0].error_code == 0
    _, found = produce(broker, ("t", 0, numbered[2]), ("t", 1, batch()))
    assert {each.error_code for each in found.values()} == {ErrorCode.POLICY_VIOLATION}
    assert "max_bytes" in found["t", 0].error_message
    assert [str(each.refusal.name) for each in broker.troubles.kept] == ["max_bytes", "max_bytes"]
    assert ends(broker, "t") == [2, 0]
    _, found = produce(broker, ("t", 0, numbered[1]))
    assert (found["t", 0].error_code, found["t", 0].base_offset) == (0, 1)
    broker.topics.delete(broker.topics.get("t"), 0)
    assert broker.budget.used_bytes == 0


def test_an_internal_topic_takes_no_records_of_clients():
    broker = PureBroker()
    broker.topics.create("t", 1, 0, is_internal=True)
    _, found = produce(broker, ("t", 0, batch()))
    assert found["t", 0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ends(broker, "t") == [0]


def test_whoever_waits_for_records_is_told_how_many_bytes_came():
    broker = PureBroker()
    told = []

    class Waiter:
        def on_append(self, partition, size_bytes, now_ms):
            told.append((partition.index, size_bytes, now_ms))

    (partition,) = broker.topics.create("t", 1, 0).partitions
    partition.waiters[1] = Waiter()
    repeated = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        produce(broker, ("t", 0, repeated))
    assert told == [(0, len(repeated), broker.now_ms)]


@pytest.mark.parametrize("version", range(3))
def test_old_versions_of_produce_are_offered_and_break_the_connection(version):
    broker = PureBroker()
    assert broker.send(ProduceRequest(None, -1, 1_000, ()), version) == "closed"
    assert [each.refusal.name for each in broker.troubles.kept] == ["api"]


def test_records_of_a_transaction_need_one():
    broker = PureBroker()
    made = broker.send(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000), 5)
    assert (made.error_code, made.producer_epoch) == (0, 0)
    broker.topics.create("t", 1, 0)

    def sent(producer_id=made.producer_id, sequence=0, version=11):
        records = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        data = (TopicProduceData("t", partition_data=(PartitionProduceData(0, records),)),)
        (topic,) = broker.send(ProduceRequest("tx", -1, 1_000, data), version).responses
        return ErrorCode(topic.partition_responses[0].error_code).name

    assert sent() == "TRANSACTION_ABORTABLE"
    assert sent(version=10) == "INVALID_TXN_STATE"
    assert sent(made.producer_id + 1) == "INVALID_PRODUCER_ID_MAPPING"
    assert sent(version=12) == "NONE"
    assert sent(sequence=1, version=3) == "NONE"


def test_producers_get_ids_of_their_own():
    broker = PureBroker()
    ids = [broker.send(InitProducerIdRequest(transactional_id=None), 5).producer_id for _ in range(5)]
    assert len(set(ids)) == 5
    broker.faults.add(Fault("InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    answer = broker.send(InitProducerIdRequest(transactional_id=None), 5)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)


def test_a_truncation_takes_back_the_state_of_producers():
    broker = PureBroker()
    broker.topics.create("t", 1, 0)
    numbered = [batch(producer_id=1, producer_epoch=0, base_sequence=number) for number in range(4)]
    for each in numbered[:3]:
        produce(broker, ("t", 0, each))
    broker.topics.partition("t", 0).log.truncate(1)
    _, found = produce(broker, ("t", 0, numbered[3]))
    assert found["t", 0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    _, found = produce(broker, ("t", 0, numbered[1]))
    assert (found["t", 0].error_code, found["t", 0].base_offset) == (0, 1)


def test_a_new_partition_is_led_by_the_first_replica_that_is_up():
    broker = PureBroker(nodes=ThreeNodes(1))
    talk = Talk(broker, "x")
    talk.create({"name": "t", "count": -1, "factor": -1, "assignments": [(0, (1, 3, 2))]})
    talk.add_partitions(("t", 2, [(1, 2, 3)]))
    partitions = broker.topics.get("t-x").partitions
    assert [(each.leader, each.replicas) for each in partitions] == [(3, (1, 3, 2)), (2, (1, 2, 3))]
    talk.create({"name": "u", "count": -1, "factor": -1, "assignments": [(0, (1,))]})
    assert talk.transcript[-1][2] == "INVALID_REPLICA_ASSIGNMENT"


def test_the_cluster_says_how_many_partitions_and_replicas_a_topic_has():
    broker = PureBroker(nodes=ThreeNodes(), properties={"num.partitions": "4", "default.replication.factor": "2"})
    talk = Talk(broker, "x")
    talk.create({"name": "t", "count": -1, "factor": -1})
    assert [each.replicas for each in broker.topics.get("t-x").partitions] == [(1, 2)] * 4
    assert talk.transcript[-1][4:6] == [4, 2]
