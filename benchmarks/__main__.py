"""`python -m benchmarks [--quick]`: aiogroup beside aiokafka on one broker, interleaved, medians and ratios.

Each run is a process of its own; the clients take turns, so that a noisy moment hits both. Results go to
benchmarks/results/ as JSON too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

from aiogroup.devkafka import Cluster

RESULTS = pathlib.Path(__file__).parent / "results"
CLIENTS = ("aiokafka", "aiogroup")


async def produce(servers: str, topic: str, partitions: int, count: int, size: int, codec: str | None) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=servers, compression_type=codec, linger_ms=20, max_batch_size=16_384, acks=1
    )
    await producer.start()
    try:
        for first in range(0, count, 2_000):
            waits = [
                await producer.send(
                    topic, os.urandom(8).hex().encode() + bytes(size - 16), partition=number % partitions
                )
                for number in range(first, min(first + 2_000, count))
            ]
            await asyncio.gather(*waits)
    finally:
        await producer.stop()


def measure(client: str, how: str, topic: str, servers: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.drain", client, how, "--topic", topic, "--servers", servers]
    done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{client} {how} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def compare(
    cluster: Cluster, partitions: int, how: str, codec: str | None, count: int, rounds: int
) -> list[dict[str, Any]]:
    topic = f"bench-{partitions}-{codec or 'none'}-{how}"
    cluster.create_topic(topic, partitions)
    asyncio.run(produce(cluster.bootstrap_servers, topic, partitions, count, 100, codec))
    runs: dict[str, list[dict[str, Any]]] = {client: [] for client in CLIENTS}
    for _ in range(rounds):
        for client in CLIENTS:
            runs[client].append(measure(client, how, topic, cluster.bootstrap_servers, count))
    rows = []
    base = statistics.median(each["records_per_s"] for each in runs["aiokafka"])
    for client in CLIENTS:
        rate = statistics.median(each["records_per_s"] for each in runs[client])
        rows.append({
            "scenario": f"100 B, {partitions} partitions, {codec or 'no'} codec, {how}",
            "client": client,
            "records_per_s": rate,
            "ratio": round(rate / base, 2),
            "cpu_s_per_million": statistics.median(each["cpu_s_per_million"] for each in runs[client]),
            "late_max_ms": max(each["late_max_ms"] for each in runs[client]),
            "late_p99_ms": statistics.median(each["late_p99_ms"] for each in runs[client]),
            "load": round(statistics.median(each["load"] for each in runs[client]), 1),
            "runs": runs[client],
        })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| scenario | client | records/s | ratio | CPU s per million | latest tick ms | p99 ms | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['scenario']} | {r['client']} | {r['records_per_s']:,.0f} | {r['ratio']} | {r['cpu_s_per_million']} | "
        f"{r['late_max_ms']} | {r['late_p99_ms']} | {r['load']} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, two rounds")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    count, rounds = (100_000, 2) if args.quick else (args.count, args.rounds)
    scenarios = [(4, "async-for", None), (4, "getmany", None)]
    if not args.quick:
        scenarios += [(20, "async-for", None), (4, "async-for", "lz4"), (4, "async-for", "gzip")]
    rows: list[dict[str, Any]] = []
    with Cluster(benchmark=True) as cluster:
        for partitions, how, codec in scenarios:
            rows += compare(cluster, partitions, how, codec, count, rounds)
            print(table(rows[-2:]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(rows, indent=1))
    print("\n" + table(rows))
    print(
        f"\nwritten to {path.relative_to(pathlib.Path.cwd()) if path.is_relative_to(pathlib.Path.cwd()) else path.name}"
    )


if __name__ == "__main__":
    main()
