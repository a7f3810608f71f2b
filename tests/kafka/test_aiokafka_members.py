"""aiokafka's consumer and ours in one group: what a rolling move from it needs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import chain

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.support.group_members import Member, produce, running, until

PARTITIONS_COUNT = 4
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("moved")
    await asyncio.to_thread(kafka_cluster.create_topic, name, PARTITIONS_COUNT)
    return name


class Theirs:
    def __init__(self, consumer):
        self.consumer = consumer
        self.records = []

    @property
    def partitions(self):
        return sorted(tp.partition for tp in self.consumer.assignment())

    def seen(self):
        return {(record.partition, record.offset) for record in self.records}

    async def read(self):
        async for record in self.consumer:
            self.records.append(record)


@asynccontextmanager
async def theirs(cluster, group, topic, assignor):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        rebalance_timeout_ms=10_000,
        retry_backoff_ms=50,
        partition_assignment_strategy=(ASSIGNORS[assignor],),
    )
    await consumer.start()
    member = Theirs(consumer)
    reading = asyncio.get_running_loop().create_task(member.read())
    try:
        yield member
    finally:
        await consumer.stop()
        reading.cancel()
        await asyncio.wait({reading})


async def shared_with(them, ours):
    def shared():
        held = [them.partitions, ours.partitions]
        return all(held) and sorted(chain(*held)) == list(range(PARTITIONS_COUNT)) and ours.is_ready

    await until(shared, 20, lambda: f"{them.partitions} {ours.partitions}\n{ours.tail()}")


async def all_read(cluster, topic, them, ours):
    sent = await produce(cluster, topic, PARTITIONS_COUNT, 40)
    await until(lambda: them.seen() | ours.seen() >= sent, 20, ours.tail)
    assert them.seen() & sent
    assert ours.seen() & sent
    assert not them.seen() & ours.seen() & sent


@pytest.mark.parametrize("as_class", [False, True], ids=["by-name", "aiokafkas-class"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
async def test_aiokafka_leads(kafka_cluster, topic, group, assignor, as_class):
    strategy = (ASSIGNORS[assignor] if as_class else assignor,)
    ours = Member(kafka_cluster, group, topic, partition_assignment_strategy=strategy)
    async with theirs(kafka_cluster, group, topic, assignor) as them:
        await until(lambda: len(them.partitions) == PARTITIONS_COUNT)
        async with running(ours):
            await shared_with(them, ours)
            assert not ours.is_leader
            await all_read(kafka_cluster, topic, them, ours)
        await until(lambda: len(them.partitions) == PARTITIONS_COUNT)  # ours left
        before = ours.seen()
        sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 4)
        await until(lambda: them.seen() >= sent)
        assert not them.seen() & before  # ours had committed


@pytest.mark.parametrize("as_class", [False, True], ids=["by-name", "aiokafkas-class"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
async def test_we_lead_aiokafka(kafka_cluster, topic, group, assignor, as_class):
    strategy = (ASSIGNORS[assignor] if as_class else assignor,)
    ours = Member(kafka_cluster, group, topic, partition_assignment_strategy=strategy)
    async with running(ours):
        async with theirs(kafka_cluster, group, topic, assignor) as them:
            await shared_with(them, ours)
            assert ours.is_leader
            await all_read(kafka_cluster, topic, them, ours)
            before = them.seen()
        await until(lambda: len(ours.partitions) == PARTITIONS_COUNT and ours.is_ready, what=ours.tail)
        sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 4)
        await until(lambda: ours.seen() >= sent, what=ours.tail)
        assert not ours.seen() & before  # aiokafka had committed
