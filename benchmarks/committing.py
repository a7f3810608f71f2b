"""How long a commit takes: `python -m benchmarks.committing CLIENT ...`. Each commits the records that were just
read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from typing import Any

from benchmarks.clients import CLIENTS, Client, Plan, make
from benchmarks.meter import Load, percentile


async def run(client: Client, count: int, ours: list[int]) -> dict[str, Any]:
    await client.start()
    took_ms: list[float] = []
    try:
        load = Load(ours)
        while len(took_ms) <= count:
            if not await client.some():
                continue
            at = time.perf_counter()
            await client.commit()
            took_ms.append((time.perf_counter() - at) * 1000)
        told = load.result()
    finally:
        await client.stop()
    took_ms = took_ms[1:]  # the first one connects
    return {
        "commits": count,
        "p50_ms": round(percentile(took_ms, 0.5), 2),
        "p99_ms": round(percentile(took_ms, 0.99), 2),
        "latest_ms": round(max(took_ms), 2),
        **told,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--commits", type=int, required=True)
    parser.add_argument("--ours", type=int, action="append", default=[], help="a process that is part of the run")
    args = parser.parse_args()
    plan = Plan(args.servers, (args.topic,), f"bench-{uuid.uuid4().hex[:8]}", auto_commit=False)
    print(json.dumps(await run(make(args.client, plan), args.commits, args.ours)))


if __name__ == "__main__":
    asyncio.run(main())
