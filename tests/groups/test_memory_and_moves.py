"""Memory that is given back is used again at once, and what was buffered before a seek can be acknowledged after it."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiogroup import Consumer, TopicPartition
from aiogroup._core.delivery.queue import Supply
from aiogroup.embedded import Broker
from aiogroup.errors import RecordDeserializationError

TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)
MIB = 1 << 20


def consumer_of(broker, **settings):
    servers = broker.bootstrap_servers
    return Consumer(TOPIC, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **settings)


@pytest.mark.parametrize(
    ("record_bytes", "bound_bytes", "count"),
    [(5 * MIB, 8 * MIB, 4), (4_096, MIB, 1_000)],
    ids=["a record is more than half of the bound", "a slice is all that fits"],
)
@pytest.mark.parametrize("by", ["getone", "async for", "async for, slowly"])
@pytest.mark.virtual_time
async def test_no_record_waits_for_memory_that_is_free(virtual_broker, record_bytes, bound_bytes, count, by):
    """The fetcher looked while the last slice was still counted; once it was handed out, nobody told the fetcher."""
    virtual_broker.create_topic(TOPIC, config={"max.message.bytes": f"{2 * record_bytes + MIB}"})
    for _ in range(count):
        virtual_broker.produce(TOPIC, bytes(record_bytes))
    loop = asyncio.get_running_loop()
    async with consumer_of(virtual_broker, max_buffered_bytes=bound_bytes) as consumer:
        began_at = loop.time()
        if by == "getone":
            for _ in range(count):
                await consumer.getone()
        else:
            seen_count = 0
            async for _ in consumer:
                seen_count += 1
                if seen_count == count:
                    break
                if by == "async for, slowly":
                    await asyncio.sleep(0.001)
        assert loop.time() - began_at < 10


@pytest.mark.virtual_time
async def test_fetchers_are_woken_for_a_fetched_piece_and_not_for_each_slice(virtual_broker, monkeypatch):
    """While enough of every partition is buffered. A piece has two dozen batches, and a slice is one of them."""
    looks = []

    def look(supply, take_freed=Supply.take_freed):
        looks.append(take_freed(supply))
        return looks[-1]

    monkeypatch.setattr(Supply, "take_freed", look)
    virtual_broker.create_topic(TOPIC)
    for _ in range(500):
        virtual_broker.produce_many(TOPIC, [bytes(1_000)] * 10)
    async with consumer_of(virtual_broker, max_partition_fetch_bytes=MIB // 4) as consumer:
        count = 0
        while count < 5_000:
            count += sum(map(len, (await consumer.getmany(timeout_ms=1_000, max_records=10)).values()))
            await asyncio.sleep(0.001)  # slower than the fetcher, which waits most of the time
    assert len(looks) >= 450, "one for each slice"
    assert sum(looks) <= 2 * 500 // 24, "those of pieces, for which it waited"


@pytest.mark.virtual_time
async def test_records_after_a_seek_within_the_buffer_can_be_acknowledged(virtual_broker):
    virtual_broker.create_topic(TOPIC)
    virtual_broker.produce_many(TOPIC, [b"%d" % number for number in range(100)])
    async with consumer_of(virtual_broker, auto_ack=False, enable_auto_commit=False) as consumer:
        early = (await consumer.getmany(timeout_ms=1_000, max_records=5))[TP]
        consumer.seek(TP, 50)
        late = (await consumer.getmany(timeout_ms=1_000, max_records=5))[TP]
        assert [record.offset for record in late] == [50, 51, 52, 53, 54]
        for record in (late[1], early[0], *late):
            record.ack()
        await consumer.commit()
        assert await consumer.committed(TP) == 55
        assert not (await consumer.stop()).in_hand


@pytest.mark.virtual_time
async def test_paused_partitions_leave_their_memory_to_the_others(virtual_broker):
    """Also what is decoded of them: a worker for each partition takes a record and pauses it meanwhile."""
    partitions = 16
    virtual_broker.create_topic(TOPIC, partitions)
    for number in range(partitions):
        virtual_broker.produce_many(TOPIC, [bytes(80_000)] * 12, partition=number)
    async with consumer_of(virtual_broker, auto_ack=False, max_buffered_bytes=8 * MIB) as consumer:
        paused = []
        while len(paused) < partitions:
            record = await asyncio.wait_for(consumer.getone(), 10)
            consumer.pause(record.tp)
            paused.append(record.tp)
        assert len(set(paused)) == partitions
        consumer.resume(*paused)
        rest_count = 0
        while rest_count < 11 * partitions:
            rest_count += (await consumer.getmany(timeout_ms=10_000)).count


@pytest.mark.parametrize(
    ("record_bytes", "bound_bytes"), [(100_000, 64 * MIB), (1_000, 8 * MIB)], ids=["the buffer is full", "no memory"]
)
@pytest.mark.virtual_time
async def test_what_a_seek_moved_is_read_while_the_head_is_waited_for(virtual_broker, record_bytes, bound_bytes):
    """A request waits at the broker for five seconds, with all memory reserved; those beside it must go on."""
    virtual_broker.create_topic(TOPIC)
    for _ in range(60):
        virtual_broker.produce(TOPIC, bytes(record_bytes))
    loop = asyncio.get_running_loop()
    settings = {"fetch_max_wait_ms": 5_000, "fetch_max_bytes": 8 * MIB, "max_buffered_bytes": bound_bytes}
    async with consumer_of(virtual_broker, **settings) as consumer:
        read_count = 0
        while read_count < 60:
            read_count += (await consumer.getmany(timeout_ms=1_000)).count
        assert not (await consumer.getmany(timeout_ms=5_100)).count  # another request has just begun to wait
        consumer.seek(TP, 0)
        asked_at = loop.time()
        for _ in range(60):
            await consumer.getone()
            assert loop.time() - asked_at < 1
            await asyncio.sleep(0.02)
            asked_at = loop.time()


async def test_what_a_seek_moved_is_not_asked_for_again_and_again_at_the_head():
    """Other brokers wait for the memory that the request at the head has reserved. Each answer wakes them, and with
    them the request beside the session, which had no records.
    """
    async with Broker(nodes=2) as broker:
        broker.create_topic(TOPIC, 2, config={"max.message.bytes": "9000000"})
        for partition in (0, 1, 0, 1):
            broker.produce(TOPIC, bytes(5 * MIB), partition=partition)
        async with consumer_of(broker, max_buffered_bytes=8 * MIB, fetch_max_wait_ms=5_000) as consumer:
            for _ in range(4):
                await asyncio.wait_for(consumer.getone(), 10)
            await consumer.getmany(timeout_ms=5_500)
            for partition in range(2):
                consumer.seek(TopicPartition(TOPIC, partition), 1)
            since = broker.count("Fetch")
            for _ in range(2):
                await asyncio.wait_for(consumer.getone(), 10)
            await consumer.getmany(timeout_ms=6_000)
            assert broker.count("Fetch") - since < 100


@pytest.mark.parametrize("record_bytes", [50_000, 900_000])
@pytest.mark.parametrize("bound_bytes", [MIB, 2 * MIB])
@pytest.mark.parametrize("fails", ["in its handler", "in its deserializer"])
@pytest.mark.virtual_time
async def test_a_partition_that_fails_leaves_memory_to_the_others(virtual_broker, bound_bytes, record_bytes, fails):
    def deserialize(value):
        if value[:1] == b"P" and fails == "in its deserializer":
            raise ValueError(value[:1])
        return value

    virtual_broker.create_topic(TOPIC, 2)
    virtual_broker.produce(TOPIC, b"P" + bytes(record_bytes))
    for _ in range(4 * MIB // record_bytes):
        virtual_broker.produce(TOPIC, bytes(record_bytes))
    good_count = 0

    async def read(consumer):
        nonlocal good_count
        try:
            async for record in consumer:
                if not record.partition:
                    break
                good_count += 1
                if good_count == 5:
                    break
        except RecordDeserializationError:
            await asyncio.sleep(0.01)

    async with consumer_of(virtual_broker, max_buffered_bytes=bound_bytes, value_deserializer=deserialize) as consumer:
        await read(consumer)
        for _ in range(5):
            virtual_broker.produce(TOPIC, bytes(record_bytes), partition=1)
        async with asyncio.timeout(60):
            while good_count < 5:
                await read(consumer)


def batch(values, codec):
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, 1, None, value, [])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "gzip"])
@pytest.mark.virtual_time
async def test_a_decompressed_batch_with_a_bad_record_leaves_memory_to_the_others(virtual_broker, codec):
    """Of the lanes that wait for memory one goes on all the same: not one whose next record cannot be delivered."""

    def deserialize(value):
        if value == b"poison":
            raise ValueError(value)
        return value

    virtual_broker.create_topic(TOPIC, 2)
    virtual_broker.append(TOPIC, 0, batch([*[bytes(100)] * 9, b"poison"], codec))
    for _ in range(5):
        virtual_broker.append(TOPIC, 1, batch([bytes(100_000)], 0))
    settings = {"max_buffered_bytes": 65_536, "max_partition_fetch_bytes": 65_536, "value_deserializer": deserialize}
    seen_count = errors_count = 0
    async with consumer_of(virtual_broker, **settings) as consumer:
        while seen_count < 5 and errors_count < 100:
            try:
                got = await consumer.getmany(timeout_ms=100)
                seen_count += len(got.get(TopicPartition(TOPIC, 1), ()))
            except RecordDeserializationError:
                errors_count += 1
                await asyncio.sleep(0.02)
    assert seen_count == 5


@pytest.mark.virtual_time
async def test_one_long_batch_does_not_keep_brokers_waiting_for_each_other_for_ever():
    """For each request as much is reserved as an answer was long: with three of them a bound of 1 MiB is exceeded."""
    async with Broker(nodes=3) as broker:
        broker.create_topic(TOPIC, 3)
        async with consumer_of(broker, max_buffered_bytes=MIB) as consumer:
            loop = asyncio.get_running_loop()
            broker.produce(TOPIC, bytes(900_000))
            await consumer.getone()
            await consumer.getmany(timeout_ms=12_000)
            for number in range(12):
                await asyncio.sleep(0.1)
                broker.produce(TOPIC, b"short", partition=number % 3)
                produced_at = loop.time()
                await consumer.getone()
                assert loop.time() - produced_at < 0.1


@pytest.mark.virtual_time
@pytest.mark.parametrize("bound_bytes", [64 * 1024, 64 * MIB])
async def test_a_bad_record_is_skipped_by_name_though_its_bytes_were_dropped_meanwhile(virtual_broker, bound_bytes):
    """A paused partition leaves its memory to the others."""

    def deserialize(value):
        if value == b"bad":
            raise ValueError
        return value

    bad, other = TP, TopicPartition(TOPIC, 1)
    virtual_broker.create_topic(TOPIC, 2)
    virtual_broker.produce_many(TOPIC, [b"bad", b"good"], partition=0)
    virtual_broker.produce_many(TOPIC, [bytes(4_096)] * 500, partition=1)
    settings = {
        "value_deserializer": deserialize,
        "max_buffered_bytes": bound_bytes,
        "auto_ack": False,
        "max_partition_fetch_bytes": 16_384,
    }
    async with consumer_of(virtual_broker, **settings) as consumer, asyncio.timeout(60):
        with pytest.raises(RecordDeserializationError):
            await consumer.getone(bad)
        consumer.pause(bad)
        for _ in range(500):
            assert (await consumer.getone(other)).offset >= 0
        await consumer.skip(bad)
        consumer.resume(bad)
        assert (await consumer.getone(bad)).offset == 1
