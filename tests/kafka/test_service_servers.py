"""The same service under each server, and in each framework under one of them: from the start to SIGTERM."""

from __future__ import annotations

import asyncio
import re
import signal
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.test_examples import ask, members_count
from tests.support.kafka import eventually
from tests.support.programs import LIMIT_S, ROOT

STOP_S = 20
PAGE = (ROOT / "docs/service.md").read_text()
ADDRESS = r"(?:[Rr]unning on|Listening at:) (http://127\.0\.0\.1:\d+)"
ANYWHERE = "127.0.0.1:0"
SERVERS = {
    "uvicorn": ("-m", "uvicorn", "--port", "0"),
    "hypercorn": ("-m", "hypercorn", "--bind", ANYWHERE),
    "hypercorn-alone": ("-m", "hypercorn", "--bind", ANYWHERE, "--workers", "0"),
    "gunicorn": ("-m", "gunicorn", "--bind", ANYWHERE, "--worker-class", "uvicorn_worker.UvicornWorker"),
}
ENDS_WITH = {"uvicorn": -signal.SIGTERM, "hypercorn": 0, "hypercorn-alone": 0, "gunicorn": 0}
REFUSES_WITH = {"uvicorn": {3}, "hypercorn": {0, 1}, "hypercorn-alone": {1}, "gunicorn": {3}}
"""A parent process of hypercorn ends with 0 where its worker could not begin."""
FRAMEWORKS = {
    "fastapi": "tests.support.served:app",
    "starlette": "tests.support.served_frameworks:starlette_app",
    "litestar": "tests.support.served_frameworks:litestar_app",
    "alone": "tests.support.served:service",
}


@pytest.fixture
def serve(run, tmp_path):
    def start(place, server, app, **variables):
        paths = f"{tmp_path}:{ROOT}"
        return run(place, *SERVERS[server], app, PYTHONPATH=paths, PROCESSED=str(tmp_path / "processed"), **variables)

    return start


def from_the_page(place, folder):
    """The first program of docs/service.md, with a topic, a group and a broker of its own."""
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    given = '"orders", group_id="audit"'
    assert program.count(given) == 1
    servers = place.cluster.bootstrap_servers
    mine = f'{place.topic!r}, group_id={place.group!r}, auto_offset_reset="earliest", bootstrap_servers={servers!r}'
    (folder / "example.py").write_text(program.replace(given, mine))
    return "example:app"


@pytest.mark.parametrize("server", SERVERS)
async def test_the_example_of_the_page_under_each_server(make_place, serve, tmp_path, server):
    place = make_place(2)
    await place.produce(range(3))
    program = serve(place, server, from_the_page(place, tmp_path))
    async with httpx.AsyncClient(base_url=await program.says(ADDRESS), timeout=LIMIT_S) as client:
        lags = {f"{place.topic}-0": 0, f"{place.topic}-1": 0}
        await ask(client, "/lag", lambda response: response.json() == lags)
        ready, live = await client.get("/aiogroup/readyz"), await client.get("/aiogroup/livez")
        assert (ready.status_code, live.status_code, live.json()["state"]) == (200, 200, "ready")
        assert (await client.get("/aiogroup/state")).status_code == 403
        families = text_string_to_metric_families((await client.get("/aiogroup/metrics")).text)
        assert "kafka_consumer_coordinator_assigned_partitions" in {each.name for each in families}
    assert await program.end(signal.SIGTERM, STOP_S) == ENDS_WITH[server], program.output
    assert "Traceback" not in program.output
    assert await members_count(place) == 0, "it left, and its session did not have to end"
    assert await place.committed() == 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_service_in_each_framework(make_place, serve, tmp_path, framework):
    place = make_place()
    await place.produce(range(5))
    program = serve(place, "uvicorn", FRAMEWORKS[framework], OPEN="1")
    prefix = "" if framework == "alone" else "/aiogroup"
    async with httpx.AsyncClient(base_url=await program.says(ADDRESS), timeout=LIMIT_S) as client:
        await ask(client, f"{prefix}/readyz", lambda response: response.status_code == 200)

        def has_read_all(response):
            return [each["position"] for each in response.json()["loops"]["loop"]["partitions"]] == [5]

        await ask(client, f"{prefix}/state", has_read_all)
        page = await client.get(f"{prefix}/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    await program.end(signal.SIGTERM, STOP_S)
    assert "Traceback" not in program.output
    assert await members_count(place) == 0
    assert await place.committed() == 5


@pytest.mark.parametrize("server", SERVERS)
async def test_a_wrong_setting_ends_each_server(make_place, serve, server):
    program = serve(make_place(), server, FRAMEWORKS["fastapi"], SETTINGS='{"session_timeout_ms": -1}')
    assert await asyncio.to_thread(program.process.wait, LIMIT_S) in REFUSES_WITH[server], program.output
    assert "session_timeout_ms=-1" in program.output


@pytest.mark.parametrize("server", ["gunicorn", "hypercorn-alone"])
async def test_drain_on_signal_begins_beside_an_open_request_of_other_servers(make_place, serve, server):
    place = make_place()
    program = serve(place, server, FRAMEWORKS["fastapi"], SERVICE='{"drain_on_signal": true}')
    async with httpx.AsyncClient(base_url=await program.says(ADDRESS), timeout=LIMIT_S) as client:
        await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        slow = asyncio.ensure_future(client.get("/slow"))
        await program.says("slow request begun")
        await program.end(signal.SIGTERM, STOP_S)
        await asyncio.wait({slow})  # hypercorn gives it 3 s, which is what it takes
        assert slow.exception() is not None or slow.result().status_code == 200
    said = program.output
    assert said.index("consumer_stopped") < said.find("slow request done") % len(said)


async def test_a_worker_whose_loop_died_is_replaced_and_the_other_is_not(make_place, run, tmp_path):
    place, began = make_place(2), time.monotonic()
    program = run(
        place, *SERVERS["uvicorn"], "--workers", "2", FRAMEWORKS["fastapi"], PYTHONPATH=str(ROOT),
        PROCESSED=str(tmp_path / "processed"), POISON=str(tmp_path / "poison"), SERVICE='{"when_dead": "exit"}',
    )  # fmt: skip
    await program.says("Application startup complete", times=2)

    async def are_two():
        return await members_count(place) == 2

    await eventually(are_two, LIMIT_S)
    await place.produce(["poison"], 0)
    dead = int(await program.says(r"\[(\d+)\] loop_failed"))
    await program.says(r"Started server process", times=3)
    assert time.monotonic() - began > 9, "a process ends itself when it is 10 s old, and not before"
    await eventually(are_two, LIMIT_S)
    await place.produce(["last"], 1)
    await eventually(lambda: len((tmp_path / "processed").read_text().splitlines()) == 2, LIMIT_S)
    started = {int(each) for each in re.findall(r"Started server process \[(\d+)\]", program.output)}
    finished = {int(each) for each in re.findall(r"Finished server process \[(\d+)\]", program.output)}
    assert (dead in started, len(started), finished) == (True, 3, {dead})
    assert sorted((tmp_path / "processed").read_text().splitlines()) == ["0 0", "1 0"]
    await program.end(signal.SIGTERM, STOP_S)
    assert await members_count(place) == 0
