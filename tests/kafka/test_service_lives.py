"""`aiogroup.asgi` under a real uvicorn, in a process of its own, on a broker over TCP."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time

import httpx
import pytest

from tests.kafka.test_examples import ask, members_count
from tests.support.programs import LIMIT_S, ROOT

STOP_S, SLOW_S = 20, 3
COUNT = 600


class Served:
    def __init__(self, run, place, tmp_path, *options, **variables):
        self.processed_in = tmp_path / "processed"
        self.program = run(
            place, "-m", "uvicorn", "tests.support.served:app", "--port", "0", *options,
            PYTHONPATH=str(ROOT), PROCESSED=str(self.processed_in), **variables,
        )  # fmt: skip

    async def client(self):
        url = await self.program.says(r"running on (http://127\.0\.0\.1:\d+)")
        return httpx.AsyncClient(base_url=url, timeout=LIMIT_S)

    @property
    def processed(self):
        if not self.processed_in.exists():
            return []
        return [tuple(map(int, line.split())) for line in self.processed_in.read_text().splitlines()]

    async def processes(self, count):
        until = time.monotonic() + LIMIT_S
        while len(self.processed) < count:
            assert time.monotonic() < until, self.program.output
            await asyncio.sleep(0.05)

    def at_ms(self, pattern):
        """When the program logged this first, in milliseconds since the epoch."""
        return next(int(1_000 * float(line.split()[0])) for line in self.program.output.splitlines() if pattern in line)


@pytest.fixture
def serve(run, tmp_path):
    return lambda place, *options, **variables: Served(run, place, tmp_path, *options, **variables)


async def test_sigterm_under_load_with_an_open_request_loses_and_repeats_nothing(make_place, serve):
    place = make_place(2)
    for partition in range(2):
        await place.produce(range(COUNT // 2), partition)
    first = serve(place)
    async with await first.client() as client:
        await first.processes(50)
        slow = asyncio.create_task(client.get("/slow"))
        await first.program.says("slow request begun")
        at = time.monotonic()
        assert await first.program.end(signal.SIGTERM, STOP_S + 10) == -signal.SIGTERM
        assert time.monotonic() - at < STOP_S + 5 + SLOW_S
        answer = await slow
        assert (answer.status_code, answer.json()) == (200, "done")
    assert await members_count(place) == 0, "it left, and its session did not have to end"
    processed = first.processed
    assert 50 <= len(processed) < COUNT or len(processed) == COUNT
    committed = [await place.committed(partition) or 0 for partition in range(2)]
    assert sorted(processed) == [(partition, n) for partition in range(2) for n in range(committed[partition])]
    second = serve(place)
    await second.processes(COUNT)
    assert await second.program.end(signal.SIGTERM, STOP_S + 10) == -signal.SIGTERM
    assert sorted(second.processed) == [(partition, n) for partition in range(2) for n in range(COUNT // 2)]


async def test_drain_on_signal_begins_beside_an_open_request(make_place, serve):
    place = make_place()
    served = serve(place, SERVICE='{"drain_on_signal": true}')
    async with await served.client() as client:
        await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        slow = asyncio.create_task(client.get("/slow"))
        await served.program.says("slow request begun")
        signalled_at_ms = int(1_000 * time.time())
        await served.program.end(signal.SIGTERM, STOP_S + 10)
        assert (await slow).status_code == 200
    assert served.at_ms("consumer_stopped") < served.at_ms("slow request done")
    assert served.at_ms("consumer_stopped") - signalled_at_ms < 1_500, (
        "100 ms, as tests/asgi has it, and a busy machine"
    )


async def test_an_open_stream_keeps_the_consumer_running_unless_the_server_has_a_limit(make_place, serve):
    place = make_place()
    served = serve(place)
    async with await served.client() as client:
        await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        async with client.stream("GET", "/stream") as response:
            lines = response.aiter_bytes()
            await anext(lines)
            served.program.process.send_signal(signal.SIGTERM)
            await served.program.says("Waiting for connections to close")
            with pytest.raises(subprocess.TimeoutExpired):
                await asyncio.to_thread(served.program.process.wait, 3)
            assert await members_count(place) == 1
    assert await asyncio.to_thread(served.program.process.wait, STOP_S) == -signal.SIGTERM
    limited = serve(place, "--timeout-graceful-shutdown", "1")
    async with await limited.client() as client:
        await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        async with client.stream("GET", "/stream") as response:
            lines = response.aiter_bytes()
            await anext(lines)
            await limited.program.end(signal.SIGTERM, 10)
    assert await members_count(place) == 0


async def test_the_command_line_prints_the_events_of_a_service(make_place, serve):
    place = make_place()
    served = serve(place, OPEN="1")
    async with await served.client() as client:
        await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        command = [sys.executable, "-m", "aiogroup", "events", f"{client.base_url}/aiogroup"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.returncode, done.stderr) == (0, "")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [each["number"] for each in events] == list(range(1, len(events) + 1))
        (completed,) = [each for each in events if each["event"] == "rebalance_completed"]
        assert (completed["partitions"], completed["group"]) == ([f"{place.topic}-0"], place.group)
        members = await ask(
            client, "/aiogroup/state", lambda response: response.json()["loops"]["loop"]["members"] is not None
        )
        (member,) = members.json()["loops"]["loop"]["members"]
        assert member["member_id"] == members.json()["loops"]["loop"]["member_id"]
    await served.program.end(signal.SIGTERM, STOP_S)


async def test_the_port_is_open_while_no_broker_answers(make_place, serve):
    served = serve(make_place(), KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    async with await served.client() as client:
        live, ready = await client.get("/aiogroup/livez"), await client.get("/aiogroup/readyz")
        assert (live.status_code, ready.status_code, ready.json()["state"]) == (200, 503, "starting")
    at = time.monotonic()
    await served.program.end(signal.SIGTERM, STOP_S)
    assert time.monotonic() - at < 5
