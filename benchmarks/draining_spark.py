"""`python -m benchmarks.draining_spark [--records N] [--rounds N]`: a backlog that Spark drains into Parquet (KIP-333).

Each round is one `python -m aiogroup.spark drain` on `local[2]`, over a topic of its own. It is timed from the start of
the process until a task writes its first record, and until the process ends. Beside it runs what a data engineer writes
without aiogroup: a script that reads the same offsets by Spark's own connector, whose jars are on this machine. Every
offset must be in the Parquet files once. Writes benchmarks/results/draining_spark.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aiogroup import Consumer
from aiogroup.devkafka import Cluster, jars
from aiogroup.spark import make_session
from benchmarks import goals
from benchmarks.backlog import Backlog
from benchmarks.recovering import GOAL_RECORDS, PARTITIONS, PROCESSED, SIZE, leave
from benchmarks.results import FOLDER, Table, write

FIRST_S, WHOLE_S = 40.0, 60.0
LIMIT_S = 600.0
LOOK_S = 0.05
CLIENT, BY_HAND = "aiogroup.spark", "hand-written"
SCRIPT = """
import sys

from pyspark.sql import SparkSession

servers, topic, offsets, jars, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
frame = frame.option("startingOffsets", offsets).option("includeHeaders", "true").load()
frame.write.parquet(folder)
"""
COLUMNS = (
    ("first_s", "first record s, worst", "worst"),
    ("whole_s", "whole job s, worst", "worst"),
    ("whole_s", "median", "median"),
    ("records_per_s", "records/s", "median"),
    ("load", "load", "median"),
)


async def hand_off(servers: str, topic: str) -> None:
    """Run the service again: it goes on at the head, and leaves the records that it missed to the job."""
    settings: dict[str, Any] = {"enable_parallel_rebalance": True, "parallel_handoff": True}
    async with Consumer(topic, bootstrap_servers=servers, group_id=topic, **settings) as consumer:
        await consumer.getmany(timeout_ms=1_000)
        await consumer.commit()


def has_begun(folder: Path) -> bool:
    """Whether a task has opened its file, which it does when it has a record to write."""
    return any(folder.rglob("*.parquet"))


def by_aiogroup(cluster: Cluster, topic: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "aiogroup.spark", "drain", f"--group={topic}", f"--topic={topic}"]
    command += [f"--bootstrap-server={cluster.bootstrap_servers}", f"--to=parquet:{folder}", "--master=local[2]"]
    return [*command, "--conf=spark.ui.enabled=false"]


def by_hand(cluster: Cluster, topic: str, folder: Path) -> list[str]:
    offsets = json.dumps({topic: {str(number): PROCESSED for number in range(PARTITIONS)}})
    paths = ",".join(map(str, jars.spark_jars()))
    return [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, topic, offsets, paths, str(folder)]


WAYS = {CLIENT: by_aiogroup, BY_HAND: by_hand}


def run(command: list[str], folder: Path) -> dict[str, Any]:
    began_at, first_s = time.monotonic(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        try:
            while job.poll() is None:
                elapsed_s = time.monotonic() - began_at
                if elapsed_s > LIMIT_S:
                    raise SystemExit(f"no end in {LIMIT_S:.0f} s")
                if not first_s and has_begun(folder):
                    first_s = elapsed_s
                time.sleep(LOOK_S)
            whole_s = time.monotonic() - began_at
        finally:
            job.kill()
        if job.returncode:
            raise SystemExit(f"exit {job.returncode}\n{job.stderr.read() if job.stderr else ''}")
    return {"first_s": round(first_s, 2), "whole_s": round(whole_s, 2), "load": round(os.getloadavg()[0], 2)}


def check(folders: dict[str, Path], count: int) -> None:
    """Check that the files have every offset after the committed one, once."""
    spark = make_session("local[2]", jars=jars.spark_jars(), conf={"spark.ui.enabled": "false"})
    try:
        for name, folder in folders.items():
            rows = spark.read.parquet(str(folder)).groupBy("partition").agg({"offset": "min", "*": "count"})
            twice = spark.read.parquet(str(folder)).select("partition", "offset").distinct().count()
            found = {row["partition"]: (row["min(offset)"], row["count(1)"]) for row in rows.collect()}
            wanted = dict.fromkeys(range(PARTITIONS), (PROCESSED, count // PARTITIONS))
            if found != wanted or twice != count:
                raise SystemExit(f"{name}: first offset and count of each partition are {found}, not {wanted}")
    finally:
        spark.stop()


def judged(table: Table) -> list[goals.Goal]:
    measured = goals.Measured([table])

    def within(metric: str, most: float) -> list[goals.Part]:
        worst = measured.value(("spark", "drain", metric), CLIENT, "worst")
        return [goals.Part(f"{worst} s, the worst round", None if not worst else worst <= most)]

    return [
        goals.Goal(f"the first record is processed: <= {FIRST_S:g} s from the job's start", within("first_s", FIRST_S)),
        goals.Goal(f"{GOAL_RECORDS:,} records are in Parquet: <= {WHOLE_S:g} s", within("whole_s", WHOLE_S)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=GOAL_RECORDS, help="records in the backlog, %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="%(default)s")
    args = parser.parse_args()
    table, folders = Table("spark", COLUMNS, base=BY_HAND, ratio_of="whole_s"), {}
    with tempfile.TemporaryDirectory() as base, Cluster(benchmark=True) as cluster:
        for number in range(args.rounds):
            topic = f"spark-{number}"
            Backlog(topic, PARTITIONS, args.records + PARTITIONS * PROCESSED, SIZE).write(cluster)
            leave(cluster, topic)
            asyncio.run(hand_off(cluster.bootstrap_servers, topic))
            for way, command_of in WAYS.items():
                folder = folders[f"{topic}, {way}"] = Path(base) / f"{topic}-{way}"
                took = run(command_of(cluster, topic, folder), folder)
                table.row("drain", way).runs.append(took | {"records_per_s": round(args.records / took["whole_s"])})
        check(folders, args.records)
    verdicts = judged(table)
    print(table.markdown(), "\n\n" + goals.markdown(verdicts))
    path = FOLDER / "draining_spark.json"
    write(path, [table], records=args.records, goals=goals.told(verdicts))
    print(f"\nbenchmarks/{FOLDER.name}/{path.name} has every run.")


if __name__ == "__main__":
    main()
