"""`python -m benchmarks.reading_spark [--rounds N] [--only SHAPE]`: ranges that Spark reads, and writes into Parquet.

By `drain` into Parquet, by `drain` into nothing, by aiogroup's reader alone into Parquet, and by hand: what a data
engineer writes without aiogroup is one read of Spark's own connector from the lowest to the highest offset, and a
filter where the ranges have gaps. All in one session (`local[2]`), in turns. The time is that of the action; of `drain`
it is all that it does once Spark has started, during which it joins. Writes benchmarks/results/reading_spark.json.

Where a partition has few records the connector waits for news in each of them (266 s for 1,000 partitions of 400
records): that shape is read by aiogroup alone, unless `--all` is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from aiogroup import Consumer, ConsumerConfig, OffsetAndMetadata, TopicPartition
from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import HandOffNote, LogId, Token, make_id, second_group_mark, write_token
from aiogroup._runtime.net.link import Link
from aiogroup.admin import list_members
from aiogroup.devkafka import Cluster, jars
from aiogroup.errors import GroupNotFoundError
from aiogroup.spark import drain, make_session, read_ranges, to_parquet
from benchmarks.backlog import Backlog
from benchmarks.results import FOLDER, Table, write

SIZE = 100
COLUMNS = (("seconds", "s, median", "median"), ("seconds", "worst", "worst"), ("load", "load", "median"))
Ranges = Mapping[TopicPartition, list[tuple[int, int]]]


def drained(spark: SparkSession, cluster: Cluster, ranges: Ranges, folder: Path) -> float:
    """Seconds from the session's start on."""
    return drained_into(to_parquet(str(folder)), spark, cluster, ranges, folder)


def only_read(spark: SparkSession, cluster: Cluster, ranges: Ranges, folder: Path) -> float:
    """As `drained`, and nothing is written."""
    return drained_into(
        lambda frame: frame.write.format("noop").mode("overwrite").save(), spark, cluster, ranges, folder
    )


def drained_into(
    process: Callable[[DataFrame], object], spark: SparkSession, cluster: Cluster, ranges: Ranges, folder: Path
) -> float:
    group, topics = folder.name, {tp.topic for tp in ranges}
    asyncio.run(leave(cluster.bootstrap_servers, group, ranges))
    began_at = 0.0

    def start() -> SparkSession:
        nonlocal began_at
        asyncio.run(until_joined(cluster.bootstrap_servers, f"{group}.catchup"))
        began_at = time.monotonic()
        return spark

    given: dict[str, Any] = {"group_id": group, "topics": topics, "bootstrap_servers": cluster.bootstrap_servers}
    report = drain(start, process, **given)
    seconds = time.monotonic() - began_at
    if not report.is_complete:
        raise SystemExit(f"{group}: {report.left_count} offsets are left")
    return seconds


async def leave(servers: str, group: str, ranges: Ranges) -> None:
    """Commit for the group what a service commits that leaves these ranges to jobs."""
    async with Link(ConsumerConfig(bootstrap_servers=servers)) as link:
        cluster = await link.fetch_metadata({tp.topic for tp in ranges})
    entries, mark, id_ = {}, second_group_mark(f"{group}.catchup"), make_id(os.urandom(8))
    for tp, pairs in ranges.items():
        note = HandOffNote(mark, False, (1_750_000_000,) * len(pairs))
        token = Token(id_, pairs[-1][1], 0, read(pairs), note)
        place = LogId(cluster.cluster_id or "", tp.topic, cluster.topics[tp.topic].topic_id, tp.partition)
        entries[tp] = OffsetAndMetadata(pairs[0][0], write_token(token, place))
    async with Consumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign(list(entries))
        await consumer.commit(entries)


async def until_joined(servers: str, group: str) -> None:
    while not await has_joined(servers, group):  # noqa: ASYNC110 (a broker tells nobody)
        await asyncio.sleep(0.05)


async def has_joined(servers: str, group: str) -> bool:
    try:
        return any(each.partitions for each in await list_members(group, bootstrap_servers=servers))
    except GroupNotFoundError:
        return False


def written(
    read_by: Callable[[SparkSession, Cluster, Ranges], DataFrame],
) -> Callable[[SparkSession, Cluster, Ranges, Path], float]:
    """A way that writes what it reads, and takes so many seconds for it."""

    def run(spark: SparkSession, cluster: Cluster, ranges: Ranges, folder: Path) -> float:
        frame = read_by(spark, cluster, ranges)
        began_at = time.monotonic()
        frame.write.parquet(str(folder))
        return time.monotonic() - began_at

    return run


def read_by_aiogroup(spark: SparkSession, cluster: Cluster, ranges: Ranges) -> DataFrame:
    return read_ranges(spark, ranges, bootstrap_servers=cluster.bootstrap_servers)


def read_by_hand(spark: SparkSession, cluster: Cluster, ranges: Ranges) -> DataFrame:
    def ends(of: Callable[[list[tuple[int, int]]], int]) -> str:
        return json.dumps({next(iter(ranges)).topic: {str(tp.partition): of(pairs) for tp, pairs in ranges.items()}})

    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("assign", json.dumps({next(iter(ranges)).topic: sorted(tp.partition for tp in ranges)}))
        .option("startingOffsets", ends(lambda pairs: pairs[0][0]))
        .option("endingOffsets", ends(lambda pairs: pairs[-1][1]))
        .option("includeHeaders", "true")
        .load()
    )
    if all(len(pairs) == 1 for pairs in ranges.values()):
        return frame
    offset = F.col("offset")
    wanted = [
        (F.col("partition") == tp.partition) & reduce(or_, (offset.between(start, end - 1) for start, end in pairs))
        for tp, pairs in ranges.items()
    ]
    return frame.where(reduce(or_, wanted))


READ = "drain, read only"
WAYS = {"drain": drained, READ: only_read, "aiogroup": written(read_by_aiogroup), "hand-written": written(read_by_hand)}


@dataclass(frozen=True)
class Shape:
    """A topic of `partitions` with `count` records of all of them and `more_of_first`, and the ranges to read."""

    partitions: int
    count: int
    ranges_of: Callable[[str], Ranges]
    more_of_first: int = 0


def shapes(*, is_small: bool) -> dict[str, Shape]:
    """By name."""
    part = 20 if is_small else 1

    def whole(partitions: int, count: int, more_of_first: int = 0) -> Shape:
        of_each = count // partitions

        def ranges(topic: str) -> Ranges:
            return {TopicPartition(topic, at): [(0, of_each + more_of_first * (at == 0))] for at in range(partitions)}

        return Shape(partitions, count, ranges, more_of_first)

    def many(topic: str) -> Ranges:
        step = 1_000_000 // part // 4 // 64
        return {
            TopicPartition(topic, each): [(at * step, at * step + step // 2) for at in range(64)] for each in range(4)
        }

    return {
        "1,000,000 in 4 partitions": whole(4, 1_000_000 // part),
        "5,000,000 in 16 partitions, 70 % in one": whole(16, 1_600_000 // part, 3_400_000 // part),
        "1,000 partitions of 400": whole(1_000 // part, 400_000 // part),
        "64 ranges in each of 4": Shape(4, 1_000_000 // part, many),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--only", help="a shape whose name contains this")
    parser.add_argument("--all", action="store_true", help="every way in every shape, which takes half an hour")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records")
    args = parser.parse_args()
    table = Table("spark-ranges", COLUMNS, base="hand-written", ratio_of="seconds")
    with tempfile.TemporaryDirectory() as base, Cluster(benchmark=True) as cluster:
        spark = make_session("local[2]", jars=jars.spark_jars(), conf={"spark.ui.enabled": "false"})
        for number, (name, shape) in enumerate(shapes(is_small=args.quick).items()):
            if args.only and args.only not in name:
                continue
            topic = f"ranges-{number}"
            Backlog(topic, shape.partitions, shape.count, SIZE, more_of_first=shape.more_of_first).write(cluster)
            ranges = shape.ranges_of(topic)
            wanted = sum(end - start for pairs in ranges.values() for start, end in pairs)
            ways = {way: run for way, run in WAYS.items() if args.all or way != "hand-written" or len(ranges) <= 16}
            for each in range(args.rounds + 1):  # the first warms Java up
                for way, run in ways.items():
                    folder = Path(base) / f"{topic}-{each}-{way}"
                    seconds = run(spark, cluster, ranges, folder)
                    if way != READ and (found := spark.read.parquet(str(folder)).count()) != wanted:
                        raise SystemExit(f"{name}: {way} has read {found} of {wanted} records")
                    load = round(os.getloadavg()[0], 2)
                    print(f"{name}, {way}: {seconds:.2f} s, load {load}", file=sys.stderr, flush=True)
                    if each:
                        table.row(name, way).runs.append({"seconds": round(seconds, 2), "load": load})
        spark.stop()
    print(table.markdown())
    path = FOLDER / "reading_spark.json"
    write(path, [table])
    print(f"\nbenchmarks/{FOLDER.name}/{path.name} has every run.")


if __name__ == "__main__":
    main()
