"""What the README says of other clients and only a broker can tell."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer

from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup.testing import Proxy
from tests.support.kafka import eventually


async def with_aiogroup(place, servers, read):
    async with place.consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"0"
        await read()


async def with_aiokafka(place, servers, read):
    settings = {"group_id": place.group, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(place.topic, bootstrap_servers=servers, **settings) as consumer:
        assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]
        asking = asyncio.create_task(consumer.getone())  # it fetches when it has none, and somebody asks
        await read()
        asking.cancel()


async def with_confluent(place, servers, read):
    settings = {"bootstrap.servers": servers, "group.id": place.group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([place.topic])
        assert (await asyncio.to_thread(consumer.poll, 30)).value() == b"0"
        await read()
    finally:
        await asyncio.to_thread(consumer.close)


@pytest.mark.parametrize(
    ("client", "uses_sessions"), [(with_aiogroup, True), (with_aiokafka, False), (with_confluent, False)]
)
async def test_who_uses_fetch_sessions(make_place, client, uses_sessions):
    """A session has a number, which the broker gives; 0 asks for none, or for a new one."""
    place, sessions = make_place(), []
    await place.produce(range(3))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, lambda exchange: sessions.append(exchange.request.session_id))
        await client(place, proxy.bootstrap_servers, lambda: eventually(lambda: len(sessions) >= 5))
    assert (set(sessions) != {0}) == uses_sessions
