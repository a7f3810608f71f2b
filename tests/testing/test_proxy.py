"""`aiogroup.testing.Proxy`, in front of a broker of a few lines: each of its rules, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import dataclasses
import struct

import pytest

from aiogroup._core.protocol import decode_response
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded import Broker
from aiogroup.embedded.machine.logs.batches import Record as StoredRecord
from aiogroup.embedded.machine.logs.batches import build
from aiogroup.embedded.messages.cluster import DescribeClusterRequest
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from aiogroup.errors import ConfigError, ConnectionLostError, ProtocolError
from aiogroup.testing import CUT, DROPPED, Proxy, Raw
from tests.support.kafka import eventually
from tests.testing.lonely_broker import HOST, LonelyBroker, connected

BEAT = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
VERSION = 4
NODES = MetadataRequest(topics=())
METADATA_VERSION = 12


@pytest.fixture
async def broker():
    async with LonelyBroker() as broker:
        yield broker


@pytest.fixture
async def proxy(broker):
    async with Proxy(broker.address) as proxy:
        broker.asked.clear()  # the proxy's own question
        yield proxy


@pytest.fixture
async def client(proxy):
    async with connected(proxy.bootstrap_servers) as client:
        yield client


# What it is in front of.


async def test_answers_pass_and_requests_are_counted_by_api_and_node(proxy, broker, client):
    for _ in range(3):
        await client.ask(BEAT, VERSION)
    await client.ask(NODES, METADATA_VERSION)
    assert broker.asked == [BEAT, BEAT, BEAT, NODES]
    assert [proxy.count("Heartbeat"), proxy.count(HeartbeatRequest, 1), proxy.count(12, 2), proxy.count()] == [
        3,
        3,
        0,
        4,
    ]


@pytest.mark.parametrize("version", [1, 4])
async def test_a_client_stays_behind_it(proxy, client, version):
    (told,) = (await client.ask(NODES, METADATA_VERSION)).brokers
    assert f"{told.host}:{told.port}" == proxy.bootstrap_servers
    (found,) = (await client.ask(FindCoordinatorRequest(coordinator_keys=("group",)), version)).coordinators
    assert f"{found.host}:{found.port}" == proxy.bootstrap_servers


def fetch_of(topic_id):
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=1, min_bytes=0, topics=(FetchTopic("", topic_id, (asked,)),))


def produce_of(name, topic_id):
    data = PartitionProduceData(0, bytes(build([StoredRecord(0, 1, None, b"2")])))
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=(TopicProduceData(name, topic_id, (data,)),))


async def test_a_client_that_hears_of_a_new_leader_stays_behind_it():
    with Broker(nodes=2, seed=1) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        cluster.produce("orders", b"1")
        async with Proxy(cluster.bootstrap_servers) as proxy:
            ours = proxy.bootstrap_servers.split(",")
            async with connected(ours[0]) as client:
                (topic,) = (await client.ask(MetadataRequest(topics=None), METADATA_VERSION)).topics
            leader = topic.partitions[0].leader_id
            async with connected(ours[2 - leader]) as client:  # of the other node
                told = [await client.ask(fetch_of(topic.topic_id), version) for version in (16, 17, 18)]
                told += [await client.ask(produce_of("orders", ZERO_UUID), version) for version in (10, 11, 12)]
                told += [await client.ask(produce_of("", topic.topic_id), 13)]
                for answer in told:
                    (node,) = answer.node_endpoints
                    assert (node.node_id, f"{node.host}:{node.port}") == (leader, ours[leader - 1])
                for version in (0, 1, 2):
                    answer = await client.ask(DescribeClusterRequest(), version)
                    assert [f"{each.host}:{each.port}" for each in answer.brokers] == ours
            async with connected(ours[leader - 1]) as client:
                answer = await client.ask(fetch_of(topic.topic_id), 17)
                assert len(answer.responses[0].partitions[0].records) > 60
                assert answer.node_endpoints == ()
        assert cluster.troubles == []


async def test_it_learns_the_nodes_from_the_bootstrap_server_and_later_ones_from_answers(broker):
    async with LonelyBroker(2) as second, LonelyBroker(3) as third:
        broker.brokers[2] = second.port
        async with Proxy(["127.0.0.1:1", broker.address]) as proxy:
            servers = proxy.bootstrap_servers.split(",")
            assert len(servers) == 2
            async with connected(servers[1]) as client:
                await client.ask(BEAT, VERSION)
            broker.brokers[3] = third.port
            async with connected(servers[0]) as client:
                told = (await client.ask(NODES, METADATA_VERSION)).brokers
            async with connected(f"{HOST}:{told[2].port}") as client:
                await client.ask(BEAT, VERSION)
            assert [proxy.count("Heartbeat", node_id) for node_id in (1, 2, 3)] == [0, 1, 1]
    assert second.asked == third.asked == [BEAT]


async def test_addresses_that_are_given_are_those_it_uses():
    async with LonelyBroker(7) as broker:
        broker.brokers[7] = 1  # what it advertises leads nowhere
        async with Proxy(nodes={7: broker.address}) as proxy, connected(proxy.bootstrap_servers) as client:
            (told,) = (await client.ask(NODES, METADATA_VERSION)).brokers
            assert f"{told.host}:{told.port}" == proxy.bootstrap_servers
            async with connected(proxy.bootstrap_servers) as other:
                await other.ask(BEAT, VERSION)


async def test_without_a_cluster_it_says_so():
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1: ConnectionRefusedError"):
        async with Proxy("127.0.0.1:1"):
            pass
    for wrong in (
        {},
        {"bootstrap_servers": "a:1", "nodes": {1: "b:2"}},
        {"nodes": {}},
        {"bootstrap_servers": "a:b:c:"},
    ):
        with pytest.raises(ConfigError):
            Proxy(**wrong)


# Rules.


async def test_delay(proxy, client):
    proxy.delay("Heartbeat", ms=100, times=1)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    await client.ask(BEAT, VERSION)
    assert loop.time() - began_at >= 0.1


@pytest.mark.parametrize("how", ["event", "remove", "clear"])
async def test_hold_until_it_is_let_go(proxy, broker, client, how):
    event = asyncio.Event()
    rule = proxy.hold(HeartbeatRequest, until=event, times=1)
    client.send(BEAT, VERSION)
    await eventually(lambda: rule.used_count)
    reading = asyncio.ensure_future(client.read())
    async with connected(proxy.bootstrap_servers) as other:
        await other.ask(BEAT, VERSION)
    assert broker.asked == [BEAT, BEAT]
    assert not reading.done()
    {"event": event.set, "remove": rule.remove, "clear": proxy.clear}[how]()
    await reading


async def test_cut_after_and_before_the_broker_saw_the_request(proxy, broker, client):
    proxy.cut("Heartbeat", times=1)
    client.send(BEAT, VERSION)
    assert await client.ended()
    assert broker.asked == [BEAT]
    proxy.cut("Heartbeat", before=True, times=1)
    async with connected(proxy.bootstrap_servers) as other:
        other.send(BEAT, VERSION)
        assert await other.ended()
    assert broker.asked == [BEAT]
    async with connected(proxy.bootstrap_servers) as other:
        await other.ask(BEAT, VERSION)


@pytest.mark.parametrize("before", [False, True])
async def test_drop_keeps_the_connection(proxy, broker, client, before):
    with proxy.drop("Heartbeat", before=before) as rule:
        client.send(BEAT, VERSION)
        await eventually(lambda: rule.used_count)
    assert (await client.ask(BEAT, VERSION)).throttle_time_ms == (1 if before else 2)
    assert len(broker.asked) == (1 if before else 2)


async def test_corrupt(proxy, client):
    async def raw(how):
        async with connected(proxy.bootstrap_servers) as one:
            with proxy.corrupt("Heartbeat", how=how):
                one.send(BEAT, VERSION)
                async with asyncio.timeout(5):
                    return await one.reader.readexactly(4), await one.reader.read(100)

    answer = await client.ask(BEAT, VERSION)
    size, good = await raw("correlation_id")
    assert int.from_bytes(size, "big") == len(good)
    assert decode_response(HeartbeatRequest, VERSION, good) == (
        1 ^ 0x55555555,
        dataclasses.replace(answer, throttle_time_ms=2),
    )
    size, spoiled = await raw("bytes")
    assert (int.from_bytes(size, "big"), len(spoiled)) == (len(good), len(good))
    assert spoiled[:4] == b"\0\0\0\1"
    assert spoiled[4:] != good[4:]
    size, spoiled = await raw("truncated")
    assert int.from_bytes(size, "big") == len(spoiled) == len(good) // 2
    size, spoiled = await raw("unfinished")
    assert (int.from_bytes(size, "big"), len(spoiled)) == (len(good), len(good) // 2)
    size, spoiled = await raw("length")
    assert struct.unpack(">i", size)[0] in (2**31 - 1, -1, 0)
    assert len(spoiled) == len(good)
    assert len({await raw(None) for _ in range(20)}) > 3


async def test_the_same_seed_does_the_same_damage(broker):
    seen = []
    for seed in (1, 1, 2):
        async with Proxy(broker.address, seed=seed) as proxy:
            proxy.corrupt("Heartbeat", how="bytes")
            async with connected(proxy.bootstrap_servers) as client:
                client.send(BEAT, VERSION)
                seen.append(await client.read())
    assert seen[0] == seen[1] != seen[2]


async def test_rewrite(proxy, client):
    async def refuse(exchange):
        await asyncio.sleep(0)
        assert exchange.request == BEAT
        return dataclasses.replace(exchange.response, error_code=25)

    with proxy.rewrite("Heartbeat", refuse):
        assert (await client.ask(BEAT, VERSION)).error_code == 25
    with proxy.rewrite("Heartbeat", lambda exchange: exchange.answered[:4] + b"!"):
        client.send(BEAT, VERSION)
        assert await client.read() == client.correlation_id.to_bytes(4, "big") + b"!"
    with proxy.rewrite("Heartbeat", lambda exchange: Raw(b"\0\0\0\5HTTP/")):
        client.send(BEAT, VERSION)
        assert await client.read() == b"HTTP/"
    with proxy.rewrite("Heartbeat", lambda exchange: None):
        assert (await client.ask(BEAT, VERSION)).error_code == 0
    with proxy.rewrite("Heartbeat", lambda exchange: DROPPED) as rule:
        client.send(BEAT, VERSION)
        await eventually(lambda: rule.used_count)
    proxy.rewrite("Heartbeat", lambda exchange: CUT)
    client.send(BEAT, VERSION)
    assert await client.ended()


async def test_what_a_rule_raises_comes_out_of_the_proxy(broker):
    proxy = Proxy(broker.address)
    await proxy.__aenter__()
    proxy.rewrite("Heartbeat", lambda _: 1 // 0)
    async with connected(proxy.bootstrap_servers) as client:
        client.send(BEAT, VERSION)
        assert await client.ended()
    with pytest.raises(ZeroDivisionError):
        await proxy.__aexit__(None, None, None)


async def test_a_rule_is_for_its_apis_its_node_and_so_many_times_and_the_newest_counts(proxy, client):
    def code(number):
        return lambda exchange: dataclasses.replace(exchange.response, error_code=number)

    proxy.rewrite("Heartbeat", code(1))
    twice = proxy.rewrite("Heartbeat", code(2), times=2)
    proxy.rewrite("Heartbeat", code(3), node_id=99)
    proxy.drop("Fetch", "Metadata", before=True, times=1)
    codes = [(await client.ask(BEAT, VERSION)).error_code for _ in range(3)]
    assert codes == [2, 2, 1]
    assert twice.used_count == 2
    client.send(NODES, METADATA_VERSION)
    await client.ask(NODES, METADATA_VERSION)
    proxy.clear()
    assert (await client.ask(BEAT, VERSION)).error_code == 0


async def test_a_rule_without_apis_is_for_all_of_them(proxy, client):
    proxy.cut()
    client.send(NODES, METADATA_VERSION)
    assert await client.ended()


async def test_names_that_are_none_are_refused(proxy):
    with pytest.raises(ValueError, match="did you mean 'Heartbeat'"):
        proxy.drop("Hearbeat")
    with pytest.raises(ValueError, match="one of Fetch"):
        proxy.count("?")
    with pytest.raises(ValueError, match="at least once"):
        proxy.drop(times=0)


# Bounds and the end.


async def test_requests_that_are_never_answered_are_not_kept(proxy, broker, client):
    """Produce without acks: the answers of what comes behind it find their requests all the same."""
    proxy.rewrite("Heartbeat", lambda exchange: dataclasses.replace(exchange.response, error_code=25))
    for number in range(2_000):
        client.send_raw(struct.pack(">hhih", 0, 9, 100_000 + number, -1) + bytes(100))
    answer = await client.ask(BEAT, VERSION)
    assert (answer.throttle_time_ms, answer.error_code) == (2_001, 25)


async def test_an_absurd_length_ends_the_connection(proxy, client):
    client.writer.write(struct.pack(">i", 2**31 - 1))
    assert await client.ended()


async def test_disconnect_ends_what_is_connected_and_new_connections_are_served(proxy, client):
    await client.ask(BEAT, VERSION)
    proxy.disconnect(99)
    await client.ask(BEAT, VERSION)
    proxy.disconnect(1)
    assert await client.ended()
    async with connected(proxy.bootstrap_servers) as other:
        await other.ask(BEAT, VERSION)


async def test_a_broker_that_is_gone_ends_the_connection(broker):
    async with Proxy(nodes={1: "127.0.0.1:1"}) as proxy, connected(proxy.bootstrap_servers) as client:
        assert await client.ended()


async def test_nothing_of_it_stays(broker):
    tasks = asyncio.all_tasks()
    async with Proxy(broker.address) as proxy:
        servers = proxy.bootstrap_servers
        proxy.hold("Heartbeat")
        async with connected(servers) as held, connected(servers) as idle, connected(servers) as late:
            held.send(BEAT, VERSION)
            await idle.ask(NODES, METADATA_VERSION)
            await eventually(lambda: proxy.count("Heartbeat"))
            await proxy.__aexit__(None, None, None)
            assert await held.ended()
            assert await idle.ended()
            assert await late.ended()
    with pytest.raises(OSError, match="Connect call failed"):
        async with connected(servers):
            pass
    await eventually(lambda: broker.connections_count == 0)
    await eventually(lambda: asyncio.all_tasks() - tasks == set())


async def test_a_server_that_speaks_something_else_is_none():
    async def http(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(http, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLostError, match=ProtocolError.__name__ + ".*PLAINTEXT"):
        async with Proxy(f"{HOST}:{port}"):
            pass
    server.close()
    await asyncio.wait_for(gone.wait(), 5)
