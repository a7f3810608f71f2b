"""What a service costs: reading with everything on beside reading alone, and 50 live pages on 1,000 partitions.

    python -m benchmarks.serving [--records 300000] [--rounds 3] [--seconds 15]

Each run is a process of its own, and the variants take turns. "metrics" is scraped and "page" asks `/state` once a
second; "tracing" is `Tracing` with an SDK that samples every record out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
from aiokafka import AIOKafkaProducer

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.devkafka import Cluster
from benchmarks.meter import Ticker
from benchmarks.turns import measure, take_turns

VARIANTS = ("alone", "service", "metrics", "page", "tracing", "all")
PAGES, PARTITIONS = 50, 1_000
BYTES = b"x" * 100


def observers_of(variant: str) -> list[Any]:
    if variant not in ("tracing", "all"):
        return []
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    from aiogroup.otel import Tracing

    return [Tracing(TracerProvider(sampler=ALWAYS_OFF))]


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


async def read(variant: str, servers: str, topic: str, count: int) -> dict[str, Any]:
    """Read `count` records, from the first one on."""
    began, ended = [], asyncio.Event()

    async def body(consumer: Consumer) -> None:
        left = count
        async for _ in consumer:
            if not began:
                began.append((time.perf_counter(), time.process_time()))
            left -= 1
            if not left:
                began.append((time.perf_counter(), time.process_time()))
                ended.set()

    def make() -> Consumer:
        settings = {"auto_offset_reset": "earliest", "group_id": f"{variant}-{time.time_ns()}"}
        return Consumer(topic, bootstrap_servers=servers, observers=observers_of(variant), **settings)

    async with AsyncExitStack() as stack:
        ticker = Ticker()
        tasks = []
        if variant in ("alone", "tracing"):
            consumer = await stack.enter_async_context(make())
            ticker.start()
            tasks.append(asyncio.get_running_loop().create_task(body(consumer)))
        else:
            service = Service(loop=Loop(make, body), access=lambda _: True, page=True)
            await stack.enter_async_context(service.running())
            ticker.start()
            paths = {"metrics": ["/metrics"], "page": ["/state"], "all": ["/metrics", "/state"]}.get(variant, [])
            tasks += [asyncio.get_running_loop().create_task(keep_asking(service, path)) for path in paths]
        await ended.wait()
        await ticker.stop()
        for each in tasks:
            each.cancel()
    (wall, cpu), (wall_end, cpu_end) = began
    return {
        "records_per_s": round(count / (wall_end - wall)),
        "cpu_us": round(1e6 * (cpu_end - cpu) / count, 2),
        "own_max_ms": round(max(ticker.own_ms), 1),
    }


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


async def fill(servers: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20, max_batch_size=200_000) as producer:
        for _ in range(count):
            await producer.send(topic, BYTES)
        await producer.flush()


def compare(records: int, rounds: int, seconds: float) -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("read", 4)
        cluster.create_topic("wide", PARTITIONS)
        asyncio.run(fill(servers, "read", records))
        runs: dict[str, list[dict[str, Any]]] = {each: [] for each in VARIANTS}
        for variant, run in take_turns(
            VARIANTS, rounds, lambda each: measure("serving", "read", (each, servers, "read", records))
        ):
            runs[variant].append(run)
            print(variant, run, flush=True)
        alone = statistics.median(each["cpu_us"] for each in runs["alone"])
        for variant, of in runs.items():
            rate, cpu = (statistics.median(each[name] for each in of) for name in ("records_per_s", "cpu_us"))
            stall = max(each["own_max_ms"] for each in of)
            print(f"{variant:8} {rate:>9,.0f}/s {cpu:6.2f} us of CPU ({cpu / alone:.2f}), worst stall {stall} ms")
        print(f"{PAGES} pages on {PARTITIONS} partitions:", measure("serving", "serve", (servers, "wide", seconds)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    given = parser.parse_args()
    match given.what:
        case ["read", variant, servers, topic, count]:
            print(json.dumps(asyncio.run(read(variant, servers, topic, int(count)))))
        case ["serve", servers, topic, seconds]:
            print(json.dumps(asyncio.run(serve(servers, topic, float(seconds)))))
        case ["look", port, pages]:
            asyncio.run(look(int(port), int(pages)))
        case _:
            compare(given.records, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
