"""The same service under each server, and in each framework under one of them: from the start to SIGTERM."""

from __future__ import annotations

import re
import signal

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.test_examples import ask, members_count
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
