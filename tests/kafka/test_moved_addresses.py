"""A node gets another address, and what stands at the former one still answers: it is not asked any more."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from aiogroup._core.cluster import Broker
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._runtime.net.link import FETCH, Link
from aiogroup.config import ConsumerConfig
from aiogroup.testing import Proxy
from aiogroup.testing.addresses import teller_of
from tests.support.kafka import Place, eventually, take

HERE = (FetchRequest, HeartbeatRequest, OffsetCommitRequest)


def names(proxy, *apis, at):
    """From now on these answers of the proxy name the other proxy's address for every node."""
    host, _, port = at.bootstrap_servers.rpartition(":")

    def moved(exchange):
        teller = teller_of(exchange.header.api_key, exchange.header.api_version)
        ports = {teller.id_of(each): int(port) for each in teller.nodes(exchange.response)}
        return teller.moved(exchange.response, host, ports)

    for api in apis:
        proxy.rewrite(api, moved)


@pytest.fixture
async def two_addresses(make_place):
    """A place whose one node can be reached at two addresses."""
    place = make_place()
    async with AsyncExitStack() as stack:
        former, new = [await stack.enter_async_context(Proxy(place.cluster.bootstrap_servers)) for _ in range(2)]
        yield place, former, new


@pytest.mark.parametrize("heartbeat_thread", [False, True])
async def test_metadata_with_another_address_moves_every_connection(two_addresses, heartbeat_thread):
    place, former, new = two_addresses
    settings = {
        "bootstrap_servers": former.bootstrap_servers, "metadata_max_age_ms": 500, "heartbeat_interval_ms": 200,
        "heartbeat_thread": heartbeat_thread,
    }  # fmt: skip
    async with place.consumer(**settings) as consumer:
        await place.produce(range(2))
        assert await take(consumer, 2) == ["0", "1"]
        await consumer.commit()
        assert not any(new.count(api) for api in HERE)
        names(former, MetadataRequest, at=new)
        names(new, MetadataRequest, FindCoordinatorRequest, at=new)
        await eventually(lambda: new.count(FetchRequest) and new.count(HeartbeatRequest))
        before = {api: former.count(api) for api in HERE}
        await place.produce(range(2, 4))
        assert await take(consumer, 2) == ["2", "3"]
        await consumer.commit()
        beats = new.count(HeartbeatRequest)
        await eventually(lambda: new.count(HeartbeatRequest) > beats + 2)
        assert {api: former.count(api) for api in HERE} == before
        assert new.count(OffsetCommitRequest)
    assert await place.committed() == 4


async def test_the_coordinator_is_where_find_coordinator_says(two_addresses):
    """The metadata is older, and is not looked at: this member has no other reason to ask for it."""
    place, former, new = two_addresses
    settings = {"bootstrap_servers": former.bootstrap_servers, "heartbeat_interval_ms": 200}
    async with place.consumer(**settings) as consumer:
        names(former, FindCoordinatorRequest, at=new)
        former.cut(HeartbeatRequest)
        former.disconnect()
        await eventually(lambda: new.count(HeartbeatRequest) > 2)
        joins = former.count(JoinGroupRequest)
        await consumer.enforce_rebalance()
        await eventually(lambda: new.count(JoinGroupRequest))
        assert former.count(JoinGroupRequest) == joins


async def test_an_attempt_at_the_former_address_ends(kafka_cluster):
    """Which takes the connection and says nothing: by its own time-out the attempt would last for ten seconds."""
    asked, is_over = asyncio.Event(), asyncio.Event()

    async def keep_silent(reader, writer):
        asked.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    host, _, port = kafka_cluster.bootstrap_servers.split(",")[0].rpartition(":")
    silent = await asyncio.start_server(keep_silent, host)
    former = Broker(1, *silent.sockets[0].getsockname()[:2])
    async with silent, Link(ConsumerConfig(bootstrap_servers=kafka_cluster.bootstrap_servers)) as link:
        link.know({1: former})
        connecting = asyncio.create_task(link.connect(1, FETCH))
        await asyncio.wait_for(asked.wait(), 10)
        link.know_address(1, host, int(port))
        connection = await asyncio.wait_for(connecting, 5)
        assert (connection.is_open, connection.port) == (True, int(port))
        await asyncio.wait_for(is_over.wait(), 5)


@asynccontextmanager
async def switch(host, targets):
    """A port whose new connections lead to the last of these ports; those that are open stay where they lead."""
    pumping = set()

    async def pump(reader, writer):
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        finally:
            writer.close()

    async def forward(reader, writer):
        there = await asyncio.open_connection(host, targets[-1])
        for ends in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(pump(*ends))
            pumping.add(task)
            task.add_done_callback(pumping.discard)

    async with await asyncio.start_server(forward, host) as server:
        yield server.sockets[0].getsockname()[1], pumping
        for task in pumping:
            task.cancel()


async def test_the_same_address_leads_to_another_node_for_a_while(kafka_cluster_3, unique_name):
    """A name that was looked up too early, or whose address was reused: that node is no leader, and stays open."""
    place = Place(kafka_cluster_3, unique_name("topic"), None)
    kafka_cluster_3.create_topic(place.topic, 1, 1)
    targets = []
    async with Proxy(kafka_cluster_3.bootstrap_servers) as proxy, switch("127.0.0.1", targets) as (port, pumping):
        async with Link(ConsumerConfig(bootstrap_servers=proxy.bootstrap_servers)) as link:
            cluster = await link.fetch_metadata([place.topic])
        ports = {node_id: each.port for node_id, each in cluster.brokers.items()}
        leader = cluster.leader(place.tp())
        other = next(each for each in ports if each != leader)
        targets.append(ports[leader])

        def at_switch(exchange):
            teller = teller_of(exchange.header.api_key, exchange.header.api_version)
            return teller.moved(exchange.response, "127.0.0.1", ports | {leader: port})

        proxy.rewrite(MetadataRequest, at_switch)
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "retry_backoff_ms": 20}
        async with place.consumer(**settings) as consumer:
            await place.produce([0])
            assert await take(consumer, 1) == ["0"]
            targets.append(ports[other])
            for task in pumping:
                task.cancel()
            fetches = proxy.count(FetchRequest, other)
            await eventually(lambda: proxy.count(FetchRequest, other) > fetches)
            targets.append(ports[leader])
            await place.produce([1])
            assert await take(consumer, 1) == ["1"]
            assert consumer.assignment()
