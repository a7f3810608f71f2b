"""Five services of one group are restarted in turns, while 100 requests a second go to those that are ready."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual, stable
from tests.support.asgi import get

PODS_COUNT, PER_SECOND = 5, 100
EAGER = ("range",)


class Pod:
    """One process's worth: its service, which can be ended and begun again."""

    def __init__(self, broker, **arguments):
        def make():
            servers = broker.bootstrap_servers
            settings = {"group_id": "billing", "heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"}
            return Consumer("orders", bootstrap_servers=servers, partition_assignment_strategy=EAGER, **settings)

        async def body(consumer):
            async for _ in consumer:
                await broker.clock.pass_s(0.05)

        self.service = Service(loop=Loop(make, body), **arguments)
        self._life = AsyncExitStack()

    async def begin(self):
        await self._life.enter_async_context(self.service.running())

    async def end(self):
        await self._life.aclose()

    async def is_ready(self):
        return (await get(self.service, "/readyz")).status == 200


async def rolled(broker, pods):
    """Restart all, as a platform does it: the next one when the last one is ready. How many requests found no pod that
    was ready, of how many.
    """
    none_count, requests_count, is_over = 0, 0, False

    async def balance():
        nonlocal none_count, requests_count
        while not is_over:
            ready = [each for each in pods if await each.is_ready()]
            requests_count += 1
            none_count += not ready
            await broker.clock.pass_s(1 / PER_SECOND)

    async def produce():
        number = 0
        while not is_over:
            broker.produce("orders", b"", partition=(number := number + 1) % 10)
            await broker.clock.pass_s(0.02)

    balancing, producing = asyncio.create_task(balance()), asyncio.create_task(produce())
    for each in pods:
        await each.end()
        await each.begin()
        while not await each.is_ready():
            await broker.clock.pass_s(0.1)
    await broker.until(stable("billing", members=PODS_COUNT))
    is_over = True
    await asyncio.gather(balancing, producing)
    return none_count, requests_count


@pytest.mark.parametrize(
    ("arguments", "is_always_one_ready"),
    [({"ready": "assigned"}, True), ({"ready": "flowing", "unready_after_ms": 0}, False)],
    ids=["assigned", "flowing"],
)
def test_one_is_always_ready_unless_it_is_taken_for_flowing(arguments, is_always_one_ready):
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", 10)
            pods = [Pod(broker, **arguments) for _ in range(PODS_COUNT)]
            for each in pods:
                await each.begin()
            await broker.until(stable("billing", members=PODS_COUNT))
            while not all([await each.is_ready() for each in pods]):
                await broker.clock.pass_s(0.1)
            none_count, requests_count = await rolled(broker, pods)
            for each in pods:
                await each.end()
            assert broker.group("billing").members == ()
            assert requests_count > 100
            assert (none_count == 0) == is_always_one_ready, f"{none_count} of {requests_count} found none"

    run_virtual(play())
