"""A slow consumer over a gigabyte, bounded to 16 MiB: its process grows by less than 64 MiB."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from confluent_kafka import Producer

from aiogroup import Consumer, TopicPartition
from tests.support.kafka import eventually

PARTITIONS_COUNT = 32
BOUND = 16 << 20
SIZE = 1_000
UNSENT_COUNT = 100_000
MEASURE = """
import asyncio, os, sys
from aiogroup import Consumer, TopicPartition

servers, topic, count, total, bound = *sys.argv[1:3], *map(int, sys.argv[3:])

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_buffered_bytes=bound)
    consumer.assign([TopicPartition(topic, each) for each in range(count)])
    before, seen, most, most_rss, is_done = rss(), 0, 0, 0, False

    async def watch():
        nonlocal most, most_rss
        while not is_done:
            most = max(most, consumer.metrics()["buffered_bytes"])
            most_rss = max(most_rss, rss())
            await asyncio.sleep(0.002)

    async with consumer:
        watching = asyncio.create_task(watch())
        while seen < total:
            records = await consumer.getmany(timeout_ms=300, max_records=400)
            seen += records.count
            if not records.count:
                await consumer.seek_to_beginning()  # a shorter log again and again
            del records
            await asyncio.sleep(0.0005)
        is_done = True
        await watching
    print(most, most_rss - before)

asyncio.run(main())
"""


def fill(servers: str, topic: str, codec: str, count: int, batch_bytes: int = 1_000_000, linger_ms: int = 200) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "message.max.bytes": batch_bytes,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    noise = os.urandom(1 << 20)
    for number in range(count):
        at = number * 37 % (1 << 19)
        value = noise[at : at + SIZE] if codec == "none" else noise[at : at + 40] + bytes(SIZE - 40)
        producer.produce(topic, value, partition=number // 1_000 % PARTITIONS_COUNT)
        if not number % 1_000:
            while len(producer) > UNSENT_COUNT:
                producer.poll(0.01)
    assert producer.flush(60) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("codec", "count", "total", "batch_bytes", "linger_ms"),
    [
        ("none", 1_000_000, 1_000_000, 1_000_000, 200),
        ("lz4", 256_000, 500_000, 1_000_000, 200),
        ("lz4", 128_000, 250_000, 4_000_000, 20_000),
    ],
    ids=["plain", "lz4, twentyfold", "lz4, batches that a thread decompresses"],
)
async def test_what_a_slow_consumer_holds_is_bounded(
    kafka_cluster, unique_name, codec, count, total, batch_bytes, linger_ms
):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("bound")
    await asyncio.to_thread(kafka_cluster.create_topic, topic, PARTITIONS_COUNT)
    await asyncio.to_thread(fill, servers, topic, codec, count, batch_bytes, linger_ms)
    measured = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEASURE, servers, topic, str(PARTITIONS_COUNT), str(total), str(BOUND)),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, _ = await measured.communicate()
    assert measured.returncode == 0
    held, grown = map(int, out.split())
    # The buffer into which a batch is decompressed is counted whole, and is up to twice as large as what comes out.
    one_batch_and_a_slice = batch_bytes * (1 if codec == "none" else 2) + (1 << 20)
    assert BOUND // 2 < held <= BOUND + one_batch_and_a_slice
    assert grown < 64 << 20, f"{grown} bytes more in memory"


@pytest.mark.parametrize("timeout_ms", [5_000, 0])
async def test_who_asks_for_one_partition_gets_it_though_the_others_fill_the_room(
    kafka_cluster, unique_name, timeout_ms
):
    servers, topic, bound = kafka_cluster.bootstrap_servers, unique_name("named"), 4 << 20
    await asyncio.to_thread(kafka_cluster.create_topic, topic, PARTITIONS_COUNT)
    await asyncio.to_thread(fill, servers, topic, "none", 1_000 * PARTITIONS_COUNT)
    tps = [TopicPartition(topic, each) for each in range(PARTITIONS_COUNT)]
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_buffered_bytes=bound)
    consumer.assign(tps)
    async with consumer:
        for tp in (tps[3], tps[20]):
            await eventually(lambda: consumer.metrics()["buffered_bytes"] > bound // 2)
            offsets = []
            async with asyncio.timeout(20):
                while len(offsets) < 1_000:
                    batch = await consumer.getmany(tp, timeout_ms=timeout_ms)
                    offsets += [record.offset for record in batch.all()]
                    assert consumer.metrics()["buffered_bytes"] < bound + (2 << 20)
                    if not batch.count:
                        await asyncio.sleep(0.05)
            assert offsets == list(range(1_000))
