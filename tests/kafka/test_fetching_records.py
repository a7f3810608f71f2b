"""Every shape of record and batch, from aiokafka's producer and from Java's, arrives as it was written."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading

import pytest

from aiogroup import RecordDeserializationError, TopicPartition
from aiogroup._core.fetching.records.batches import Batch
from tests.support.java_tools import PERFORMANCE, run
from tests.support.reading import alone, fill, producing, read

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
async def test_each_codec_of_aiokafka(kafka_cluster, unique_name, codec):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("codec"), 0)
    kafka_cluster.create_topic(tp.topic)
    values = [b"%d:" % i + b"x" * (i % 300) for i in range(2_000)]
    await fill(servers, tp, values, compression_type=codec, linger_ms=20)
    consumer = alone(servers)
    consumer.assign([tp])
    async with consumer:
        records = await read(consumer, len(values))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(len(values)))
    assert all(record.key is None and not record.headers and record.timestamp_type == 0 for record in records)


async def _java_fill(tools, cluster, topic: str, codec: str, count: int, size: int) -> None:
    records = ("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
    settings = ("--command-property", f"compression.type={codec}", "linger.ms=50", "batch.size=200000")
    code, lines = await asyncio.to_thread(run, tools, cluster, PERFORMANCE, records + settings)
    assert code == 0, lines


async def test_each_codec_of_java(java_tools, kafka_cluster, unique_name):
    tps = []
    for codec in ("none", *filter(None, CODECS)):
        tp = TopicPartition(unique_name(f"java-{codec}"), 0)
        kafka_cluster.create_topic(tp.topic)
        tps.append(tp)
        await _java_fill(java_tools, kafka_cluster, tp.topic, codec, 3_000, 200)
    consumer = alone(kafka_cluster.bootstrap_servers)
    consumer.assign(tps)
    async with consumer:
        records = await read(consumer, 15_000)
    for tp in tps:
        mine = [record for record in records if record.topic_partition == tp]
        assert [record.offset for record in mine] == list(range(3_000))
        assert all(len(record.value) == 200 and record.value.isalpha() for record in mine)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
async def test_big_batches_are_decompressed_in_a_worker_thread(kafka_cluster, unique_name, monkeypatch, codec):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("big"), 0)
    kafka_cluster.create_topic(tp.topic)
    rng = random.Random(7)
    values = [rng.randbytes(20_000) + b"a" * 20_000 for _ in range(40)]
    await fill(servers, tp, values, compression_type=codec, linger_ms=200, max_batch_size=1_000_000)
    threads = []
    inflate = Batch.inflate

    def watched(self, max_bytes):
        if self.packed_bytes > 64 * 1024:
            threads.append(threading.current_thread())
        inflate(self, max_bytes)

    monkeypatch.setattr(Batch, "inflate", watched)
    consumer = alone(servers)
    consumer.assign([tp])
    async with consumer:
        records = await read(consumer, len(values))
    assert [record.value for record in records] == values
    assert threads
    assert threading.main_thread() not in threads


async def test_nulls_empties_and_headers(kafka_cluster, unique_name):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("shapes")
    kafka_cluster.create_topic(topic)
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b""), ("ü", "ß".encode())]
    shapes = [
        (None, b"value", []),
        (b"key", None, []),
        (b"", b"", []),
        (b"k", b"v", headers),
        (None, None, [("only", None)]),
    ]
    async with producing(servers) as producer:
        for key, value, with_headers in shapes:
            if key is None and value is None:
                value = b"-"  # noqa: PLW2901 (aiokafka's producer refuses both to be missing)
            await producer.send_and_wait(topic, value, key=key, headers=with_headers, timestamp_ms=1_234_567_890_123)
    seen = []
    consumer = alone(servers, value_deserializer=lambda data: seen.append(data) or data)
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        records = await read(consumer, len(shapes))
    got = [(record.key, record.value, [tuple(header) for header in record.headers]) for record in records]
    assert got == [*shapes[:4], (None, b"-", [("only", None)])]
    assert {record.timestamp for record in records} == {1_234_567_890_123}
    assert seen == [b"value", b"", b"v", b"-"]  # not asked about a value that is not there


async def test_a_partition_limit_below_a_record_still_delivers(kafka_cluster, unique_name):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("small"), 0)
    kafka_cluster.create_topic(tp.topic)
    values = [os.urandom(size) for size in (10, 3_000, 20, 50_000, 30)]
    for value in values:
        await fill(servers, tp, [value])
    consumer = alone(servers, max_partition_fetch_bytes=100, max_buffered_bytes=1_000, fetch_max_bytes=100)
    consumer.assign([tp])
    async with consumer:
        records = await read(consumer, len(values))
    assert [record.value for record in records] == values


async def test_a_record_of_five_megabytes(kafka_cluster, unique_name):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("huge"), 0)
    kafka_cluster.create_topic(tp.topic, config={"max.message.bytes": "6000000"})
    values = [b"before", os.urandom(5_000_000), b"after"]
    for value in values:
        await fill(servers, tp, [value], max_request_size=6_000_000)
    consumer = alone(servers)
    consumer.assign([tp])
    async with consumer:
        assert [record.value for record in await read(consumer, 3)] == values


@pytest.mark.parametrize("codec", [None, "zstd"])
async def test_a_batch_above_the_limit_names_the_setting_that_lets_it_be_read(kafka_cluster, unique_name, codec):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("long"), 0)
    kafka_cluster.create_topic(tp.topic, config={"max.message.bytes": "6000000"})
    values = [b"before", bytes(5_000_000), b"after"]
    for value in values:
        await fill(servers, tp, [value], max_request_size=6_000_000, compression_type=codec)
    consumer = alone(servers, max_batch_bytes=4_000_000)
    consumer.assign([tp])
    async with consumer:
        assert [record.value for record in await read(consumer, 1)] == values[:1]
        with pytest.raises(RecordDeserializationError, match="more than max_batch_bytes=4000000"):
            await read(consumer, 1)
    consumer = alone(servers, max_batch_bytes=5_100_000)
    consumer.assign([tp])
    async with consumer:
        assert [record.value for record in await read(consumer, 3)] == values


async def test_append_time_is_reported_as_such(kafka_cluster, unique_name):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("append"), 0)
    kafka_cluster.create_topic(tp.topic, config={"message.timestamp.type": "LogAppendTime"})
    async with producing(servers) as producer:
        await producer.send_and_wait(tp.topic, b"v", timestamp_ms=1)
    consumer = alone(servers)
    consumer.assign([tp])
    async with consumer:
        (record,) = await read(consumer, 1)
    assert record.timestamp_type == 1
    assert record.timestamp > 1_600_000_000_000


MEASURE = """
import asyncio, os, resource, sys
from aiogroup import Consumer, TopicPartition

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main(servers, topic, total):
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_buffered_bytes=8 << 20)
    consumer.assign([TopicPartition(topic, each) for each in range(16)])
    async with consumer:
        before, seen, most, most_rss = rss(), 0, 0, 0
        while seen < total:
            records = await consumer.getmany(timeout_ms=1_000, max_records=40)
            seen += records.count
            del records
            await asyncio.sleep(0.001)
            most = max(most, consumer.metrics()["buffered_bytes"])
            most_rss = max(most_rss, rss())
        print(most, most_rss - before)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_slow_consumer_over_a_long_backlog_stays_within_its_bound(java_tools, kafka_cluster, unique_name):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("backlog")
    kafka_cluster.create_topic(topic, 16)
    await _java_fill(java_tools, kafka_cluster, topic, "none", 20_000, 10_000)
    measured = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MEASURE, servers, topic, "20000", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await measured.communicate()
    assert measured.returncode == 0
    buffered, grown = map(int, out.split())
    bound = 8 << 20
    assert 0 < buffered <= bound + 2 * 200_000  # a broker gives a whole batch even where less was asked for (KIP-74)
    assert grown < 6 * bound, f"{grown} bytes more in memory"
