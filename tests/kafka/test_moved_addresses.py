"""A node gets another address, and what stands at the former one still answers: it is not asked any more."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiogroup.cluster import Broker
from aiogroup.config import ConsumerConfig
from aiogroup.protocol.messages.fetch import FetchRequest
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup.protocol.messages.join_group import JoinGroupRequest
from aiogroup.protocol.messages.metadata import MetadataRequest
from aiogroup.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup.runtime.net.link import FETCH, Link
from aiogroup.testing import Proxy
from aiogroup.testing.addresses import teller_of
from tests.support.kafka import eventually, take

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
