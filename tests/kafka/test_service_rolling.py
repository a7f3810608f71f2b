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

PODS_COUNT, PARTITIONS_COUNT, PER_SECOND = 5, 10, 100
RECORD_S = 0.2
SETTINGS = {**QUICK, "partition_assignment_strategy": ["range"]}
"""Eager: all members give up all partitions, and each waits for the slowest one's record."""


class Pod:
    """A process, and a connection for each policy to ask it."""

    def __init__(self, process, port):
        self.process = process
        self._port = port
        self._connections = {}
        self._locks = {policy: asyncio.Lock() for policy in POLICIES}

    async def is_ready(self, policy):
        """Whether one request is answered with 200; an answer is waited for."""
        async with self._locks[policy]:
            try:
                return await self._ask(policy) == "200"
            except (OSError, asyncio.IncompleteReadError):
                self._forget(policy)
                return False

    async def _ask(self, policy):
        if policy not in self._connections:
            self._connections[policy] = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._connections[policy]
        writer.write(f"GET /{policy}/readyz HTTP/1.1\r\nhost: pod\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        return head.split()[1]

    def is_gone(self):
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        return False

    def close(self):
        for policy in list(self._connections):
            self._forget(policy)

    def _forget(self, policy):
        if policy in self._connections:
            self._connections.pop(policy)[1].close()


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


async def balance(pods, policy, counts):
    """Requests to the pods in turns; to the next one if one is not ready."""
    loop = asyncio.get_running_loop()
    due, number = loop.time(), 0
    while True:
        number += 1
        for at in range(PODS_COUNT):
            if await pods[(number + at) % PODS_COUNT].is_ready(policy):
                break
        else:
            counts["none"] += 1
        counts["all"] += 1
        due = max(due + 1 / PER_SECOND, loop.time())
        await asyncio.sleep(due - loop.time())


async def all_ready(pods):
    return all([await each.is_ready(policy) for each in pods for policy in POLICIES])


async def test_one_is_always_ready_unless_it_is_taken_for_flowing(make_place):
    place = make_place(PARTITIONS_COUNT)
    async with place.producer() as producer:
        for number in range(1_000):
            await producer.send(place.topic, b"", partition=number % PARTITIONS_COUNT)
    counts = {policy: {"all": 0, "none": 0} for policy in POLICIES}
    async with beginning(place) as begin:
        pods = [await begin() for _ in range(PODS_COUNT)]
        await eventually(lambda: all_ready(pods), LIMIT_S)
        balancing = [asyncio.create_task(balance(pods, policy, counts[policy])) for policy in POLICIES]
        for number, old in enumerate(list(pods)):
            os.kill(old.process, signal.SIGTERM)
            await eventually(old.is_gone, LIMIT_S)
            old.close()
            pods[number] = await begin()
            await eventually(lambda number=number: all_ready([pods[number]]), LIMIT_S)
        for each in balancing:
            assert not each.done(), each.exception()
            each.cancel()
        await asyncio.wait(balancing)
        for each in pods:
            each.close()
    assert counts["assigned"]["all"] > PER_SECOND
    assert counts["assigned"]["none"] == 0
    assert counts["flowing"]["none"] > 0
