"""`python -m benchmarks.reading_spark [--rounds N] [--only SHAPE]`: ranges that Spark reads, and writes into Parquet.

By aiogroup's reader, and by hand: what a data engineer writes without aiogroup is one read of Spark's own connector
from the lowest to the highest offset, and a filter where the ranges have gaps. All in one session (`local[2]`), in
turns. The time is that of the action. Writes benchmarks/results/reading_spark.json.

Where a partition has few records the connector waits for news in each of them (266 s for 1,000 partitions of 400
records): that shape is read by aiogroup alone, unless `--all` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from aiogroup import TopicPartition
from aiogroup.devkafka import Cluster, jars
from aiogroup.spark import make_session, read_ranges
from benchmarks.backlog import Backlog
from benchmarks.results import FOLDER, Table, write

SIZE = 100
COLUMNS = (("seconds", "s, median", "median"), ("seconds", "worst", "worst"), ("load", "load", "median"))
Ranges = Mapping[TopicPartition, list[tuple[int, int]]]
READERS: dict[str, Callable[[SparkSession, Cluster, Ranges], DataFrame]] = {}


def reader(name: str) -> Callable[[Any], Any]:
    """A way of reading ranges, by its name."""

    def note(read: Any) -> Any:
        READERS[name] = read
        return read

    return note


@reader("aiogroup")
def read_by_aiogroup(spark: SparkSession, cluster: Cluster, ranges: Ranges) -> DataFrame:
    return read_ranges(spark, ranges, bootstrap_servers=cluster.bootstrap_servers)


@reader("hand-written")
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


def shapes(*, is_small: bool) -> dict[str, tuple[int, int, Callable[[str, int], Ranges]]]:
    """By name: partitions, records of all of them, and the ranges of a partition with so many records."""
    part = 20 if is_small else 1

    def whole(topic: str, partitions: int, count: int) -> Ranges:
        return {TopicPartition(topic, each): [(0, count // partitions)] for each in range(partitions)}

    def many(topic: str, count: int) -> Ranges:
        step = count // 4 // 64
        return {
            TopicPartition(topic, each): [(at * step, at * step + step // 2) for at in range(64)] for each in range(4)
        }

    return {
        "1,000,000 in 4 partitions": (4, 1_000_000 // part, lambda topic, count: whole(topic, 4, count)),
        "1,000 partitions of 400": (
            1_000 // part,
            400_000 // part,
            lambda topic, count: whole(topic, 1_000 // part, count),
        ),
        "64 ranges in each of 4": (4, 1_000_000 // part, many),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--only", help="a shape whose name contains this")
    parser.add_argument("--all", action="store_true", help="every reader in every shape, which takes half an hour")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records")
    args = parser.parse_args()
    table = Table("spark-ranges", COLUMNS)
    with tempfile.TemporaryDirectory() as base, Cluster(benchmark=True) as cluster:
        spark = make_session("local[2]", jars=jars.spark_jars(), conf={"spark.ui.enabled": "false"})
        for number, (shape, (partitions, count, ranges_of)) in enumerate(shapes(is_small=args.quick).items()):
            if args.only and args.only not in shape:
                continue
            topic = f"ranges-{number}"
            Backlog(topic, partitions, count, SIZE).write(cluster)
            ranges = ranges_of(topic, count)
            wanted = sum(end - start for pairs in ranges.values() for start, end in pairs)
            named = READERS if args.all or partitions <= 16 else {"aiogroup": read_by_aiogroup}
            for each in range(args.rounds + 1):  # the first warms Java up
                for name, read in named.items():
                    folder = Path(base) / f"{topic}-{each}-{name}"
                    frame = read(spark, cluster, ranges)
                    began_at = time.monotonic()
                    frame.write.parquet(str(folder))
                    seconds = time.monotonic() - began_at
                    if (found := spark.read.parquet(str(folder)).count()) != wanted:
                        raise SystemExit(f"{shape}: {name} has read {found} of {wanted} records")
                    print(f"{shape}, {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                    if each:
                        run = {"seconds": round(seconds, 2), "load": round(os.getloadavg()[0], 2)}
                        table.row(shape, name).runs.append(run)
        spark.stop()
    print(table.markdown())
    path = FOLDER / "reading_spark.json"
    write(path, [table])
    print(f"\nbenchmarks/{FOLDER.name}/{path.name} has every run.")


if __name__ == "__main__":
    main()
