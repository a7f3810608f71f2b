"""Transactional producers and readers as applications have them, at the embedded broker over TCP."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import TopicPartition as TheirPartition

from aiogroup import Consumer, TopicPartition
from aiogroup.embedded import Broker
from tests.support.reading import alone, producing, read

TP = TopicPartition("out", 0)


@pytest.fixture
def broker():
    with Broker(seed=1) as broker:
        broker.create_topic("in", partitions=2)
        broker.create_topic("out", partitions=2)
        yield broker
        assert not broker.troubles


async def theirs(servers, count, level="read_committed"):
    """The first `count` values that aiokafka's consumer reads."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=level, auto_offset_reset="earliest")
    consumer.assign([TheirPartition("out", 0)])
    async with asyncio.timeout(10), consumer:
        return [bytes((await consumer.getone()).value) for _ in range(count)]


async def ours(servers, count, level="read_committed"):
    consumer = alone(servers, isolation_level=level)
    consumer.assign([TP])
    async with consumer:
        return [bytes(record.value) for record in await read(consumer, count)]


async def test_aiokafka_commits_and_aborts(broker):
    servers = broker.bootstrap_servers
    async with producing(servers, transactional_id="x") as producer:
        for number in range(6):
            await producer.begin_transaction()
            for part in range(2):
                await producer.send("out", b"%d.%d" % (number, part), partition=0)
            await producer.send_offsets_to_transaction({TheirPartition("in", 0): number + 1}, "g")
            await (producer.commit_transaction() if number % 3 else producer.abort_transaction())
            assert broker.committed("g").get(("in", 0), 0) == (0, 2, 3, 3, 5, 6)[number]
    wanted = [b"%d.%d" % (number, part) for number in (1, 2, 4, 5) for part in range(2)]
    assert await theirs(servers, 8) == await ours(servers, 8) == wanted
    everything = [b"%d.%d" % (number, part) for number in range(6) for part in range(2)]
    assert await theirs(servers, 12, "read_uncommitted") == await ours(servers, 12, "read_uncommitted") == everything


async def test_aiokafka_is_fenced(broker):
    servers = broker.bootstrap_servers
    async with producing(servers, transactional_id="x") as old:
        await old.begin_transaction()
        await old.send_and_wait("out", b"old", partition=0)
        async with producing(servers, transactional_id="x") as new:
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
            await new.begin_transaction()
            await new.send_and_wait("out", b"new", partition=0)
            await new.commit_transaction()
    assert await ours(servers, 1) == [b"new"]


async def test_aiokafka_hears_that_its_transaction_is_out_of_time(broker):
    servers = broker.bootstrap_servers
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x", transaction_timeout_ms=100)
    await producer.start()
    try:
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"old", partition=0)
        await broker.until(lambda: [each.is_control for each in broker.records("out", 0)] == [False, True])
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
    finally:
        await producer.stop()
    async with producing(servers, transactional_id="x") as again:
        await again.begin_transaction()
        await again.send_and_wait("out", b"new", partition=0)
        await again.commit_transaction()
    assert await theirs(servers, 1) == [b"new"]


async def test_a_group_reads_processes_and_writes_exactly_once(broker):
    """aiogroup reads, aiokafka's producer writes and commits; every third transaction is aborted and done again."""
    broker.produce_many("in", [b"%d" % number for number in range(60)])
    servers, attempts = broker.bootstrap_servers, 0
    consumer = Consumer(
        "in", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed",
    )  # fmt: skip
    async with consumer, producing(servers, transactional_id="x") as producer:
        while sum(broker.committed("g").values()) < 60:
            batches = await consumer.getmany(timeout_ms=200, max_records=7)
            if not batches:
                continue
            attempts += 1
            await producer.begin_transaction()
            for record in batches.all():
                await producer.send("out", record.value, partition=0)
            offsets = {
                TheirPartition(tp.topic, tp.partition): records[-1].offset + 1 for tp, records in batches.items()
            }
            await producer.send_offsets_to_transaction(offsets, "g")
            if attempts % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
                for tp, records in batches.items():
                    consumer.seek(tp, records[0].offset)
    assert sorted(map(int, await theirs(servers, 60))) == list(range(60))


def confluent_producer(broker, transactional_id, **settings):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(10)
    return producer


def confluent_read(broker, count):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("out", 0)])
    values, is_at_end = [], False
    while len(values) < count or not is_at_end:
        message = consumer.poll(10)
        assert message is not None, values
        if message.error() is None:
            values.append(message.value())
        else:
            assert message.error().name() == "_PARTITION_EOF"
            is_at_end = True
    consumer.close()
    return values


def test_confluents_producer_commits_aborts_and_is_fenced(broker):
    producer = confluent_producer(broker, "x")
    group = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    metadata = group.consumer_group_metadata()
    for number in range(4):
        producer.begin_transaction()
        producer.produce("out", b"%d" % number, partition=0)
        offsets = [confluent_kafka.TopicPartition("in", 1, number + 1)]
        producer.send_offsets_to_transaction(offsets, metadata, 10)
        if number % 2:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    assert broker.committed("g") == {TopicPartition("in", 1): 3}
    assert confluent_read(broker, 2) == [b"0", b"2"]
    producer.begin_transaction()
    producer.produce("out", b"old", partition=0)
    producer.flush(10)
    other = confluent_producer(broker, "x")
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(10)
    assert raised.value.args[0].name() == "_FENCED"
    other.begin_transaction()
    other.produce("out", b"new", partition=0)
    other.commit_transaction(10)
    assert confluent_read(broker, 3) == [b"0", b"2", b"new"]
    group.close()
