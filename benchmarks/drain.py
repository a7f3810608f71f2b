"""One run of one client over a backlog, in a process of its own: `python -m benchmarks.drain CLIENT ...`.

Prints one JSON line: records per second, CPU seconds per million records, and how late a 5 ms ticker in the same loop
ever was. Time runs from the first record, so that joining and connecting do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
import uuid
from typing import Any

TICK_S = 0.005


class Ticker:
    """Wakes every 5 ms and remembers how late it was: what every other task of the service feels."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + TICK_S
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            now = loop.time()
            self.late_ms.append((now - due) * 1000)
            due = now + TICK_S


class Meter:
    """Counts from the first record on."""

    def __init__(self, want_count: int) -> None:
        self.want_count = want_count
        self.count = 0
        self.started_at = self.cpu_at = 0.0
        self.ticker = Ticker()
        self._task: asyncio.Task[None] | None = None

    def first(self) -> None:
        self.started_at, self.cpu_at = time.perf_counter(), time.process_time()
        self._task = asyncio.get_running_loop().create_task(self.ticker.run())

    async def result(self) -> dict[str, Any]:
        took, cpu = time.perf_counter() - self.started_at, time.process_time() - self.cpu_at
        await asyncio.sleep(0.01)
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        late = sorted(self.ticker.late_ms) or [0.0]
        return {
            "records": self.count,
            "records_per_s": round(self.count / took),
            "cpu_s_per_million": round(cpu / self.count * 1e6, 2),
            "late_max_ms": round(late[-1], 1),
            "late_p99_ms": round(late[int(len(late) * 0.99)], 1),
        }


def settings(servers: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "group_id": f"bench-{uuid.uuid4().hex[:8]}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": True,
    }


async def iterate(consumer: Any, meter: Meter) -> None:
    async for _ in consumer:
        if not meter.count:
            meter.first()
        meter.count += 1
        if meter.count >= meter.want_count:
            return


async def batches(consumer: Any, meter: Meter) -> None:
    while meter.count < meter.want_count:
        got = await consumer.getmany(timeout_ms=1000, max_records=500)
        if got and not meter.count:
            meter.first()
        for records in got.values():
            for _ in records:
                meter.count += 1


async def run(client: str, how: str, topic: str, servers: str, count: int) -> dict[str, Any]:
    meter = Meter(count)
    if client == "aiogroup":
        from aiogroup import Consumer as Kind
    else:
        from aiokafka import AIOKafkaConsumer as Kind  # type: ignore[assignment]
    consumer = Kind(topic, **settings(servers))
    await consumer.start()
    try:
        await (iterate if how == "async-for" else batches)(consumer, meter)
        return await meter.result()
    finally:
        await consumer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=("aiogroup", "aiokafka"))
    parser.add_argument("how", choices=("async-for", "getmany"))
    parser.add_argument("--topic", required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    result = asyncio.run(run(args.client, args.how, args.topic, args.servers, args.count))
    print(json.dumps({"client": args.client, "how": args.how, "load": os.getloadavg()[0], **result}))


if __name__ == "__main__":
    main()
