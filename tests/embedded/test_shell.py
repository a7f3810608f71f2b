"""The embedded broker on TCP: in a thread and in the running loop, its life and its end, and real clients."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import threading
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatch

from aiogroup import Consumer
from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded import Broker, BrokerRefusal

NAMED = ApiVersionsRequest(client_software_name="scripted", client_software_version="1")
LIMIT_S = 120
"""Only a hang takes so long, even on a busy machine."""


def connected(node):
    return socket.create_connection(("127.0.0.1", node.port), timeout=LIMIT_S)


def ask(peer, request, version):
    frame = encode_request(request, version, 1, "scripted")
    peer.sendall(len(frame).to_bytes(4, "big") + frame)
    stream = peer.makefile("rb")
    size = int.from_bytes(stream.read(4), "big")
    return decode_response(type(request), version, stream.read(size))[1]


def open_files():
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_broker_serves_as_soon_as_it_is_there():
    with Broker() as broker, connected(broker.nodes[0]) as peer:
        assert ask(peer, NAMED, 4).error_code == 0
        (node,) = ask(peer, MetadataRequest(topics=()), 13).brokers
        assert (node.node_id, f"{node.host}:{node.port}") == (1, broker.bootstrap_servers)
        assert broker.cluster_id.startswith("aiogroup-embedded")
        assert broker.troubles == []


def test_a_hundred_brokers_in_a_row_leave_nothing_behind():
    with Broker() as broker, connected(broker.nodes[0]) as peer:
        ask(peer, NAMED, 4)
    files, threads = open_files(), threading.active_count()
    for _ in range(100):
        with Broker() as broker:
            peer = connected(broker.nodes[0])
            assert ask(peer, NAMED, 4).error_code == 0
        with peer:
            assert peer.recv(1) == b"", "it is closed when the broker is"
    assert open_files() <= files, "there may be fewer: what earlier tests left is closed meanwhile"
    assert threading.active_count() <= threads


async def test_brokers_in_the_running_loop_leave_nothing_behind():
    files, tasks = open_files(), asyncio.all_tasks()
    for _ in range(10):
        async with Broker(nodes=3) as broker:
            assert len(broker.bootstrap_servers.split(",")) == 3
            peer = connected(broker.nodes[2])
            answer = await asyncio.to_thread(ask, peer, NAMED, 4)
            assert answer.error_code == 0
        peer.close()
    assert asyncio.all_tasks() == tasks
    await asyncio.get_running_loop().shutdown_default_executor()
    assert open_files() <= files


def test_calls_after_the_end_and_before_the_beginning_are_refused():
    broker = Broker()
    with pytest.raises(BrokerRefusal, match="not started"):
        broker.create_topic("orders")
    with broker:
        broker.create_topic("orders")
    with pytest.raises(BrokerRefusal, match="closed"):
        broker.create_topic("bills")
    broker.close()
    with pytest.raises(BrokerRefusal, match="once"), broker:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(
    "call", [lambda broker: broker.create_topic("orders"), lambda broker: broker.wait(lambda: False, timeout_s=1)]
)
def test_a_forked_copy_refuses_every_call(call):
    with Broker() as broker:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                call(broker)
                os.write(writing, b"created")
            except (BrokerRefusal, TimeoutError) as error:
                os.write(writing, str(error).encode())
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            assert b"forked" in told.read()
        broker.create_topic("orders")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_copy_keeps_no_connection_and_no_port_open():
    with Broker() as broker, connected(broker.nodes[0]) as peer:
        ask(peer, NAMED, 4)
        child = os.fork()
        if not child:
            signal.pause()
        try:
            broker.disconnect()
            assert peer.recv(1) == b""
            (node,) = broker.nodes
            broker.close()
            with pytest.raises(ConnectionRefusedError):
                connected(node)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="how many files are open is read there")
def test_without_a_file_for_a_connection_the_broker_says_so_and_goes_on():
    with Broker() as broker, connected(broker.nodes[0]) as peer:
        ask(peer, NAMED, 4)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        others = [socket.socket() for _ in range(2)]
        greatest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        fillers = [os.dup(peer.fileno()) for _ in range(greatest + 1 - open_files())]
        resource.setrlimit(resource.RLIMIT_NOFILE, (greatest + 1, limits[1]))
        try:
            for each in others:
                each.connect(("127.0.0.1", broker.nodes[0].port))
            broker.wait(lambda: len(broker.troubles) > 1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for each in fillers:
                os.close(each)
        assert {each.refusal.name for each in broker.troubles} == {"connections"}
        assert len(broker.troubles) < 100, "it is not tried without a pause"
        for each in others:
            with each:
                assert ask(each, NAMED, 4).error_code == 0


@pytest.mark.parametrize("port", [-1, 65_536])
def test_an_invalid_port_is_refused(port):
    with pytest.raises(BrokerRefusal, match=f"port {port}: "), Broker(port=port):
        pass


def test_a_node_that_is_killed_refuses_connections_and_keeps_its_port():
    with Broker(nodes=2) as broker:
        first, second = broker.nodes
        with connected(second) as peer:
            ask(peer, NAMED, 4)
            second.kill()
            assert peer.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connected(second)
        with connected(first) as peer:
            assert [each.node_id for each in ask(peer, MetadataRequest(topics=()), 13).brokers] == [1]
        second.start()
        with connected(second) as peer:
            assert len(ask(peer, MetadataRequest(topics=()), 13).brokers) == 2


def test_a_paused_node_accepts_and_answers_when_it_goes_on():
    with Broker() as broker:
        (node,) = broker.nodes
        node.pause()
        with connected(node) as peer:
            frame = encode_request(NAMED, 4, 1, "scripted")
            peer.sendall(len(frame).to_bytes(4, "big") + frame)
            peer.settimeout(0.05)
            with pytest.raises(TimeoutError):
                peer.recv(1)
            peer.settimeout(LIMIT_S)
            node.resume()
            assert peer.recv(4)


def test_answers_larger_than_the_sockets_buffers_are_whole():
    """The answers are of Fetch, which needs little CPU. As many bytes of Metadata took a minute on a busy machine."""
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=2**20) for number in range(2)
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic="orders", partitions=partitions),))
    frame = encode_request(request, 4, 1, "scripted")
    count = 20
    with Broker() as broker, socket.socket() as peer:
        broker.create_topic("orders", partitions=2)
        sent = [bytes([number]) * 400_000 for number in range(2)]
        for number, value in enumerate(sent):
            broker.produce("orders", value, partition=number)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        peer.connect(("127.0.0.1", broker.nodes[0].port))
        peer.settimeout(LIMIT_S)
        peer.sendall((len(frame).to_bytes(4, "big") + frame) * count)
        stream = peer.makefile("rb")
        answers = {stream.read(int.from_bytes(stream.read(4), "big")) for _ in range(count)}
        (answer,) = answers
        assert len(answer) * count > 8_000_000, "more than a socket's buffers take"
        (topic,) = decode_response(FetchRequest, 4, answer)[1].responses
        for each in topic.partitions:
            (record,) = DefaultRecordBatch(bytes(each.records))
            assert record.value == sent[each.partition_index]


async def orders(broker, count):
    """Send records from a producer to both consumers. Returns what each of them saw."""
    broker.create_topic("orders", partitions=2)
    async with asyncio.timeout(LIMIT_S):
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        for number in range(count):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
        await producer.stop()
        settings = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        theirs = AIOKafkaConsumer("orders", group_id="theirs", **settings)
        await theirs.start()
        seen_by_theirs = {(await theirs.getone()).value for _ in range(count)}
        await theirs.commit()
        await theirs.stop()
        seen_by_ours = set()
        async with Consumer("orders", group_id="ours", **settings) as ours:
            async for record in ours:
                seen_by_ours.add(bytes(record.value))
                if len(seen_by_ours) == count:
                    break
            await ours.commit()
    return seen_by_theirs, seen_by_ours


@pytest.mark.parametrize("nodes", [1, 3])
async def test_clients_against_a_thread(nodes):
    with Broker(nodes=nodes) as broker:
        wanted = {b"%d" % number for number in range(20)}
        assert await orders(broker, 20) == (wanted, wanted)
        assert {record.value for record in broker.records("orders")} == wanted
        assert broker.troubles == []


async def test_clients_in_the_same_loop():
    async with Broker() as broker:
        wanted = {b"%d" % number for number in range(20)}
        assert await orders(broker, 20) == (wanted, wanted)
        assert broker.troubles == []


async def test_a_record_without_a_producer_reaches_a_consumer_that_waits():
    with Broker(auto_create_topics=True) as broker:
        broker.create_topic("orders")
        async with (
            asyncio.timeout(LIMIT_S),
            Consumer(
                "orders", group_id="ours", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer,
        ):
            records = aiter(consumer)
            assert broker.produce("orders", b"first") == 0
            assert bytes((await anext(records)).value) == b"first"
            assert broker.produce_many("orders", [b"second", b"third"]) == [(0, 1), (0, 2)]
            assert bytes((await anext(records)).value) == b"second"
