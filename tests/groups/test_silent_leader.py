"""A leader that answers no question about offsets holds up its own partitions, and no others."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup.embedded import Broker, run_virtual

SILENT, SOUND, OTHER = (TopicPartition("t", number) for number in range(3))
TPS = [SILENT, SOUND, OTHER]
SOON_S = 2
REQUEST_MS = 10_000
SETTINGS = {"auto_offset_reset": "earliest", "request_timeout_ms": REQUEST_MS}


def plays(script):
    """With a topic whose first partition is led by node 1 and the others by node 2; each has ten records."""

    async def play():
        async with Broker(nodes=2) as broker:
            broker.create_topic("t", partitions=3, replication_factor=2)
            broker.move_leader("t", OTHER.partition, 2)
            for tp in TPS:
                broker.produce_many("t", [b"x"] * 10, partition=tp.partition)
            await script(broker)

    run_virtual(play())


def silenced(broker):
    return broker.hold("ListOffsets", node_id=1)


async def read(consumer, tp):
    async with asyncio.timeout(SOON_S):
        return await consumer.getone(tp)


async def until_asked(broker, count):
    """A look-up waits for the silent leader."""
    await broker.until(lambda: broker.count("ListOffsets", 1) >= count, SOON_S)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_position_that_is_wanted_meanwhile(group_id):
    """With a group it is also committed before its first record."""

    async def script(broker):
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **SETTINGS)
        consumer.assign([SILENT])
        with silenced(broker):
            async with consumer:
                await until_asked(broker, 1)
                for tp in (SOUND, OTHER):
                    consumer.assign([SILENT, tp])
                    assert (await read(consumer, tp)).offset == 0

    plays(script)


def test_it_is_asked_again_when_its_time_is_over():
    async def script(broker):
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **SETTINGS)
        consumer.assign(TPS)
        async with consumer:
            with silenced(broker):
                await until_asked(broker, 1)
            async with asyncio.timeout(REQUEST_MS / 1_000 + SOON_S):
                assert (await consumer.getone(SILENT)).offset == 0

    plays(script)


def test_the_second_question_about_a_position_behind_the_end():
    """The beginning is asked for first, and as that is not next to the position, the end."""

    async def script(broker):
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", **SETTINGS}
        consumer = Consumer(**settings)
        consumer.assign(TPS)
        async with consumer:
            await consumer.commit(dict.fromkeys(TPS, 100))
        consumer = Consumer(**settings)
        consumer.assign(TPS)
        with silenced(broker):
            async with consumer:
                await until_asked(broker, 1)
                read_on = asyncio.create_task(read(consumer, SOUND))
                await asyncio.sleep(SOON_S / 2)
                broker.produce("t", b"new", partition=SOUND.partition)
                assert (await read_on).offset == 10

    plays(script)


def test_what_a_member_is_given():
    async def script(broker):
        with silenced(broker):
            async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g", **SETTINGS) as consumer:
                async with asyncio.timeout(SOON_S + REQUEST_MS / 3_000):
                    assert (await consumer.getone(SOUND)).offset == 0

    plays(script)


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_two_lanes_read(is_committed):
    async def script(broker):
        settings = {**SETTINGS, "group_id": "g", "enable_parallel_rebalance": True, "parallel_min_backlog": 1}
        if is_committed:
            consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", **SETTINGS)
            consumer.assign(TPS)
            async with consumer:
                await consumer.commit(dict.fromkeys(TPS, 3))
        with silenced(broker):
            async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
                given = set()
                async with asyncio.timeout(SOON_S + REQUEST_MS / 3_000):
                    while given != {SOUND, OTHER}:
                        given.add((await consumer.getone()).tp)

    plays(script)
