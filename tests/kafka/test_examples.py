"""Each example runs as a user would run it: a process of its own against real Kafka."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.support.kafka import Place
from tests.support.programs import LIMIT_S

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def children_of(pid: int) -> list[str]:
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


async def members_count(place: Place) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=place.cluster.bootstrap_servers)
    await admin.start()
    try:
        (response,) = await admin.describe_consumer_groups([place.group])
    finally:
        await admin.close()
    (group,) = response.to_object()["groups"]
    return len(group["members"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_hello_prints_commits_and_leaves(make_place, run, number):
    place = make_place()
    await place.produce(range(5))
    hello = run(place, str(EXAMPLES / "hello_group.py"))
    await hello.says(rf"{place.topic}-0 @(\d): b'\d'", times=5)
    assert await hello.end(number) == 0, hello.output
    assert "Traceback" not in hello.output
    assert await place.committed() == 5
    assert await members_count(place) == 0


async def test_produce_gives_the_loop_something_to_print(make_place, run):
    place = make_place()
    written = run(place, str(EXAMPLES / "produce.py"))
    assert await asyncio.to_thread(written.process.wait, LIMIT_S) == 0, written.output
    hello = run(place, str(EXAMPLES / "hello_group.py"))
    await hello.says(rf"{place.topic}-\d @\d: b'order \d'", times=10)
    assert await hello.end(signal.SIGINT) == 0, hello.output


async def test_manual_commit_commits_what_it_handled(make_place, run):
    place = make_place()
    await place.produce(range(250))
    manual = run(place, str(EXAMPLES / "manual_commit.py"))
    await manual.says(r"handled .*\.\.249")
    await manual.says(r"committed (\d+)", times=3)
    assert await place.committed() == 250
    assert await manual.end(signal.SIGTERM) == 0, manual.output
    assert await members_count(place) == 0


async def ask(client: httpx.AsyncClient, path: str, until: Callable[[httpx.Response], bool]) -> httpx.Response:
    limit = time.monotonic() + LIMIT_S
    while not until(response := await client.get(path)):
        assert time.monotonic() < limit, response.text
        await asyncio.sleep(0.05)
    return response


async def test_the_fastapi_worker_answers_probes_and_drains_on_sigterm(make_place, run):
    place = make_place(2)
    await place.produce(range(100), 0)
    worker = run(place, str(EXAMPLES / "fastapi_worker.py"), PORT="0")
    url = await worker.says(r"running on (http://127\.0\.0\.1:\d+)")
    async with httpx.AsyncClient(base_url=url) as client:
        alive = await client.get("/aiogroup/livez")  # at once: joining is alive, ready or not
        assert alive.status_code == 200
        ready = await ask(client, "/aiogroup/readyz", lambda response: response.status_code == 200)
        assert ready.json()["state"] == "ready"
        lags = {f"{place.topic}-0": 0, f"{place.topic}-1": 0}
        await ask(client, "/lag", lambda response: response.json() == lags)
        assert await members_count(place) == 1
    at = time.monotonic()
    assert await worker.end(signal.SIGTERM) == 0, worker.output
    assert time.monotonic() - at < 10
    assert await members_count(place) == 0
    assert await place.committed(0) == 100


async def test_the_fastapi_worker_tells_that_its_topic_does_not_exist(make_place, run, unique_name):
    place, wrong = make_place(), unique_name("ordres")
    worker = run(place, str(EXAMPLES / "fastapi_worker.py"), PORT="0", KAFKA_TOPIC=wrong)
    url = await worker.says(r"running on (http://127\.0\.0\.1:\d+)")
    async with httpx.AsyncClient(base_url=url) as client:
        told = await ask(client, "/aiogroup/readyz", lambda response: response.json()["state"] == "degraded")
        assert wrong not in told.text, "names are for those with access"
        assert (await client.get("/aiogroup/livez")).status_code == 200
    await worker.says("topic_missing")
    assert await worker.end(signal.SIGTERM) == 0, worker.output


async def test_the_fastapi_worker_under_uvicorns_own_command(make_place, run):
    place = make_place()
    await place.produce(range(3))
    worker = run(place, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "fastapi_worker:app", "--port", "0")
    url = await worker.says(r"running on (http://127\.0\.0\.1:\d+)")
    async with httpx.AsyncClient(base_url=url) as client:
        await ask(client, "/lag", lambda response: response.json() == {f"{place.topic}-0": 0})
    # uvicorn raises the signal again when everything is ended: the lifespan ran to its end before.
    assert await worker.end(signal.SIGTERM) in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in worker.output
    assert await members_count(place) == 0
    assert await place.committed() == 3


async def test_an_error_of_the_fastapi_worker_fails_its_readiness_and_the_record_comes_again(make_place, run, tmp_path):
    place = make_place()
    await place.produce(["good", "bad"])
    broken = tmp_path / "broken_worker.py"
    broken.write_text(
        "import examples.fastapi_worker as worker\n"
        "async def handle(record):\n"
        "    if record.value == b'bad':\n"
        "        raise ValueError('cannot read this')\n"
        "worker.handle = handle\n"
        "app = worker.app\n"
    )
    worker = run(
        place, "-m", "uvicorn", "broken_worker:app", "--port", "0", "--app-dir", str(tmp_path), PYTHONPATH=str(ROOT)
    )
    url = await worker.says(r"running on (http://127\.0\.0\.1:\d+)")
    async with httpx.AsyncClient(base_url=url) as client:
        dead = await ask(client, "/aiogroup/readyz", lambda response: response.json()["state"] == "failed")
        assert dead.status_code == 503
        await worker.says("ValueError: cannot read this", times=2)
        assert (await client.get("/aiogroup/livez")).status_code == 200, "two failures in a row are no reason yet"
    await worker.end(signal.SIGTERM)
    assert await place.committed() == 1  # the good one; the bad one comes again


@pytest.mark.parametrize("broker", [(), ("--kafka",)], ids=["embedded", "kafka"])
async def test_the_demo_loses_nothing(make_place, run, broker):
    demo = run(make_place(), "-m", "examples.demo", "--records", "5000", *broker)
    assert await asyncio.to_thread(demo.process.wait, 120) == 0, demo.output
    sums = dict(re.findall(r"^ +(produced|processed|lost) +([\d,]+)", demo.output, re.MULTILINE))
    assert sums == {"produced": "5,000", "processed": "5,000", "lost": "0"}
    assert re.search(r"hand-over +\d+\.\d s", demo.output)


@pytest.mark.parametrize(
    ("broker", "children_count"),
    [((), 2), (("--kafka",), 3)],  # the members, what keeps Kafka
    ids=["embedded", "kafka"],
)
async def test_the_demo_ends_what_it_started_when_interrupted(make_place, run, is_gone, broker, children_count):
    demo = run(make_place(), "-m", "examples.demo", "--records", "5000", *broker)
    await demo.says(r"member-2 reads partitions")
    children = children_of(demo.process.pid)
    assert len(children) >= children_count
    assert await demo.end(signal.SIGINT, within_s=30) == 130
    assert all(is_gone(int(pid)) for pid in children)
    assert "Traceback" not in demo.output


async def test_the_join_by_time_inverts_nothing_where_it_waits(run, cluster_3, unique_name):
    running = run(Place(cluster_3, unique_name("topic"), unique_name("group")), str(EXAMPLES / "ordered_join.py"))
    told = dict(
        re.findall(r"max_task_idle_ms=(-?\d+): (.*)", (await running.says(r"(?s).*max_task_idle_ms=0: .* partitions")))
    )
    assert re.match(r"0 inversions, 20000 payments joined, 0 before their order; 0 records late", told["0"])
    assert int(told["-1"].split()[0]) > 0
    assert await asyncio.to_thread(running.process.wait, 15) == 0
