"""One process of `benchmarks.enduring`: a service under uvicorn, and the faults that its application can make.

Its settings are environment variables. Each record that was processed is a line `number milliseconds` of a file.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.eventlog import EventLog

TOPIC, GROUP, LOOP = "orders", "billing", "billing"
RECORD_S = 0.001
SETTINGS = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
    "max_poll_interval_ms": 15_000,
    "partition_assignment_strategy": ("range",),  # eager: every rebalance is seen by all members
    "enable_parallel_rebalance": True,
    "parallel_min_backlog": 200,
}
STOP_MS = 15_000
TOKEN = b"Bearer enduring"


class Faults:
    """What the next record meets."""

    def __init__(self) -> None:
        self.hang_s = 0.0
        self.block_s = 0.0
        self.raises_count = 0

    async def meet(self) -> None:
        if self.raises_count:
            self.raises_count -= 1
            raise ValueError("this record cannot be charged")
        if self.block_s:
            block_s, self.block_s = self.block_s, 0.0
            time.sleep(block_s)  # noqa: ASYNC251 (that is the fault)
        if self.hang_s:
            hang_s, self.hang_s = self.hang_s, 0.0
            await asyncio.sleep(hang_s)


def application(name: str, folder: Path) -> FastAPI:
    log, faults = EventLog(folder / f"events-{name}.jsonl", interval_ms=1_000), Faults()

    def make() -> Consumer:
        servers, static = os.environ["SERVERS"], os.environ.get("STATIC")
        given = {"bootstrap_servers": servers, "group_id": GROUP, "client_id": name, **SETTINGS}
        return Consumer(TOPIC, group_instance_id=static, observers=[log], **given)

    async def work(consumer: Consumer) -> None:
        with (folder / f"processed-{name}-{os.getpid()}").open("a", buffering=1) as file:
            async for record in consumer:
                await faults.meet()
                await asyncio.sleep(RECORD_S)
                file.write(f"{int(record.value)} {time.time_ns() // 1_000_000}\n")

    service = Service(
        page=True,
        access=lambda scope: dict(scope["headers"]).get(b"authorization") == TOKEN,
        stop_timeout_ms=STOP_MS,
        **{LOOP: Loop(make, work)},
    )
    app = FastAPI(lifespan=service.lifespan)
    app.mount("/aiogroup", service)

    @app.get("/fault")
    async def fault(hang_s: float = 0, block_s: float = 0, raises_count: int = 0) -> str:
        faults.hang_s, faults.block_s, faults.raises_count = hang_s, block_s, raises_count
        return "the next record meets it"

    @app.get("/subscribe")
    async def subscribe(also: str = "") -> str:
        service[LOOP].consumer.subscribe([TOPIC, also] if also else [TOPIC])
        return "subscribed"

    @app.get("/stop")
    async def stop() -> str:
        asyncio.get_running_loop().create_task(service[LOOP].consumer.stop(10_000))
        return "it stops"

    return app


if __name__ == "__main__":
    uvicorn.run(
        application(os.environ["NAME"], Path(os.environ["FOLDER"])),
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        access_log=False,
        timeout_graceful_shutdown=5,
    )
