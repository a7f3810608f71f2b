"""The README's code runs, and its tables are true where the code can say so."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer

from aiogroup import Consumer, ConsumerConfig
from aiogroup.admin import list_members
from aiogroup.assignors.foreign import resolve
from benchmarks.__main__ import PARTS
from tests.support.kafka import Place, eventually

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
TWELVE_LINES = BLOCKS[0]
FIGURES = re.findall(
    r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", README.partition("## Why")[2].partition("## ")[0], re.MULTILINE
)
MIGRATION = (ROOT / "docs/how-to-migrate-aiokafka.md").read_text()


def reading_from(servers):
    """The twelve lines with other brokers."""
    return TWELVE_LINES.replace('Consumer("orders"', f'Consumer("orders", bootstrap_servers={servers!r}')


def test_it_stays_short():
    assert len(README.splitlines()) <= 200
    assert len([line for line in TWELVE_LINES.splitlines() if line.strip()]) <= 12


def test_each_figure_is_on_the_page_of_performance_and_has_its_command():
    measured = (ROOT / "docs/performance.md").read_text()
    command = ""
    for what, ours, others, by in FIGURES:
        command = command if by == "the same" else by.strip("`")
        assert set(re.findall(r"--parts (\w+)", command)) <= set(PARTS), what
        assert command in measured, what
        for figure in re.findall(r"\d[\d,.]*", f"{ours} {others}"):
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d,]|\.\d)", measured), f"{what}: {figure}"
    assert len(FIGURES) == 5


def test_the_differences_in_defaults_are_those():
    theirs = {name: each.default for name, each in inspect.signature(AIOKafkaConsumer.__init__).parameters.items()}
    ours = {each.name: each.default for each in dataclasses.fields(ConsumerConfig)}
    differ = {name for name in theirs.keys() & ours.keys() if theirs[name] != ours[name]}
    named = set(re.findall(r"^\| `(\w+)` \|", MIGRATION, re.MULTILINE))
    assert differ - named == {"client_id", "bootstrap_servers"}  # a label; the same port
    assert "| `request_timeout_ms` | 40 000 | 30 000 |" in MIGRATION
    assert (theirs["request_timeout_ms"], ours["request_timeout_ms"]) == (40_000, 30_000)
    assert (theirs["fetch_max_bytes"], ours["fetch_max_bytes"]) == (50 << 20, 8 << 20)
    assert (theirs["max_poll_records"], ours["max_poll_records"]) == (None, 500)


def test_what_is_said_to_be_there_is():
    compared = (ROOT / "docs/comparison.md").read_text()
    named = set(re.findall(r"`(?:await )?(current_lag|lags|lag|health|getmany|poll|skip|stop|merged)\b", compared))
    assert named == {"current_lag", "lags", "lag", "health", "getmany", "poll", "stop", "merged"}
    assert all(callable(getattr(Consumer, name)) for name in named)
    assert [each.name for each in resolve(["sticky", "cooperative-sticky"])] == ["sticky", "cooperative-sticky"]


def test_what_is_not_there_yet_is_not_there():
    """When one of these fails, the feature came: change the row of docs/comparison.md."""
    assert not [name for name in ("catch_up", "recovery") if hasattr(Consumer, name)]


@pytest.fixture
def start_the_twelve_lines(tmp_path):
    """Run them with a place's servers, topic and group in the place of their own; what they print goes to files."""
    with ExitStack() as stack:

        def start(place):
            program, printed, errors = tmp_path / "twelve_lines.py", tmp_path / "printed", tmp_path / "errors"
            program.write_text(
                reading_from(place.cluster.bootstrap_servers)
                .replace('"orders"', repr(place.topic))
                .replace('"billing"', repr(place.group))
            )
            with printed.open("wb") as out, errors.open("wb") as err:
                running = subprocess.Popen(
                    [sys.executable, str(program)],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdout=out,
                    stderr=err,
                )
            stack.callback(running.wait)
            stack.callback(running.kill)
            return running, printed, errors

        yield start


async def members_of(place):
    found = await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)
    return [each.member_id for each in found]


@pytest.mark.kafka
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_twelve_lines_run_and_leave(kafka_cluster, start_the_twelve_lines, number):
    place = Place(kafka_cluster, f"topic-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}")
    kafka_cluster.create_topic(place.topic)
    await place.produce(range(3))
    running, printed, errors = start_the_twelve_lines(place)
    await eventually(lambda: running.poll() is not None or printed.read_text().count("\n") == 3, 30)
    running.send_signal(number)
    code = await asyncio.to_thread(running.wait, 20)
    assert await members_of(place) == []  # whoever starts next waits for nobody's session
    assert printed.read_text().splitlines() == ["0 0 b'0'", "0 1 b'1'", "0 2 b'2'"]
    assert await place.committed() == 3
    assert code == 0
    assert errors.read_text() == ""


@pytest.mark.kafka
async def test_the_twelve_lines_leave_while_they_wait_for_their_first_partition(kafka_cluster, start_the_twelve_lines):
    place = Place(kafka_cluster, f"topic-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}")
    kafka_cluster.create_topic(place.topic)
    await place.produce(range(3))
    async with place.consumer() as other:
        await other.getone()  # with a record in hand it lets the newcomer wait
        running, printed, errors = start_the_twelve_lines(place)

        async def has_joined():
            return len(await members_of(place)) == 2

        await eventually(has_joined, 30)
        running.send_signal(signal.SIGTERM)
        await asyncio.to_thread(running.wait, 20)
        assert "ConsumerStoppedError" in errors.read_text()
        assert len(await members_of(place)) == 1
    assert printed.read_text() == ""


@pytest.mark.kafka
async def test_the_listener_hears_what_comes_and_goes(kafka_cluster, capsys):
    place = Place(kafka_cluster, f"topic-{uuid4().hex[:8]}", f"group-{uuid4().hex[:8]}", 2)
    kafka_cluster.create_topic(place.topic, 2)
    await place.produce(range(3), 1)
    (block,) = (each for each in BLOCKS if "RebalanceListener" in each)
    code = block.replace('"orders"', f'"{place.topic}", bootstrap_servers="{place.cluster.bootstrap_servers}"')
    names: dict[str, Any] = {}
    exec(code.replace('"counts"', repr(place.group)), names)
    made = []

    class Seen(names["Counts"]):
        def __init__(self):
            super().__init__()
            made.append(self)

    names["Counts"] = Seen
    counting = asyncio.create_task(names["count"]())
    await eventually(lambda: made and made[0].of == {place.tp(0): 0, place.tp(1): 3})
    counting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await counting
    assert sorted(capsys.readouterr().out.splitlines()) == [f"leaves: {place.topic} 0 0", f"leaves: {place.topic} 1 3"]
