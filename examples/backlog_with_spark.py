"""A service stays at the head while Spark drains its backlog into Parquet, and every offset is accounted for (KIP-333).

    python examples/backlog_with_spark.py                    # 1,000,000 records of 100 bytes
    python examples/backlog_with_spark.py --records 20000 --to /tmp/drained

It starts a Kafka of its own, and Spark with `local[2]`: `pip install 'aiogroup[devkafka,spark]'` and Java 17 or 21. In
production the job is a process of its own, elsewhere: `python -m aiogroup.spark drain --group ... --to parquet:...`
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from aiokafka import AIOKafkaProducer

from aiogroup import Consumer, Record, TopicPartition
from aiogroup.devkafka import Cluster, spark_jars
from aiogroup.spark import DrainReport, drain, make_session, to_parquet

TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
PER_SECOND = 200


class Service:
    """The part that would be in FastAPI's lifespan: one consumer, and a task that handles its records."""

    def __init__(self, servers: str) -> None:
        self.consumer = Consumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id=GROUP,
            enable_parallel_rebalance=True,  # start at the head; what was left behind is pending ...
            parallel_handoff=True,  # ... and a batch job's to drain
            auto_commit_interval_ms=500,
        )
        self.handled: set[tuple[int, int]] = set()
        self.ages_ms: list[float] = []

    async def work(self) -> None:
        async for record in self.consumer:
            self.handle(record)

    def handle(self, record: Record) -> None:
        assert record.lane == "live", "the backlog is not the service's"
        self.handled.add((record.partition, record.offset))
        self.ages_ms.append(time.time() * 1000 - record.timestamp)


async def produce(servers: str, count: int) -> None:
    """Write the backlog, in whole batches."""
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 18) as producer:
        for partition in range(PARTITIONS):
            left = count // PARTITIONS
            while left:
                batch = producer.create_batch()
                while left and batch.append(key=None, value=b"%-100d" % left, timestamp=None) is not None:
                    left -= 1
                await producer.send_batch(batch, TOPIC, partition=partition)
        await producer.flush()


async def go_on(servers: str, until: asyncio.Event) -> None:
    """Write new records while the backlog is drained."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        number = 0
        while not until.is_set():
            await producer.send(TOPIC, b"%-100d" % number, partition=number % PARTITIONS)
            number += 1
            await asyncio.sleep(1 / PER_SECOND)
        await producer.flush()


async def crash(servers: str) -> None:
    """Run a member that handles the first 10 records of each partition and ends."""
    async with Consumer(TOPIC, bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False) as consumer:
        await consumer.commit({TopicPartition(TOPIC, partition): 10 for partition in range(PARTITIONS)})


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def run_job(servers: str, path: str) -> tuple[DrainReport, list[tuple[int, int]], float]:
    """Run the job. Returns its report, the offsets read back from Parquet, and the time from its start to the first
    task's end.
    """
    begun = time.monotonic()
    spark = make_session("local[2]", jars=spark_jars(), conf={"spark.ui.enabled": "false"})
    started_s = time.monotonic() - begun
    try:
        report = drain(
            spark, to_parquet(path), bootstrap_servers=servers, group_id=GROUP, topics=TOPIC, on_progress=print
        )
        rows = spark.read.parquet(path).select("partition", "offset").collect()
    finally:
        spark.stop()
    return report, [(row.partition, row.offset) for row in rows], started_s


def check(ends: dict[TopicPartition, int], drained: Iterable[tuple[int, int]], handled: set[tuple[int, int]]) -> None:
    """Check that every offset after those committed before the crash is there once: in Parquet, or handled by the
    service.
    """
    in_parquet = list(drained)
    expected = {(tp.partition, offset) for tp, end in ends.items() for offset in range(10, end)}
    missing, twice = expected - set(in_parquet) - handled, len(in_parquet) - len(set(in_parquet) - handled)
    print(
        f"{len(in_parquet):,} offsets in Parquet and {len(handled):,} handled at the head are {len(expected):,}: "
        f"{len(missing)} missing, {twice} twice"
    )
    if missing or twice or len(in_parquet) + len(handled) != len(expected):
        raise SystemExit("not every offset is accounted for")


async def main(count: int, path: str) -> None:
    with Cluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        servers = cluster.bootstrap_servers
        await produce(servers, count)
        await crash(servers)
        print(f"a backlog of {count - 10 * PARTITIONS:,} records, and {PER_SECOND} more a second")
        service, drained = Service(servers), asyncio.Event()
        more = asyncio.create_task(go_on(servers, drained))
        async with service.consumer as consumer:
            working = asyncio.create_task(service.work())
            report, rows, started_s = await asyncio.to_thread(run_job, servers, path)
            print(f"Spark was up after {started_s:.1f} s, and the job took {report.elapsed_ms / 1000:.1f} s")
            drained.set()
            await more
            while consumer.child_consumer_is_alive() or await consumer.lag():  # noqa: ASYNC110 (it looks itself)
                await asyncio.sleep(0.1)  # the service reads the second commit log every two seconds
            ends = await consumer.end_offsets(consumer.assignment())
            await consumer.stop()
            await working
        ages = service.ages_ms
        print(f"at the head meanwhile: age p50 {percentile(ages, 0.5):.0f} ms, p99 {percentile(ages, 0.99):.0f} ms")
        check(ends, rows, service.handled)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A service at the head, and its backlog drained by Spark")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--to", type=Path, help="a folder for the Parquet files; a temporary one by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(given.records, str(given.to or Path(folder) / "drained")))
