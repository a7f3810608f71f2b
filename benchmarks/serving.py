"""What a service costs: reading with everything on beside reading alone, and 50 live pages on 1,000 partitions.

    python -m benchmarks.serving [--only all,watched] [--by getmany] [--work-us 0,50] [--rounds 3] [--seconds 15]
        [--no-pages]

Each run is a process of its own, and the variants take turns. "metrics" is scraped and "page" asks `/state` once a
second; "eventlog" writes `EventLog` to a file; "tracing" is `Tracing` with an SDK that samples every record out.
"watched" is all of them without tracing, "all" with it. The body reads one by one, with `async for`, or up to 500 with
each `getmany`; it does nothing with a record, or parses JSON for so long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from typing import Any

import uvicorn

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.devkafka import Cluster
from aiogroup.eventlog import EventLog
from benchmarks.backlog import Backlog
from benchmarks.meter import Ticker
from benchmarks.turns import measure, take_turns
from benchmarks.work import document, items_in_us

VARIANTS = ("alone", "service", "metrics", "page", "eventlog", "tracing", "watched", "all")
TRACED = ("tracing", "all")
LOGGED = ("eventlog", "watched", "all")
ASKED = {"metrics": ["/metrics"], "page": ["/state"], "watched": ["/metrics", "/state"], "all": ["/metrics", "/state"]}
PAGES, PARTITIONS = 50, 1_000
RECORDS, BYTES = 300_000, 100
READ_S = 3.0
"""The topic is read again from its beginning until this is over."""


def tracing() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    from aiogroup.otel import Tracing

    return Tracing(TracerProvider(sampler=ALWAYS_OFF))


async def ask(service: Service, path: str) -> None:
    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "http_version": "1.1"}
    await service(scope, receive, send)


async def keep_asking(service: Service, path: str) -> None:
    while True:
        await ask(service, path)
        await asyncio.sleep(1)


class Reading:
    """A body that reads the topic again and again until `READ_S` is over, and what it found."""

    def __init__(self, items: int) -> None:
        self.found: dict[str, float] = {}
        self.ended = asyncio.Event()
        self._items = items
        self._text = document(items)

    async def one_by_one(self, consumer: Consumer) -> None:
        items, text = self._items, self._text
        count, left = 0, RECORDS
        wall = cpu = 0.0
        async for _ in consumer:
            if items:
                json.loads(text)
            if not count:
                wall, cpu = time.perf_counter(), time.process_time()
            count += 1
            left -= 1
            if not left:
                left = RECORDS
                await consumer.seek_to_beginning(*consumer.assignment())
            if not count % 1_000 and time.perf_counter() - wall >= READ_S:
                self._end(count - 1, wall, cpu)
                return

    async def in_batches(self, consumer: Consumer) -> None:
        left = RECORDS - await self._batch(consumer)
        count, wall, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < READ_S:
            if not left:
                left = RECORDS
                await consumer.seek_to_beginning(*consumer.assignment())
            came = await self._batch(consumer)
            count += came
            left -= came
        self._end(count, wall, cpu)

    async def _batch(self, consumer: Consumer) -> int:
        came = 0
        for records in (await consumer.getmany(timeout_ms=1_000)).values():
            came += len(records)
            for _ in records if self._items else ():
                json.loads(self._text)
        return came

    def _end(self, count: int, wall: float, cpu: float) -> None:
        took, used = time.perf_counter() - wall, time.process_time() - cpu
        self.found = {"records_per_s": round(count / took), "cpu_us": 1e6 * used / count}
        self.ended.set()


async def read(variant: str, servers: str, topic: str, by: str, items: int) -> dict[str, Any]:
    reading = Reading(items)
    body = {"async-for": reading.one_by_one, "getmany": reading.in_batches}[by]
    async with AsyncExitStack() as stack:
        observers: list[Any] = [tracing()] if variant in TRACED else []
        if variant in LOGGED:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            observers.append(await stack.enter_async_context(EventLog(folder)))

        def make() -> Consumer:
            settings = {"auto_offset_reset": "earliest", "group_id": f"{variant}-{time.time_ns()}"}
            return Consumer(topic, bootstrap_servers=servers, observers=observers, **settings)

        ticker = Ticker()
        tasks = []
        if variant in ("alone", "tracing", "eventlog"):
            consumer = await stack.enter_async_context(make())
            ticker.start()
            tasks.append(asyncio.get_running_loop().create_task(body(consumer)))
        else:
            service = Service(loop=Loop(make, body, may_end=True), access=lambda _: True, page=True)
            await stack.enter_async_context(service.running())
            ticker.start()
            paths = ASKED.get(variant, [])
            tasks += [asyncio.get_running_loop().create_task(keep_asking(service, path)) for path in paths]
        await reading.ended.wait()
        await ticker.stop()
        for each in tasks:
            each.cancel()
    return {**reading.found, "own_max_ms": round(max(ticker.own_ms), 1)}


async def serve(servers: str, topic: str, seconds: float) -> dict[str, Any]:
    """Serve the page under uvicorn to whoever connects; the CPU of `seconds`, and the worst stall of the loop."""

    async def body(consumer: Consumer) -> None:
        async for _ in consumer:
            pass

    def make() -> Consumer:
        return Consumer(topic, bootstrap_servers=servers, group_id=f"pages-{time.time_ns()}")

    service = Service(loop=Loop(make, body), access=lambda _: True, page=True)
    server = uvicorn.Server(uvicorn.Config(service, port=0, log_level="warning"))
    serving = asyncio.get_running_loop().create_task(server.serve())
    while not server.started or not service["loop"].health().is_ready:  # noqa: ASYNC110 (two conditions)
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    found = {}
    for name, pages in (("quiet", 0), ("pages", PAGES)):
        process = None
        if pages:
            command = [sys.executable, "-m", "benchmarks.serving", "look", str(port), str(pages)]
            process = await asyncio.create_subprocess_exec(*command)
            await asyncio.sleep(3)
        ticker, cpu = Ticker(), time.process_time()
        ticker.start()
        await asyncio.sleep(seconds)
        await ticker.stop()
        found[name] = {
            "core_percent": round(100 * (time.process_time() - cpu) / seconds, 1),
            "own_max_ms": round(max(ticker.own_ms), 1),
            "late_max_ms": round(max(ticker.late_ms), 1),
        }
        if process is not None:
            process.kill()
            await process.wait()
    server.should_exit = True
    await serving
    return found


async def look(port: int, pages: int) -> None:
    """As many pages as that: each asks for what is newer, once a second, on a connection of its own."""

    async def page(number: int) -> None:
        after = samples_after = 0
        await asyncio.sleep(number / pages)
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            path = f"/state?after={after}&samples_after={samples_after}"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            body = (await reader.read()).partition(b"\r\n\r\n")[2]
            writer.close()
            if number == 0 or not after:
                state = json.loads(body)
                after = max([after, *(each["number"] for each in state["events"])])
            samples_after = time.time_ns() // 1_000_000 - 2_000
            await asyncio.sleep(1)

    await asyncio.gather(*(page(number) for number in range(pages)))


def compare(variants: list[str], by: str, work_us: list[int], rounds: int) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        Backlog("read", 4, RECORDS, BYTES).write(cluster)
        for us in work_us:
            items = items_in_us(us)
            runs: dict[str, list[dict[str, Any]]] = {each: [] for each in variants}
            for variant, run in take_turns(
                variants,
                rounds,
                lambda each, items=items: measure("serving", "read", (each, servers, "read", by, items)),
            ):
                runs[variant].append(run)
                print(us, variant, run, flush=True)
            print(f"{us} us of work with each record:")
            print(table(runs), flush=True)


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    medians = {
        variant: {name: statistics.median(each[name] for each in of) for name in ("records_per_s", "cpu_us")}
        for variant, of in runs.items()
    }
    first = next(iter(medians.values()))
    lines = []
    for variant, of in medians.items():
        rate, cpu = of["records_per_s"], of["cpu_us"]
        shares = f"({rate / first['records_per_s']:.2f}) {cpu:6.2f} us of CPU ({first['cpu_us'] / cpu:.2f})"
        stall = max(each["own_max_ms"] for each in runs[variant])
        lines.append(f"{variant:8} {rate:>9,.0f}/s {shares}, worst stall {stall} ms")
    return "\n".join(lines)


def pages(seconds: float) -> None:
    with Cluster() as cluster:
        cluster.create_topic("wide", PARTITIONS)
        found = measure("serving", "serve", (cluster.bootstrap_servers, "wide", seconds))
    print(f"{PAGES} pages on {PARTITIONS} partitions:", found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*")
    parser.add_argument("--only", default=",".join(VARIANTS), help="the first one is what the others are compared with")
    parser.add_argument("--by", choices=("async-for", "getmany"), default="async-for")
    parser.add_argument("--work-us", default="0", help="as many tables")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--no-pages", action="store_true")
    given = parser.parse_args()
    match given.what:
        case ["read", variant, servers, topic, by, items]:
            print(json.dumps(asyncio.run(read(variant, servers, topic, by, int(items)))))
        case ["serve", servers, topic, seconds]:
            print(json.dumps(asyncio.run(serve(servers, topic, float(seconds)))))
        case ["look", port, pages_count]:
            asyncio.run(look(int(port), int(pages_count)))
        case _:
            compare(given.only.split(","), given.by, [int(each) for each in given.work_us.split(",")], given.rounds)
            if not given.no_pages:
                pages(given.seconds)


if __name__ == "__main__":
    main()
