"""The how-to pages in docs: their code runs, and what they promise holds."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import mypy.api
import pytest

from aiogroup import AuthenticationFailedError, ConnectionLostError, RecordDeserializationError
from aiogroup.admin import list_members
from aiogroup.telemetry.events import RecordRedelivered
from tests.support.kafka import Ears, eventually

ROOT = Path(__file__).parents[2]
PAGES = {path.stem.removeprefix("how-to-"): path.read_text() for path in (ROOT / "docs").glob("how-to-*.md")}


def blocks(page):
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)


def run(page):
    """The names that the page's only block defines."""
    (block,) = blocks(page)
    names = {}
    exec(compile(block, f"docs/how-to-{page}.md", "exec"), names)
    return names


def test_each_page_fits_a_screen_and_is_linked():
    readme = (ROOT / "README.md").read_text()
    assert len(PAGES) == 6
    for page, text in PAGES.items():
        assert len(text.splitlines()) <= 80, page
        assert f"(docs/how-to-{page}.md)" in readme


def test_every_block_passes_the_type_checker(tmp_path):
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            (tmp_path / f"{page.replace('-', '_')}_{number}.py").write_text(block)
    cache, by_aiokafka = str(ROOT / ".mypy_cache/how_to"), "--allow-untyped-calls"
    said, errors, code = mypy.api.run(
        ["--strict", by_aiokafka, "--no-error-summary", "--follow-imports=silent", "--cache-dir", cache, str(tmp_path)]
    )
    assert code == 0, said + errors


async def test_tracing(make_place, capsys, monkeypatch):
    place, names, seconds = make_place(), {}, iter([0.0, 0.5, 10.0, 12.0])
    exec(compile(blocks("tracing")[1], "docs/how-to-tracing.md", "exec"), names)
    monkeypatch.setattr(names["time"], "perf_counter", lambda: next(seconds, 99.0))
    await place.produce(range(2))
    async with place.consumer(auto_offset_reset="earliest", observers=[names["Slow"]()]) as consumer:
        async for record in consumer:
            if record.offset == 1:
                break
    assert capsys.readouterr().out == f"{place.topic}-0 1 took long\n"


async def test_kubernetes(make_place, tmp_path):
    place, (block,) = make_place(), blocks("kubernetes")
    await place.produce(range(3))
    program, printed, told = tmp_path / "service.py", tmp_path / "printed", tmp_path / "told"
    program.write_text(
        block.replace("localhost:9092", place.cluster.bootstrap_servers)
        .replace('"orders"', repr(place.topic))
        .replace('"billing"', repr(place.group))
    )
    with printed.open("wb") as out, told.open("wb") as errors:
        running = subprocess.Popen(  # noqa: ASYNC220 (at once)
            [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=out, stderr=errors
        )
    try:
        await eventually(lambda: "begun 1" in printed.read_text(), 30)
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, 20) == 0
    finally:
        running.kill()
        running.wait()
    assert printed.read_text().splitlines() == ["begun 0", "done 0", "begun 1", "done 1"]
    assert "Traceback" not in told.read_text()
    assert await place.committed() == 2
    assert not await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)


def test_kubernetes_may_end_the_program_while_it_joins(tmp_path):
    program, told, (block,) = tmp_path / "service.py", tmp_path / "told", blocks("kubernetes")
    with socket.create_server(("127.0.0.1", 0)) as silent, told.open("wb") as errors:
        program.write_text(block.replace("localhost:9092", f"127.0.0.1:{silent.getsockname()[1]}"))
        running = subprocess.Popen(
            [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=errors
        )
        try:
            silent.settimeout(30)
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(30)
                assert connection.recv(1)  # of a request that nobody answers
                running.send_signal(signal.SIGTERM)
                assert running.wait(20) == 0
        finally:
            running.kill()
            running.wait()
    assert "Traceback" not in told.read_text()


async def test_workers(make_place):
    place, names = make_place(3), run("workers")
    handled, is_free, ended = [], asyncio.Event(), asyncio.Event()

    async def handle(record):
        if record.partition == 0:
            await is_free.wait()
        handled.append((record.partition, int(record.value)))

    def start(until):
        servers = place.cluster.bootstrap_servers
        return asyncio.create_task(names["main"](servers, place.topic, place.group, handle, until))

    for partition in range(3):
        await place.produce(range(5), partition)
    first = start(ended)
    expected = {(partition, value) for partition in (1, 2) for value in range(5)}
    await eventually(lambda: set(handled) == expected, 30)  # while a record of partition 0 is in hand
    is_free.set()
    await eventually(lambda: len(handled) == 15, 30)
    second_ended = asyncio.Event()
    second = start(second_ended)

    async def are_two():
        return len(await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)) == 2

    await eventually(are_two, 30)
    for partition in range(3):
        await place.produce(range(5, 8), partition)
    await eventually(lambda: len(set(handled)) == 24, 30)
    for event, task in ((ended, first), (second_ended, second)):
        event.set()
        await asyncio.wait_for(task, 30)
    assert await place.committed_is(8, 8, 8)
    assert len(handled) == 24
    for partition in range(3):
        assert [value for number, value in handled if number == partition] == list(range(8))


async def test_poison(make_place):
    place, names, ears = make_place(), run("poison"), Ears()
    await place.produce(["1", "poison", "2", "3", "4"])
    attempts, buried = [], []

    async def handle(record):
        attempts.append(record.value)
        if record.value == 2 and attempts.count(2) < 3:
            raise ConnectionError("not now")
        if record.value == 3:
            raise ConnectionError("never")

    async def bury(tp, offset, error):
        buried.append((tp, offset, type(error), type(error.__cause__)))

    async with place.consumer(value_deserializer=int, observers=[ears]) as consumer:
        reading = asyncio.create_task(names["read"](consumer, handle, bury))
        await eventually(lambda: attempts[-1:] == [4])
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    assert attempts == [1, 2, 2, 2, 3, 3, 3, 4]
    assert buried == [
        (place.tp(), 1, RecordDeserializationError, ValueError),
        (place.tp(), 3, ConnectionError, type(None)),
    ]
    assert [each.offset for each in ears.heard(RecordRedelivered)] == [2, 3]
    assert await place.committed() == 5


async def test_logging(make_place, monkeypatch):
    place, names = make_place(), run("logging")
    await place.produce(["1"])
    logger, level, said = logging.getLogger("aiogroup"), logging.getLogger("aiogroup").level, io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a program that has just begun
    monkeypatch.setattr(sys, "stderr", said)
    try:
        names["configure_logging"]()
        counter = names["Counter"]()
        async with place.consumer(observers=[counter]) as consumer:
            assert (await consumer.getone()).value == b"1"
            await eventually(lambda: counter.of.get("heartbeat_acknowledged"))
    finally:
        logger.setLevel(level)
    assert counter.of["rebalance_completed"] == 1
    logged = [each for each in map(json.loads, said.getvalue().splitlines()) if each["logger"] == "aiogroup"]
    (completed,) = (each for each in logged if each["event"] == "rebalance_completed")
    assert completed["level"] == "INFO"
    assert completed["group"] == place.group
    assert not [each for each in logged if each["event"] == "heartbeat_acknowledged"]  # DEBUG


async def test_sasl_ssl(secure, unique_name, monkeypatch):
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": secure.bootstrap("SASL_SSL"),
        "KAFKA_CA_FILE": str(secure.ca_pem),
        "KAFKA_USERNAME": "alice",
        "KAFKA_PASSWORD": "s3cret-of-alice",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    make_consumer = run("sasl-ssl")["make_consumer"]
    async with make_consumer("secured", unique_name("group")) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"0"
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong")
    refused = make_consumer("secured", unique_name("group"))
    with pytest.raises(AuthenticationFailedError):
        await refused.start()
    await refused.stop()
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret-of-alice")
    monkeypatch.delenv("KAFKA_CA_FILE")
    untrusting = make_consumer("secured", unique_name("group"))
    with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
        await untrusting.start()
    await untrusting.stop()
