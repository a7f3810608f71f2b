"""A refusal by the broker is told to the client and kept in `troubles`. Nothing is dropped or hangs because of it."""

from __future__ import annotations

import socket
import struct

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import PolicyViolationError

from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup.embedded import Broker, BrokerRefusal, asked
from aiogroup.embedded.machine.logs.batches import Record, build, seal
from aiogroup.embedded.machine.logs.unpacking import (
    GZIP,
    LZ4,
    MOST_RECORDS,
    MOST_UNPACKED_BYTES,
    SNAPPY,
    ZSTD,
    unpacks_within,
)
from aiogroup.embedded.machine.refusals import REFUSALS
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LIMIT_S = 10


async def test_a_full_broker_refuses_and_drops_nothing():
    with Broker(max_bytes=20_000) as broker:
        broker.create_topic("orders")
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        acknowledged = []

        async def fill():
            for _ in range(100):
                sent = await producer.send_and_wait("orders", bytes(1_000))
                acknowledged.append(sent.offset)

        with pytest.raises(PolicyViolationError):
            await fill()
        await producer.stop()
        assert len(acknowledged) > 10
        assert [each.offset for each in broker.records("orders")] == acknowledged
        (trouble,) = broker.troubles
        assert trouble.refusal.name == "max_bytes"
        assert "orders-0" in str(trouble)
        assert "max_bytes" in str(trouble)
        answers = [each.answer.responses[0].partition_responses[0] for each in broker.requests("Produce")]
        assert answers[-1].error_code == 44
        assert "max_bytes" in answers[-1].error_message
        with pytest.raises(BrokerRefusal, match="max_bytes"):
            broker.produce("orders", bytes(1_000))
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        read = [(await consumer.getone()).offset for _ in acknowledged]
        await consumer.stop()
        assert read == acknowledged
        broker.delete_topic("orders")
        broker.create_topic("orders")
        assert broker.produce("orders", bytes(1_000)) == 0, "what is deleted makes room"


def packed(codec, value_bytes, records_count=1):
    """A batch whose values are zeros, which compress to almost nothing."""
    return build([Record(n, n, None, bytes(value_bytes)) for n in range(records_count)], codec=codec)


def produced(broker, batch):
    """The error code and the message that a client gets."""
    data = (TopicProduceData("orders", partition_data=(PartitionProduceData(0, bytes(batch)),)),)
    frame = encode_request(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=data), 9, 1, "scripted")
    with socket.create_connection(("127.0.0.1", broker.nodes[0].port), timeout=60) as peer:
        peer.sendall(struct.pack(">i", len(frame)) + frame)
        with peer.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = decode_response(ProduceRequest, 9, stream.read(size))[1]
    (told,) = answer.responses[0].partition_responses
    return told.error_code, told.error_message


def test_a_batch_that_unpacks_to_too_much_is_refused_before_it_is_unpacked():
    with Broker() as broker:
        broker.create_topic("orders")
        batch = packed(ZSTD, MOST_UNPACKED_BYTES + 1)
        code, message = produced(broker, batch)
        assert code == 44
        assert f"a batch of {len(batch)} bytes unpacks to more than {MOST_UNPACKED_BYTES} bytes" in message
        (trouble,) = broker.troubles
        assert trouble.refusal.name == "unpacked"
        assert broker.records("orders") == []
        assert produced(broker, packed(ZSTD, 3_000_000)) == (0, None)
        assert len(broker.records("orders")[0].value) == 3_000_000
        assert broker.troubles == [trouble]


def test_a_batch_of_too_many_small_records_is_refused():
    with Broker() as broker:
        broker.create_topic("orders")
        batch = packed(ZSTD, 0)
        struct.pack_into(">i", batch, 23, MOST_RECORDS)
        struct.pack_into(">i", batch, 57, MOST_RECORDS + 1)
        code, message = produced(broker, seal(batch))
        assert (code, "1000001 records are in one batch" in message) == (44, True)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_to_measure_a_damaged_batch_never_raises(codec):
    batch = packed(codec, 1_000_000)
    payload = bytes(batch[61:])
    for damaged in (payload[:-3], b"", b"\xff" * 100, payload + payload):
        unpacks_within(codec, memoryview(damaged), 10_000_000)
    assert not unpacks_within(codec, memoryview(payload), 900_000)
    assert unpacks_within(codec, memoryview(payload), 1_100_000)


def garbage(broker, peer):
    peer.sendall(struct.pack(">i", -5))


def an_api_that_is_not_offered(broker, peer):
    frame = struct.pack(">hhih", 17, 1, 1, -1) + b"\x00\x05PLAIN"  # SaslHandshake
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def a_rule_that_raises(broker, peer):
    broker.rewrite("Heartbeat", lambda exchange: exchange.nothing)
    heartbeat(peer)


def a_when_that_raises(broker, peer):
    broker.error("Heartbeat", 25, when=lambda exchange: exchange.nothing)
    heartbeat(peer)
    broker.wait(asked("Heartbeat"))
    peer.close()


def heartbeat(peer):
    frame = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "scripted")
    peer.sendall(struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (garbage, "garbage"),
        (an_api_that_is_not_offered, "api"),
        (a_rule_that_raises, "rule"),
        (a_when_that_raises, "rule"),
    ],
)
def test_each_refusal_ends_and_is_kept_by_name(ask, name):
    with Broker() as broker, socket.create_connection(("127.0.0.1", broker.nodes[0].port), timeout=LIMIT_S) as peer:
        ask(broker, peer)
        if peer.fileno() >= 0:
            assert peer.recv(1) == b"", "the connection is closed, and nothing hangs"
        broker.wait(lambda: broker.troubles)
        (trouble,) = broker.troubles
        assert trouble.refusal is REFUSALS[name]
        assert trouble.refusal.helps in str(trouble)
        assert str(trouble) in broker.log_tail()
        with pytest.raises(TimeoutError) as told:
            broker.wait(lambda: False, timeout_s=0.01)
        assert str(trouble) in str(told.value)
    assert broker.troubles == [trouble], "it can be read after the end"
