"""The marker `virtual_time` and the fixture `virtual_broker`, with pytest-asyncio."""

from __future__ import annotations

import asyncio
import random
import time
from zlib import crc32

import pytest

from aiogroup import Consumer
from aiogroup.embedded import Broker, VirtualLoop, stable


@pytest.fixture
async def consumer(virtual_broker):
    """An async fixture: it is made in the test's loop, before the test."""
    virtual_broker.create_topic("orders")
    servers = virtual_broker.bootstrap_servers
    async with Consumer("orders", bootstrap_servers=servers, group_id="billing") as made:
        yield made


@pytest.mark.virtual_time
async def test_an_hour_takes_no_time(virtual_broker):
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    begun_s, begun_ms = time.monotonic(), virtual_broker.clock.now_ms
    await virtual_broker.clock.pass_s(3_600)
    assert virtual_broker.clock.now_ms == begun_ms + 3_600_000
    assert time.monotonic() - begun_s < 3_600


@pytest.mark.virtual_time
async def test_async_fixtures_have_the_same_loop(consumer, virtual_broker):
    await virtual_broker.until(stable("billing", members=1))
    await virtual_broker.clock.pass_s(301)
    assert virtual_broker.group("billing").members == (), "nobody has asked for a record for max_poll_interval_ms"


@pytest.mark.virtual_time
async def test_brokers_of_the_tests_own_are_in_virtual_time_too():
    async with Broker(nodes=3) as broker:
        await broker.clock.pass_s(100)


async def test_other_tests_have_a_real_loop():
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)


@pytest.fixture
def loops(monkeypatch):
    """The loops that a test makes; each is closed when the test's other fixtures have ended."""
    made = []
    make = VirtualLoop.__init__

    def init(loop, *arguments):
        made.append(loop)
        make(loop, *arguments)

    monkeypatch.setattr(VirtualLoop, "__init__", init)
    yield made
    assert [loop.is_closed() for loop in made] == [True]


@pytest.mark.virtual_time
def test_a_test_that_is_no_coroutine_leaves_no_loop_open(loops, virtual_broker):
    assert virtual_broker.clock.now_ms
    assert len(loops) == 1


@pytest.mark.virtual_time
async def test_the_test_and_its_broker_have_one_loop(loops, virtual_broker):
    assert loops == [asyncio.get_running_loop()]


@pytest.fixture
def drawn(virtual_broker):
    """A random number that is drawn before the test. For the test itself pytest-randomly sets another seed."""
    return random.random()


@pytest.mark.virtual_time
@pytest.mark.parametrize("n", [1, 2])
async def test_random_numbers_are_seeded_by_the_tests_name(request, drawn, n):
    path, _, name = request.node.location
    assert name.endswith(f"[{n}]")
    assert drawn == random.Random(crc32(f"{path}::{name}#0".encode())).random()
