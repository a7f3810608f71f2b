"""How long `stop` takes with the broker alive, frozen and killed: `python -m benchmarks.stopping [--quick]`.

With a client's name it is one run of that client: it reads, prints that it is ready, and stops on a line of standard
input. The process that started it decides what happens to the broker in between.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from aiogroup.devkafka import Cluster, Node
from benchmarks import clients as c
from benchmarks.backlog import Backlog
from benchmarks.results import Table
from benchmarks.turns import rotated

CLIENTS = (c.AIOKAFKA_MANY, c.AIO_CONSUMER, c.CONSUMER, c.MANY)
QUICK_CLIENTS = (c.AIOKAFKA_MANY, c.CONSUMER, c.MANY)
STATES = ("alive", "frozen", "killed")
LIMIT_S, QUICK_LIMIT_S = 45.0, 3.0
READ = 1_000
READY_IN_S = 60.0
COLUMNS = (
    ("took_ms", "ms", "median"),
    ("took_ms", "ms, of all", "worst"),
    ("given_up", "ended by the limit", "worst"),
    ("load", "load", "median"),
)


def table() -> Table:
    return Table("stop", COLUMNS)


def scenario(state: str) -> str:
    return f"stop, broker {state}"


async def one(name: str, servers: str, topic: str) -> None:
    client = c.make(name, c.Plan(servers, (topic,), f"bench-{uuid.uuid4().hex[:8]}"))
    await client.start()
    count = 0
    while count < READ:
        count += len(await client.some())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    at = time.perf_counter()
    problem = ""
    try:
        await client.stop()
    except Exception as error:  # noqa: BLE001 (other clients may raise anything: they have stopped)
        problem = repr(error)
    print(json.dumps({"took_ms": round((time.perf_counter() - at) * 1000), "raised": problem}), flush=True)
    os._exit(0)  # a client's leftovers could keep the process alive, and are not measured


def measure(name: str, state: str, cluster: Cluster, topic: str, limit_s: float) -> dict[str, Any]:
    [node] = cluster.nodes
    command = [sys.executable, "-m", "benchmarks.stopping", name]
    command += ["--servers", cluster.bootstrap_servers, "--topic", topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            _wait_until_ready(process, name)
            with _broker(node, state):
                told = _answer(process, limit_s)
        finally:
            process.kill()
    took = {"took_ms": round(limit_s * 1000), "given_up": 1} if told is None else json.loads(told) | {"given_up": 0}
    return {**took, "load": os.getloadavg()[0]}


def _wait_until_ready(process: subprocess.Popen[str], name: str) -> None:
    assert process.stdout is not None
    timer = threading.Timer(READY_IN_S, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if line != "ready\n":
        raise SystemExit(f"{name}: did not get its records in {READY_IN_S:.0f} s")


def _answer(process: subprocess.Popen[str], limit_s: float) -> str | None:
    """The line that the process prints when it has stopped. `None` if it prints none in time: then it is killed before
    the broker comes back.
    """
    try:
        return process.communicate("stop\n", timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return None


@contextlib.contextmanager
def _broker(node: Node, state: str) -> Iterator[None]:
    match state:
        case "frozen":
            node.pause()
        case "killed":
            node.kill()
    try:
        yield
    finally:
        match state:
            case "frozen":
                node.resume()
            case "killed":
                node.start()


def stops(limit_s: float, rounds: int, into: Table, clients: Sequence[str] = CLIENTS) -> Iterator[str]:
    """Uses a cluster of its own, whose node is frozen and killed."""
    with Cluster() as cluster:
        backlog = Backlog("stop", 4, 10 * READ, 100)
        backlog.write(cluster)
        for state in STATES:
            for _, name in rotated(clients, rounds):
                into.row(scenario(state), name).runs.append(measure(name, state, cluster, backlog.topic, limit_s))
    yield into.markdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", nargs="?", choices=CLIENTS)
    parser.add_argument("--servers")
    parser.add_argument("--topic")
    parser.add_argument("--quick", action="store_true", help="one round, and a lower limit")
    args = parser.parse_args()
    if args.client:
        asyncio.run(one(args.client, args.servers, args.topic))
    limit_s, rounds, clients = (QUICK_LIMIT_S, 1, QUICK_CLIENTS) if args.quick else (LIMIT_S, 3, CLIENTS)
    for part in stops(limit_s, rounds, table(), clients):
        print(part)


if __name__ == "__main__":
    main()
