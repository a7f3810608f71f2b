"""A service crashes, comes back at the head, and Spark drains what it has missed into a table (KIP-333). In the end
nothing lags, and every offset is accounted for.

    python examples/backlog_with_spark.py                    # 1,000,000 records of 100 bytes, into Parquet
    python examples/backlog_with_spark.py --records 20000 --lake /tmp/lake --table

With `--table` the job writes into a table of Iceberg, which takes each record once however often a job is repeated. The
service and the job call the same function, `bill`, for each record.

It starts a Kafka of its own, and Spark with `local[2]`: `pip install 'aiogroup[devkafka,spark]'` and Java 17 or 21. In
production the job is a process of its own, elsewhere: `python -m aiogroup.spark drain --group ... --to table:...`
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own documentation has it)

from aiogroup import Consumer, Record, TopicPartition
from aiogroup.devkafka import Cluster
from aiogroup.spark import DrainReport, drain, make_session, pending_ranges, to_parquet, to_table

TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
PER_SECOND = 200
TABLE = "lake.shop.bills"
COLUMNS = "topic STRING, partition INT, offset BIGINT, amount BIGINT"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"


def bill(value: bytes) -> int:
    """The handler: what one order costs."""
    return int(value) * 100


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
        self.handled: dict[tuple[int, int], int] = {}
        self.ages_ms: list[float] = []

    async def work(self) -> None:
        async for record in self.consumer:
            self.handle(record)

    def handle(self, record: Record) -> None:
        assert record.lane == "live", "the backlog is not the service's"
        self.handled[record.partition, record.offset] = bill(record.value)
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


def start_spark(lake: Path, jars: list[Path]) -> SparkSession:
    """Spark with a catalog whose tables are in the folder `lake`. Without `jars` Spark fetches those of Iceberg."""
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(lake),
        **({} if jars else {"spark.jars.packages": ICEBERG}),
    }
    return make_session("local[2]", jars=jars, conf={"spark.ui.enabled": "false", **catalog})


def run_job(servers: str, lake: Path, jars: list[Path] | None) -> tuple[DrainReport, dict[tuple[int, int], int]]:
    """Run the job: into the table, or without `jars` into Parquet files. Returns its report, and what is there then."""
    begun = time.monotonic()
    spark = make_session("local[2]", conf={"spark.ui.enabled": "false"}) if jars is None else start_spark(lake, jars)
    print(f"Spark was up after {time.monotonic() - begun:.1f} s")
    path = str(lake / "bills")
    write = to_parquet(path) if jars is None else to_table(TABLE)
    bill_of = F.udf(bill, "bigint")

    def process(frame: DataFrame) -> None:
        write(frame.select("topic", "partition", "offset", bill_of("value").alias("amount"), "slice"))

    try:
        if jars is not None:
            spark.sql(f"CREATE TABLE {TABLE} ({COLUMNS}) USING iceberg")
        report = drain(spark, process, bootstrap_servers=servers, group_id=GROUP, topics=TOPIC, on_progress=print)
        bills = spark.read.parquet(path) if jars is None else spark.table(TABLE)
        rows = bills.select("partition", "offset", "amount").collect()
    finally:
        spark.stop()
    assert len(rows) == report.record_count, "each record is there once"
    return report, {(row.partition, row.offset): row.amount for row in rows}


def check(
    ends: dict[TopicPartition, int], drained: dict[tuple[int, int], int], handled: dict[tuple[int, int], int]
) -> None:
    """Check that every offset after those committed before the crash is billed once: by the job, or by the service."""
    expected = {(tp.partition, offset) for tp, end in ends.items() for offset in range(10, end)}
    missing, twice = expected - drained.keys() - handled.keys(), drained.keys() & handled.keys()
    print(
        f"{len(drained):,} offsets billed by the job and {len(handled):,} by the service are {len(expected):,}: "
        f"{len(missing)} missing, {len(twice)} twice"
    )
    if missing or twice or len(drained) + len(handled) != len(expected):
        raise SystemExit("not every offset is accounted for")


async def main(count: int, lake: Path, jars: list[Path] | None) -> None:
    with Cluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        servers = cluster.bootstrap_servers
        await produce(servers, count)
        await crash(servers)
        print(f"a backlog of {count - 10 * PARTITIONS:,} records, and {PER_SECOND} more a second")
        service, is_drained = Service(servers), asyncio.Event()
        more = asyncio.create_task(go_on(servers, is_drained))
        async with service.consumer as consumer:
            working = asyncio.create_task(service.work())
            report, drained_by_job = await asyncio.to_thread(run_job, servers, lake, jars)
            print(f"the job took {report.elapsed_ms / 1000:.1f} s")
            is_drained.set()
            await more
            while consumer.child_consumer_is_alive() or await consumer.lag():  # noqa: ASYNC110 (it looks itself)
                await asyncio.sleep(0.1)  # the service reads the second commit log every two seconds
            ends = await consumer.end_offsets(consumer.assignment())
            await consumer.stop()
            await working
        ages = service.ages_ms
        print(f"at the head meanwhile: age p50 {percentile(ages, 0.5):.0f} ms, p99 {percentile(ages, 0.99):.0f} ms")
        left = await asyncio.to_thread(pending_ranges, bootstrap_servers=servers, group_id=GROUP, topics=TOPIC)
        assert not any(each.ranges for each in left.values()), "nothing is left to jobs"
        check(ends, drained_by_job, service.handled)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A service at the head, and its backlog drained by Spark")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--lake", type=Path, help="a folder for what the job writes; a temporary one by default")
    parser.add_argument("--table", action="store_true", help="write into a table of Iceberg, not into Parquet files")
    parser.add_argument("--jars", type=Path, nargs="+", default=[], help="those of Iceberg; Spark fetches them without")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(given.records, given.lake or Path(folder), given.jars if given.table else None))
