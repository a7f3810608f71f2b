"""A leader that answers no question about offsets holds up its own partitions, and no others."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, HealthStatus, TopicPartition
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


def after_a_while(consumer):
    health = consumer.health()
    return health.status, health.is_wholly_degraded, health.why


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_health_tells_what_is_not_read_though_other_leaders_answer(api):
    async def script(broker):
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **SETTINGS)
        consumer.assign(TPS)
        with broker.hold(api, node_id=1):
            async with consumer:
                await read(consumer, SOUND)
                await asyncio.sleep(20)
                assert consumer.health().status is HealthStatus.READY
                await asyncio.sleep(20)
                status, is_wholly, why = after_a_while(consumer)
                assert (status, is_wholly) == (HealthStatus.DEGRADED, False)
                assert (
                    "position is not known of t-0" if api == "ListOffsets" else "answered for 30000 ms of t-0"
                ) in why
                assert "t-1" not in why
                assert "t-2" not in why

    plays(script)


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_health_tells_what_a_leader_refuses(api):
    async def script(broker):
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **SETTINGS)
        consumer.assign(TPS)
        with broker.error(api, "KAFKA_STORAGE_ERROR", topic="t", partition=0, times=None):
            async with consumer:
                await asyncio.sleep(20)
                assert consumer.health().status is HealthStatus.READY
                await asyncio.sleep(20)
                status, is_wholly, why = after_a_while(consumer)
                assert (status, is_wholly) == (HealthStatus.DEGRADED, False)
                assert "KAFKA_STORAGE_ERROR" in why
                assert "t-0" in why
                assert "t-1" not in why

    plays(script)


def test_health_tells_what_an_open_transaction_holds_back():
    """It waits for the committed offset, and asks no broker for records."""

    async def script(broker):
        with broker.error("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", topic="t", partition=0, times=None):
            async with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g", **SETTINGS) as consumer:
                await asyncio.sleep(40)
                assert "an open transaction holds back the committed offset" in consumer.health().why
            assert not broker.count("Fetch")

    plays(script)


def test_a_topic_that_does_not_exist_makes_no_broker_unreachable():
    async def script(broker):
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **SETTINGS)
        consumer.assign([TopicPartition("no", 0)])
        async with consumer:
            await asyncio.sleep(60)
            assert after_a_while(consumer) == (HealthStatus.DEGRADED, True, "nothing to read; no broker knows no")

    plays(script)


@pytest.mark.parametrize("reset", ["earliest", "none"])
@pytest.mark.parametrize("group_id", [None, "g"])
@pytest.mark.parametrize("turns", range(6))
def test_a_seek_while_a_look_up_begins_stands(turns, group_id, reset):
    """Another task seeks, in whatever turn of the loop."""

    async def script(broker):
        settings = {**SETTINGS, "auto_offset_reset": reset, "group_id": group_id}
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)
        consumer.assign([SOUND])
        async with consumer:
            consumer.seek(SOUND, 3)
            assert (await read(consumer, SOUND)).offset == 3
            consumer.assign([SOUND, OTHER])
            for _ in range(turns):
                await asyncio.sleep(0)
            consumer.seek(OTHER, 7)
            assert (await read(consumer, OTHER)).offset == 7

    plays(script)


@pytest.mark.parametrize("code", ["KAFKA_STORAGE_ERROR", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_partition_that_its_leader_refuses_keeps_no_other_one_from_its_second_question(code):
    """By time, and as no record is as new, by the end."""

    async def script(broker):
        broker.create_topic("refused", partitions=2)  # one at each node
        settings = {**SETTINGS, "auto_offset_reset": "by_duration:PT1S"}
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)
        consumer.assign([SOUND, TopicPartition("refused", 0), TopicPartition("refused", 1)])
        await asyncio.sleep(SOON_S)  # all records are older
        with broker.error("ListOffsets", code, topic="refused", times=None):
            async with consumer:
                async with asyncio.timeout(SOON_S):
                    assert await consumer.position(SOUND) == 10

    plays(script)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_metadata_that_are_asked_for_meanwhile_do_not_cut_off_a_slow_look_up(group_id):
    """A topic that does not exist is looked for each second, at nodes of which one takes long over ListOffsets."""

    async def script(broker):
        settings = {**SETTINGS, "request_timeout_ms": 30_000, "group_id": group_id}
        topics = [] if group_id is None else ["t", "missing"]
        consumer = Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, **settings)
        if group_id is None:
            consumer.assign([*TPS, TopicPartition("missing", 0)])
        broker.delay("ListOffsets", ms=8_000, node_id=1)
        async with consumer:
            async with asyncio.timeout(8 + SOON_S):
                assert (await consumer.getone(SILENT)).offset == 0

    plays(script)
