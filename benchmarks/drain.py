"""One run of one client over a backlog, in a process of its own: `python -m benchmarks.drain CLIENT ...`.

Prints one JSON line. Every record must arrive once, with all of its bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from typing import Any

from benchmarks.clients import CLIENTS, MODES, Plan, make
from benchmarks.meter import Meter


async def run(name: str, plan: Plan, count: int, size: int, ours: list[int]) -> dict[str, Any]:
    client = make(name, plan)
    meter = Meter(count, has_loop=client.has_loop, ours=ours)
    await client.start()
    try:
        await client.drain(meter)
        result = await meter.result()
    finally:
        await client.stop()
    if (meter.count, meter.size) != (count, count * size):
        raise SystemExit(f"{meter.count} records of {meter.size} bytes came, not {count} of {count * size}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=(*CLIENTS, *MODES))
    parser.add_argument("--topic", required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="bytes of each value")
    parser.add_argument("--read-committed", action="store_true")
    parser.add_argument("--check-crcs", action="store_true", help="confluent: check, which is not its default")
    parser.add_argument("--ours", type=int, action="append", default=[], help="a process that is part of the run")
    args = parser.parse_args()
    group = f"bench-{uuid.uuid4().hex[:8]}"
    plan = Plan(args.servers, (args.topic,), group, read_committed=args.read_committed, check_crcs=args.check_crcs)
    print(json.dumps(asyncio.run(run(args.client, plan, args.count, args.size, args.ours))))


if __name__ == "__main__":
    main()
