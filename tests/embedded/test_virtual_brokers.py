"""Several brokers in one virtual loop: their addresses, which clock is in the clients' modules, and other loops."""

from __future__ import annotations

import asyncio
import time

import aiokafka.client
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from aiogroup._runtime.loop import clock
from aiogroup.embedded import Broker, BrokerRefusal, VirtualLoop, VirtualTimeError, run_virtual, virtual_time


def clocks():
    """The clocks that are in the clients' modules: the real one, or a virtual loop's."""
    return aiokafka.client.time, clock.time


def in_a_loop(program):
    """Run `program` without `run_virtual`, as pytest's plug-ins run a test: only the brokers replace the clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program())


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_brokers_may_end_in_any_order_and_the_clock_is_virtual_until_the_last_one_has(first_to_end):
    async def program():
        brokers = [await Broker(seed=number).__aenter__() for number in (1, 2)]
        during = clocks()
        brokers.pop(first_to_end).close()
        assert time not in clocks()
        began = clocks()[0].monotonic()
        await brokers[0].clock.pass_s(60)
        assert clocks()[0].monotonic() == pytest.approx(began + 60)
        brokers[0].close()
        return during

    real = clocks()
    assert real == (time, time)
    assert time not in in_a_loop(program)
    assert clocks() == real


def test_a_broker_that_outlives_run_virtual_leaves_the_real_clock_to_others():
    kept = []

    async def program():
        kept.append(await Broker(seed=1).__aenter__())

    run_virtual(program())
    assert clocks() == (time, time)
    kept[0].close()
    assert clocks() == (time, time)


def test_a_loop_that_ended_replaces_nothing_of_the_one_that_came_before():
    async def inner():
        return aiokafka.client.time

    async def program():
        with virtual_time(asyncio.get_running_loop()):
            outer = aiokafka.client.time
            assert await asyncio.to_thread(run_virtual, inner()) is not outer
            assert aiokafka.client.time is outer

    in_a_loop(program)
    assert clocks() == (time, time)


def test_no_two_brokers_have_one_address_not_even_one_after_the_other():
    async def program():
        async with Broker(seed=1) as first, Broker(seed=2) as second:
            second.create_topic("of-second")
            addresses = [each.bootstrap_servers for each in (first, second)]
            first.close()
            async with Broker(seed=3) as third:
                third.create_topic("of-third")
                assert third.bootstrap_servers not in addresses
                admin = AIOKafkaAdminClient(bootstrap_servers=third.bootstrap_servers)
                await admin.start()
                assert await admin.list_topics() == ["of-third"]
                await admin.close()
                assert second.count() == 0

    run_virtual(program())


def test_a_port_that_was_asked_for_belongs_to_one_broker_at_a_time():
    async def program():
        async with Broker(port=4_000) as first:
            assert first.bootstrap_servers == "node1.virtual.invalid:4000"
            with pytest.raises(BrokerRefusal, match="port 4000 is another broker's in this loop"):
                await Broker(port=4_000).__aenter__()
        async with Broker(port=4_000) as again:
            assert again.bootstrap_servers == "node1.virtual.invalid:4000"

    run_virtual(program())


async def test_a_loop_in_real_time_is_told_that_the_broker_has_another_one():
    loop = VirtualLoop()
    broker = Broker()
    entering = asyncio.ensure_future(broker.__aenter__(), loop=loop)
    await asyncio.to_thread(loop.run_until_complete, entering)
    try:
        with pytest.raises(VirtualTimeError, match="another event loop runs here, in real time"):
            await broker.clock.pass_s(300)
    finally:
        broker.close()
        loop.close()
