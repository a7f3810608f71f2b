"""The broker's views of its groups, and the conditions that a test can wait for."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer

from aiogroup import Consumer
from aiogroup.embedded import Broker, BrokerRefusal, asked, caught_up, committed, reading, stable
from aiogroup.structs import TopicPartition


@pytest.fixture
def broker():
    with Broker(seed=1) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def consumer_of(broker, **settings):
    chosen = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
        **settings,
    }
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, **chosen)


async def take(consumer, count):
    return [await anext(consumer) for _ in range(count)]


def test_a_group_that_nobody_knows(broker):
    group = broker.group("billing")
    assert (group.state, group.members, group.generation) == ("Dead", (), 0)
    assert broker.committed("billing") == {}
    assert broker.lag("billing") == {}
    assert broker.groups() == ()


async def test_a_group_and_its_members(broker):
    broker.produce_many("orders", [b"1", b"2", b"3"])
    async with consumer_of(broker, client_id="one", group_instance_id="first") as consumer:
        await broker.until(stable("billing", members=1))
        group = broker.group("billing")
        (member,) = group.members
        assert (group.state, group.generation, group.coordinator, group.is_loading) == ("Stable", 1, 1, False)
        assert (member.name, member.client_id, member.topics, member.is_leader) == ("first", "one", ("orders",), True)
        assert member.partitions == (TopicPartition("orders", 0), TopicPartition("orders", 1))
        assert 0 <= member.silent_ms < member.session_timeout_ms
        assert broker.lag("billing") == {("orders", 0): 2, ("orders", 1): 1}
        await take(consumer, 3)
        await consumer.commit({TopicPartition("orders", 0): (2, "by hand")})
        assert broker.lag("billing") == {("orders", 0): 0, ("orders", 1): 1}
        (offset,) = broker.committed("billing").values()
        assert (offset, offset.metadata, offset.leader_epoch) == (2, "by hand", 0)
        assert broker.committed("billing")["orders", 0] == 2
        with pytest.raises(TypeError):
            broker.committed("billing")["orders", 0] = 3
        assert broker.groups() == ("billing",)
        assert "first" in str(group)
        assert "orders-0" in str(group)


async def test_conditions_come_true(broker):
    broker.produce_many("orders", [b"1", b"2", b"3"])
    async with AsyncExitStack() as members:
        one = await members.enter_async_context(consumer_of(broker))
        await broker.until(stable("billing", members=1))
        await broker.until(reading("orders"))
        await broker.until(asked("Fetch"))
        await take(one, 3)
        assert not caught_up("billing").holds(broker)
        await one.commit()
        await broker.until(caught_up("billing"))
        await broker.until(committed("billing", "orders", 0, offset=2))
        await members.enter_async_context(consumer_of(broker))
        await broker.until(stable("billing", members=2))
        assert {len(each.partitions) for each in broker.group("billing").members} == {1}


async def test_a_reader_from_the_end_misses_nothing_after_the_reading_condition(broker):
    for _ in range(5):
        async with consumer_of(broker, group_id=None, auto_offset_reset="latest", client_id="tail") as consumer:
            await broker.until(reading("orders", client_id="tail"))
            broker.produce("orders", b"new", partition=1)
            assert bytes((await anext(consumer)).value) == b"new"
        await broker.until(lambda: broker.unread("orders", client_id="tail") == (0, 1))  # its connections are closed


async def test_reading_with_another_client(broker):
    consumer = AIOKafkaConsumer(
        "orders", group_id="theirs", client_id="tail", bootstrap_servers=broker.bootstrap_servers
    )
    await consumer.start()
    try:
        await broker.until(reading("orders", client_id="tail"))
        assert {each.topic for each in broker.group("theirs").members[0].partitions} == {"orders"}
        broker.produce("orders", b"new", partition=1)
        assert (await consumer.getone()).value == b"new"
        await consumer.commit({TopicPartition("orders", 1): (1, "theirs")})
        assert broker.committed("theirs")["orders", 1].metadata == "theirs"
        assert caught_up("theirs").holds(broker)
    finally:
        await consumer.stop()


async def test_reading_is_about_one_client(broker):
    async with consumer_of(broker, client_id="one"):
        await broker.until(reading("orders", client_id="one"))
        assert broker.unread("orders") == ()
        assert broker.unread("orders", client_id="other") == (0, 1)


def test_wait_in_a_thread_while_clients_live_elsewhere(broker):
    def work():
        async def run():
            async with consumer_of(broker) as consumer:
                await take(consumer, 1)
                await consumer.commit()

        asyncio.run(run())

    thread = threading.Thread(target=work)
    thread.start()
    broker.wait(reading("orders"))
    broker.produce("orders", b"1")
    broker.wait(committed("billing", "orders", 0, offset=1))
    broker.wait(lambda: not thread.is_alive())
    assert broker.group("billing").members == ()
    thread.join()


async def test_a_timeout_shows_the_state_of_the_group(broker):
    async with consumer_of(broker, client_id="one"):
        await broker.until(reading("orders"))
        with pytest.raises(TimeoutError) as told:
            await broker.until(stable("billing", members=2), timeout_s=0.05)
    text = str(told.value)
    assert "after 0.05 s still not stable('billing', members=2)" in text
    assert "group billing: Stable, generation 1, 1 members, coordinated by node 1" in text
    assert "orders-0, orders-1; last heard of" in text
    assert "lag: orders-0 0, orders-1 0" in text
    assert "the last 10 exchanges:" in text
    assert "one to node 1: FetchRequest" in text


def test_a_timeout_of_a_function_names_it(broker):
    with pytest.raises(
        TimeoutError, match=r"still not .*<lambda> \(.*test_views.py:\d+\)\n  nobody has asked anything"
    ):
        broker.wait(lambda: False, timeout_s=0.01)
    with pytest.raises(TimeoutError, match="nobody fetches the partitions 0, 1"):
        broker.wait(reading("orders"), timeout_s=0.01)
    with pytest.raises(TimeoutError, match="it was asked 0 times"):
        broker.wait(asked("Fetch"), timeout_s=0.01)
    with pytest.raises(TimeoutError, match="committed: nothing"):
        broker.wait(committed("billing", "orders", 0, offset=1), timeout_s=0.01)


async def test_a_wait_that_blocks_a_loop_says_so(broker):
    with pytest.raises(TimeoutError, match="blocked a running event loop"):
        broker.wait(stable("billing"), timeout_s=0.01)


async def test_what_cannot_be_waited_for_is_refused(broker):
    async def never():
        return True

    with pytest.raises(BrokerRefusal, match="until"):
        broker.wait(never)
    await broker.until(never)
    with pytest.raises(BrokerRefusal, match="did you mean 'Fetch'"):
        broker.wait(asked("Fetsch"))
    with pytest.raises(BrokerRefusal, match="no topic bills"):
        broker.wait(reading("bills"))
    async with Broker() as here:
        with pytest.raises(BrokerRefusal, match="stop the loop"):
            here.wait(lambda: True)
        await here.until(lambda: True)


async def test_a_function_is_checked_without_any_exchange(broker):
    looks = []
    await broker.until(lambda: looks.append(1) or len(looks) == 3, timeout_s=2)
    assert len(looks) == 3
    await asyncio.to_thread(broker.wait, lambda: looks.append(1) or len(looks) == 6, 2)
