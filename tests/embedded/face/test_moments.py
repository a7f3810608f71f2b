"""`broker.when(moment, act)`: acts at critical moments of a group, in a thread, a loop and virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from aiogroup import Consumer
from aiogroup.embedded import Broker, BrokerRefusal, run_virtual, stable


def consumer_of(broker, **settings):
    chosen = {"group_id": "billing", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, **settings}
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, **chosen)


@pytest.fixture
def broker():
    with Broker(nodes=3, seed=1) as broker:
        broker.create_topic("orders", partitions=2, replication_factor=3)
        broker.produce_many("orders", [b"%d" % number for number in range(10)])
        yield broker


async def read(consumer, count):
    return {(record.partition, record.offset) for record in [await anext(consumer) for _ in range(count)]}


async def test_the_answers_of_a_generation_are_lost(broker):
    with broker.when("generation", broker.disconnect) as cut:
        async with consumer_of(broker) as consumer:
            assert len(await read(consumer, 10)) == 10
            joins = [each.answer.error_code for each in broker.requests("JoinGroup")]
    assert cut.used_count == 1
    assert joins[:2] == [79, 0]  # MEMBER_ID_REQUIRED; then the generation whose answers were lost
    assert len(joins) > 2
    assert broker.troubles == []


@pytest.mark.parametrize("way", ["kill", "stop"])
async def test_the_coordinator_ends_when_it_has_taken_the_assignment(broker, way):
    place = broker.nodes[broker.group("billing").coordinator - 1]
    threads = []

    def act():
        threads.append(threading.current_thread())
        getattr(place, way)()

    ended = broker.when("assignment", act, group="billing")
    async with consumer_of(broker) as consumer:
        assert len(await read(consumer, 10)) == 10
        await broker.until(stable("billing", members=1))
    assert ended.used_count == 1
    assert not place.is_running
    assert threads[0].name == "aiogroup embedded broker"


async def test_a_coordinator_moves_each_time_in_the_running_loop():
    async with Broker(nodes=2, seed=1) as broker:
        broker.create_topic("orders")

        places = [broker.group("billing").coordinator]

        def move():
            places.append(3 - places[-1])
            broker.move_coordinator("billing", places[-1])

        broker.produce("orders", b"1")
        moved = broker.when("assignment", move, times=None)
        async with consumer_of(broker) as consumer:
            reading = asyncio.create_task(read(consumer, 2))
            await broker.until(stable("billing", members=1))
            broker.rebalance("billing")
            await broker.until(lambda: len(places) > 2)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        moved.remove()
        assert moved.used_count == len(places) - 1
        assert broker.group("billing").coordinator == places[-1]
        assert broker.troubles == []


def test_a_session_that_expires_in_virtual_time():
    async def work():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            seen = []
            broker.when("expired", lambda: seen.append(broker.clock.now_ms))
            async with consumer_of(broker, session_timeout_ms=6_000):
                await broker.until(stable("billing", members=1))
                began_ms = broker.clock.now_ms
                broker.pause()
                await broker.clock.pass_s(2)
                assert seen == []
                await broker.clock.pass_s(5)
                assert began_ms + 2_000 < seen[0] <= began_ms + 6_050

    run_virtual(work())


async def test_other_groups_and_removed_functions_are_not_called(broker):
    others = broker.when("generation", broker.disconnect, group="shipping")
    removed, cleared = broker.when("generation", broker.disconnect), broker.when("generation", broker.disconnect)
    removed.remove()
    broker.clear()
    others = broker.when("generation", broker.disconnect, group="shipping")
    async with consumer_of(broker):
        await broker.until(stable("billing", members=1))
    assert [each.used_count for each in (others, removed, cleared)] == [0, 0, 0]


async def test_a_function_that_raises_is_a_trouble(broker):
    broker.when("generation", lambda: broker.wait(stable("billing")))
    async with consumer_of(broker):
        await broker.until(stable("billing", members=1))
    (trouble,) = broker.troubles
    assert trouble.refusal.name == "rule"
    assert "when('generation')" in str(trouble)
    assert "BrokerRefusal" in str(trouble)


async def test_a_broker_in_a_thread_is_not_closed_in_that_thread(broker):
    broker.when("generation", broker.close)
    async with consumer_of(broker):
        await broker.until(stable("billing", members=1))
    (trouble,) = broker.troubles
    assert "close the broker in the test" in str(trouble)
    broker.close()
    with pytest.raises(BrokerRefusal, match="closed"):
        broker.disconnect()


@pytest.mark.parametrize(
    ("moment", "act", "settings", "told"),
    [
        ("assigned", print, {}, "generation, assignment, expired"),
        ("generation", "disconnect", {}, "a function without arguments"),
        ("generation", read, {}, "cannot be a coroutine function"),
        ("generation", print, {"times": 0}, "at least once"),
    ],
)
def test_impossible_moments_are_refused(broker, moment, act, settings, told):
    with pytest.raises(BrokerRefusal, match=told):
        broker.when(moment, act, **settings)
