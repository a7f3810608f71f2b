"""A worker inside FastAPI: `Service` runs the consumer for as long as the application lives, and answers probes.

    pip install '.[fastapi]'                    # in the clone
    python examples/fastapi_worker.py           # PORT=8000; or: uvicorn --app-dir examples fastapi_worker:app

The port is open at once. `/aiogroup/livez` fails when only a restart helps, `/aiogroup/readyz` until the group has
assigned partitions, and from the end of the consumer on. SIGTERM finishes the record in hand, commits, leaves the group
and exits 0 (the command `uvicorn` exits by the signal instead). docs/service.md has the rest.
"""

import os
import signal

import uvicorn
from fastapi import FastAPI

from aiogroup import Consumer, Record
from aiogroup.asgi import Loop, Service


async def handle(record: Record) -> None:
    """Your work. An exception ends the loop; it begins again a second later, with the same record."""


async def work(consumer: Consumer) -> None:
    async for record in consumer:
        await handle(record)


def make() -> Consumer:
    return Consumer(
        os.environ.get("KAFKA_TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
        group_id=os.environ.get("KAFKA_GROUP_ID", "worker"),
        auto_offset_reset="earliest",
    )


service = Service(worker=Loop(make, work))
app = FastAPI(lifespan=service.lifespan)
app.mount("/aiogroup", service)


@app.get("/lag")
async def lag() -> dict[str, int | None]:
    """The lag from local knowledge, without asking a broker; `null` means "not known", which is not 0."""
    return {f"{tp.topic}-{tp.partition}": each for tp, each in service["worker"].lags().items()}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn ends in order, then raises the signal again: exit 0
    port = int(os.environ.get("PORT", "8000"))
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, timeout_graceful_shutdown=5)
