"""A worker inside FastAPI: the lifespan starts the consumer and the task that processes records.

    python examples/fastapi_worker.py           # PORT=8000; or: uvicorn --app-dir examples fastapi_worker:app

`/livez` fails when only a restart helps, `/healthz` (also `/readyz`) whenever no records can flow: during a rebalance,
while brokers do not answer, or when a topic does not exist, the worker is alive but not ready. SIGTERM finishes the
record in hand, commits, leaves the group and exits 0 (the command `uvicorn` exits by the signal instead).
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Response

from aiogroup import Consumer, Record


async def handle(record: Record) -> None:
    """Your work. An exception ends the task below, and with it the health of the worker."""
    app.state.handled_count += 1


async def consume(consumer: Consumer) -> None:
    try:
        await consumer.start()
        async for record in consumer:
            await handle(record)
    except Exception:
        logging.getLogger("worker").exception("the processing task died")
        raise


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    consumer = Consumer(
        os.environ.get("KAFKA_TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
        group_id=os.environ.get("KAFKA_GROUP_ID", "worker"),
        auto_offset_reset="earliest",
    )
    work = asyncio.create_task(consume(consumer))  # joining may take long: the probes answer meanwhile
    app.state.consumer, app.state.work, app.state.handled_count = consumer, work, 0
    yield
    await consumer.stop(timeout_ms=20_000)  # below Kubernetes' terminationGracePeriodSeconds of 30 s
    work.cancel()
    await asyncio.wait({work})


app = FastAPI(lifespan=lifespan)


@app.get("/livez")
async def livez(response: Response) -> dict[str, object]:
    health, work = app.state.consumer.health(), app.state.work
    died = repr(work.exception()) if work.done() and not work.cancelled() else None
    response.status_code = 200 if health.is_alive and died is None else 503
    return {"status": health.status, "why": health.why, "processing_died": died}


@app.get("/readyz")
@app.get("/healthz")
async def healthz(response: Response) -> dict[str, object]:
    told = await livez(response)
    if not app.state.consumer.health().is_ready:
        response.status_code = 503
    missing_topics = app.state.consumer.health().missing_topics
    return {**told, "missing_topics": missing_topics, "handled_count": app.state.handled_count}


@app.get("/lag")
async def lag() -> dict[str, object]:
    """The lag from local knowledge, without asking a broker; `null` means "not known", which is not 0."""
    lags = app.state.consumer.lags() if app.state.consumer.assignment() else {}
    total = sum(lags.values()) if lags and None not in lags.values() else None
    return {"lag": total, "partitions": {f"{tp.topic}-{tp.partition}": each for tp, each in lags.items()}}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn ends in order, then raises the signal again: exit 0
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), access_log=False)
