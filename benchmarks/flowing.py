"""One client reads a steady flow of records for some seconds: `python -m benchmarks.flowing CLIENT ...`.

Prints the age of records at the moment when they are in hand, and the share of a core that the client took.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
import uuid
from typing import Any

from benchmarks.clients import CLIENTS, HEADS, Client, Plan, make
from benchmarks.flow import has_gaps, number_and_age_ms
from benchmarks.meter import Load, percentile

COMES_IN_S = 30.0


async def first_record(client: Client) -> None:
    until = time.monotonic() + COMES_IN_S
    while not await client.some():
        if time.monotonic() > until:
            raise SystemExit(f"no record in {COMES_IN_S:.0f} s")


async def read(client: Client, seconds: float) -> list[tuple[int, float]]:
    """(number, age in ms) of each record."""
    came: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        came += map(number_and_age_ms, await client.some())
    return came


async def run(client: Client, seconds: float, warm_s: float, partitions: int, ours: list[int]) -> dict[str, Any]:
    await client.start()
    try:
        await first_record(client)
        # A process's first full pass of the garbage collector takes 17 to 33 ms here, most of it for what was imported.
        # Whether it falls into the measured seconds is chance, so every client has it before them.
        gc.collect()
        await read(client, warm_s)
        load, cpu, at = Load(ours), time.process_time(), time.perf_counter()
        came = await read(client, seconds)
        cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - at
        told = load.result()
    finally:
        await client.stop()
    numbers, ages = [number for number, _ in came], [age for _, age in came]
    if has_gaps(numbers, partitions):
        raise SystemExit("records are missing, repeated or out of order")
    return {
        "records": len(ages),
        "p50_ms": round(percentile(ages, 0.5), 2),
        "p99_ms": round(percentile(ages, 0.99), 2),
        "latest_ms": round(max(ages), 2),
        "cpu_percent": round(cpu_s / wall_s * 100, 1),
        **told,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=(*CLIENTS, *HEADS))
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--partitions", type=int, required=True, help="of the topic that flows")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-seconds", type=float, default=1.0, help="seconds of reading before the measurement")
    parser.add_argument("--ours", type=int, action="append", default=[], help="a process that is part of the run")
    args = parser.parse_args()
    plan = Plan(args.servers, tuple(args.topic), f"bench-{uuid.uuid4().hex[:8]}", reset="latest")
    print(json.dumps(await run(make(args.client, plan), args.seconds, args.warm_seconds, args.partitions, args.ours)))


if __name__ == "__main__":
    asyncio.run(main())
