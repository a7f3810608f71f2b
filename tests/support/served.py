"""An application for tests of `aiogroup.asgi` under a server, in a process of its own.

Its settings are environment variables; each record that was processed is a line of the file `PROCESSED`. With `POISON`,
a file, the record `poison` raises the first time that a process handles it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service

logging.basicConfig(level=logging.INFO, format="%(created)f [%(process)d] %(message)s")
logging.getLogger("aiokafka").setLevel(logging.ERROR)


def is_first() -> bool:
    """Whether no process has handled the poison yet."""
    try:
        Path(os.environ["POISON"]).open("x").close()
    except FileExistsError:
        return False
    return True


async def process(consumer: Consumer) -> None:
    with Path(os.environ["PROCESSED"]).open("a", buffering=1) as file:  # noqa: ASYNC230 (a line each)
        async for record in consumer:
            if record.value == b"poison" and is_first():
                raise ValueError("poison")
            await asyncio.sleep(float(os.environ.get("RECORD_S", "0.002")))
            file.write(f"{record.partition} {record.offset}\n")


def make() -> Consumer:
    return Consumer(
        os.environ["KAFKA_TOPIC"],
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        group_id=os.environ["KAFKA_GROUP_ID"],
        auto_offset_reset="earliest",
        **json.loads(os.environ.get("SETTINGS", "{}")),
    )


access = (lambda scope: True) if "OPEN" in os.environ else None
service = Service(
    access=access, page=access is not None, loop=Loop(make, process), **json.loads(os.environ.get("SERVICE", "{}"))
)
app = FastAPI(lifespan=service.lifespan)
app.mount("/aiogroup", service)


@app.get("/slow")
async def slow() -> str:
    logging.getLogger("served").info("slow request begun")
    await asyncio.sleep(3)
    logging.getLogger("served").info("slow request done")
    return "done"


@app.get("/stream")
async def stream() -> StreamingResponse:
    async def lines():
        while True:
            yield b"line\n"
            await asyncio.sleep(0.1)

    return StreamingResponse(lines())
