"""Starts processes that each serve a service. They are forks of this process, so that imports happen only once.

Each line on its standard input starts a process, and is answered with the process's id and port. Each process runs the
same loop twice, in two groups: under `/assigned` with one policy, under `/flowing` with the other (with
`unready_after_ms=0`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service

POLICIES = ("assigned", "flowing")


async def handle(consumer: Consumer) -> None:
    async for _ in consumer:
        await asyncio.sleep(float(os.environ["RECORD_S"]))


def service_of(policy: str) -> Service:
    settings = json.loads(os.environ["SETTINGS"])
    servers, group_id = os.environ["KAFKA_BOOTSTRAP_SERVERS"], f"{os.environ['KAFKA_GROUP_ID']}-{policy}"

    def make() -> Consumer:
        return Consumer(os.environ["KAFKA_TOPIC"], bootstrap_servers=servers, group_id=group_id, **settings)

    return Service(ready=policy, unready_after_ms=0, metrics=False, loop=Loop(make, handle))


def serve(bound: socket.socket) -> None:
    assigned, flowing = (service_of(each) for each in POLICIES)

    @asynccontextmanager
    async def lifespan(app: Starlette):
        async with assigned.running(), flowing.running():
            yield

    routes = [Mount("/assigned", assigned), Mount("/flowing", flowing)]
    config = uvicorn.Config(Starlette(lifespan=lifespan, routes=routes), access_log=False, log_level="warning")
    uvicorn.Server(config).run([bound])


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended processes leave no zombies
    for _ in sys.stdin:
        with socket.socket() as bound:  # it refuses connections until the process serves
            bound.bind(("127.0.0.1", 0))
            if (process := os.fork()) == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                serve(bound)
                return
            sys.stdout.write(f"{process} {bound.getsockname()[1]}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
