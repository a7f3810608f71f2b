"""Five processes with a service are restarted in turns, while HTTP requests go to those that are ready.

tests/asgi/test_rolling_restart.py has the same in virtual time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

from tests.support.kafka import QUICK, eventually
from tests.support.programs import LIMIT_S, ROOT
from tests.support.rolled import POLICIES

PODS_COUNT, PARTITIONS_COUNT = 5, 10
CLIENTS_COUNT, PER_SECOND = 5, 100
RECORD_S = 0.3
SETTINGS = {**QUICK, "partition_assignment_strategy": ["range"]}
"""Eager: all members give up all partitions, and each waits for the slowest one's record."""


class Pod:
    """A process with a service."""

    def __init__(self, process, port):
        self.process = process
        self.port = port

    def is_gone(self):
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        return False


class Client:
    """Asks one thing at a time, on a connection to each process that it keeps."""

    def __init__(self):
        self._connections = {}

    async def finds_ready(self, pod, policy):
        """Whether one request is answered with 200; an answer is waited for."""
        try:
            return await self._ask(pod, policy) == "200"
        except (OSError, asyncio.IncompleteReadError):
            self._forget(pod)
            return False

    async def find_all_ready(self, pods):
        return all([await self.finds_ready(each, policy) for each in pods for policy in POLICIES])

    async def keep_asking(self, pods, policy, counts):
        """Go to the pods in turns; to the next one if one is not ready."""
        loop = asyncio.get_running_loop()
        due, number = loop.time(), 0
        while True:
            number += 1
            counts["all"] += 1
            counts["none"] += not await self._find_one(pods, policy, number)
            due = max(due + CLIENTS_COUNT / PER_SECOND, loop.time())
            await asyncio.sleep(due - loop.time())

    def close(self):
        for pod in list(self._connections):
            self._forget(pod)

    async def _find_one(self, pods, policy, first):
        for at in range(PODS_COUNT):
            if await self.finds_ready(pods[(first + at) % PODS_COUNT], policy):
                return True
        return False

    async def _ask(self, pod, policy):
        if pod not in self._connections:
            self._connections[pod] = await asyncio.open_connection("127.0.0.1", pod.port)
        reader, writer = self._connections[pod]
        writer.write(f"GET /{policy}/readyz HTTP/1.1\r\nhost: pod\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        return head.split()[1]

    def _forget(self, pod):
        if pod in self._connections:
            self._connections.pop(pod)[1].close()


@asynccontextmanager
async def beginning(place):
    """A function that begins a process."""
    variables = {
        "KAFKA_BOOTSTRAP_SERVERS": place.cluster.bootstrap_servers,
        "KAFKA_TOPIC": place.topic,
        "KAFKA_GROUP_ID": place.group,
        "SETTINGS": json.dumps(SETTINGS),
        "RECORD_S": str(RECORD_S),
    }
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.rolled", cwd=ROOT, env={**os.environ, **variables},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip

    async def begin():
        parent.stdin.write(b"\n")
        async with asyncio.timeout(LIMIT_S):
            return Pod(*map(int, (await parent.stdout.readline()).split()))

    try:
        yield begin
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        await parent.wait()


async def test_one_is_always_ready_unless_it_is_taken_for_flowing(make_place):
    place = make_place(PARTITIONS_COUNT)
    async with place.producer() as producer:
        for number in range(1_000):
            await producer.send(place.topic, b"", partition=number % PARTITIONS_COUNT)
    counts = {policy: {"all": 0, "none": 0} for policy in POLICIES}
    clients = {Client(): policy for policy in POLICIES * CLIENTS_COUNT}
    platform = Client()
    async with beginning(place) as begin:
        pods = [await begin() for _ in range(PODS_COUNT)]
        await eventually(lambda: platform.find_all_ready(pods), LIMIT_S)
        asking = [
            asyncio.create_task(each.keep_asking(pods, policy, counts[policy])) for each, policy in clients.items()
        ]
        for number, old in enumerate(list(pods)):
            os.kill(old.process, signal.SIGTERM)
            await eventually(old.is_gone, LIMIT_S)
            pods[number] = await begin()
            await eventually(lambda number=number: platform.find_all_ready([pods[number]]), LIMIT_S)
        for each in asking:
            assert not each.done(), each.exception()
            each.cancel()
        await asyncio.wait(asking)
        for each in (platform, *clients):
            each.close()
    assert counts["assigned"]["all"] > PER_SECOND
    assert counts["assigned"]["none"] == 0
    assert counts["flowing"]["none"] > 0
