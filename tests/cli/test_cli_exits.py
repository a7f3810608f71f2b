"""How the command ends as a process: Ctrl-C, a reader that has had enough, an output that cannot write every letter."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiogroup._core.telemetry.events import SlowDecoder, TopicMissing
from aiogroup._runtime.telemetry.log import Log
from aiogroup.cli.run import telling

ROOT = Path(__file__).parents[2]
LIMIT_S = 60


@contextmanager
def started(broker, *arguments, **environment):
    """The command as a process, which does not outlive its test."""
    with subprocess.Popen(
        [sys.executable, "-m", "aiogroup", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AIOGROUP_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # a Ctrl-C at these tests is not for it
    ) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize("arguments", [("lag", "billing", "--watch"), ("tail", "orders", "-f")], ids=" ".join)
async def test_ctrl_c_ends_it_quietly(broker, commit, arguments):
    await commit({("orders", 0): 4})
    with started(broker, *arguments) as running:
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, told) == (130, "")


NEEDS_SPARK = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None, reason="needs PySpark: pip install '.[spark]'"
)
SPARK = ("aiogroup.spark", "drain", "--group", "g", "--topic", "t", "--to", "parquet:x")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("aiogroup", "groups"), ""),
        (("aiogroup", "describe", "g"), ""),
        (("aiogroup", "lag", "g"), ""),
        (("aiogroup", "tail", "t"), ""),
        (("aiogroup", "members", "list", "g"), ""),
        (("aiogroup", "members", "remove", "one", "--group", "g"), ""),
        (("aiogroup", "reset", "g", "--all-topics", "--to-latest"), ""),
        (("aiogroup", "events"), ""),
        (("aiogroup.spark", "pending", *SPARK[2:6]), ""),
        pytest.param(SPARK, "aiogroup: interrupted; the slice is pending still\n", marks=NEEDS_SPARK),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_ctrl_c_ends_quietly_what_waits_for_an_answer(command, told):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        url = [f"http://{address}/"] if "events" in command else []
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "AIOGROUP_BOOTSTRAP_SERVERS": address}
        with subprocess.Popen(
            [sys.executable, "-m", *command, *url],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as running:
            try:
                silent.settimeout(LIMIT_S)
                asking, _ = silent.accept()
                with asking:
                    assert asking.recv(1)
                    running.send_signal(signal.SIGINT)
                    assert running.communicate(timeout=LIMIT_S) == ("", told)
            finally:
                running.kill()
    assert running.returncode == 130


async def test_a_reader_that_has_had_enough_ends_it_quietly(broker, commit):
    await commit({("orders", 0): 4})
    with started(broker, "lag", "billing", "--watch", "--interval-ms", "20") as running:
        assert running.stdout.readline().startswith("billing, Empty, at ")
        running.stdout.close()
        assert running.wait(LIMIT_S) == 0
        assert running.stderr.read() == ""


def test_a_reader_that_has_had_enough_ends_it_also_where_no_record_comes(broker):
    with started(broker, "tail", "orders", "-f", "-p", "0") as running:
        assert len([running.stdout.readline() for _ in range(10)]) == 10
        running.stdout.close()
        assert running.wait(LIMIT_S) == 0
        assert running.stderr.read() == ""


async def test_looks_are_one_document_a_line(broker, commit):
    await commit({("orders", 0): 4})
    with started(broker, "lag", "billing", "--watch", "--interval-ms", "20", "-o", "json", "--max-lag", "6") as running:
        lines = [running.stdout.readline() for _ in range(2)]
        broker.produce("orders", b"one more", partition=0)
        rest, told = running.communicate(timeout=LIMIT_S)
    assert all(line.startswith('{"command": "lag", "version": 1, ') for line in (*lines, *rest.splitlines()))
    assert (running.returncode, told) == (4, "")


def test_what_cannot_be_written_is_shown_as_text(broker):
    broker.create_topic("bills", 1)
    broker.produce("bills", "größe 漢".encode())
    with started(broker, "tail", "bills", PYTHONIOENCODING="ascii") as running:
        shown, told = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, told) == (0, "")
    assert shown.endswith("  gr\\xf6\\xdfe \\u6f22\n")


async def test_a_watch_outlives_a_broker_that_is_silent_for_a_while(broker, commit):
    await commit({("orders", 0): 4})
    watching = ("lag", "billing", "--watch", "--interval-ms", "20", "--timeout-ms", "700", "-o", "json")
    with started(broker, *watching) as running:
        assert running.stdout.readline()
        silence = broker.drop("DescribeGroups")
        assert running.stderr.readline().endswith("not done within --timeout-ms 700; looking again\n")
        silence.remove()
        broker.produce("orders", b"one more", partition=0)
        while '"lag": 7' not in running.stdout.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, told) == (130, "")


def test_a_consumer_without_the_c_is_no_news_for_a_command(broker):
    broker.create_topic("bills", 1)
    broker.produce("bills", b"one")
    with started(broker, "tail", "bills", AIOGROUP_PURE_PYTHON="1") as running:
        _, told = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, told) == (0, "")


def test_warnings_of_a_consumer_are_told_as_the_commands_own(capsys):
    log = Log("billing", "aiogroup")
    with telling():
        log.on_event(SlowDecoder("no compiler", "install one"))
        log.on_event(TopicMissing("bi\x1b[2Jlls", 3))
    log.on_event(TopicMissing("later", 3))
    told = capsys.readouterr().err.splitlines()
    assert [each.partition(" why")[0] for each in told[:1]] == ["aiogroup: topic_missing topic='bi\\x1b[2Jlls'"]
    assert not any(each.startswith("aiogroup: ") for each in told[1:])


# An output that cannot be written.

TO_LATEST = ("reset", "billing", "--all-topics", "--to-latest")
TAIL = ("tail", "orders", "-f", "--from", "earliest")
FULL = pytest.param("full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full"))


@contextmanager
def place_of(kind):
    """Where an output goes: it is read, or the disk is full, or its reader has gone; a shell closes it."""
    if kind == "full":
        with Path("/dev/full").open("wb") as file:
            yield file
    elif kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        yield writing
        os.close(writing)
    else:
        yield subprocess.PIPE


async def ended(broker, *arguments, out="read", err="read"):
    """The exit code of the command, and what it told where that was read."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AIOGROUP_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    environment.pop("PYTHONUNBUFFERED", None)  # with it Python would have nothing to flush at its end
    closing = f"{'>&-' * (out == 'closed')} {'2>&-' * (err == 'closed')}"
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "aiogroup", *arguments]
    with place_of(out) as stdout, place_of(err) as stderr:
        places = {"stdout": stdout, "stderr": stderr}
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, env=environment, **places, timeout=LIMIT_S, check=False
        )
    return done.returncode, (done.stderr or b"").decode()


@pytest.mark.parametrize("out", [FULL])
@pytest.mark.parametrize(
    "arguments", [("lag", "billing"), ("lag", "billing", "--watch"), TAIL, ("groups",)], ids=" ".join
)
async def test_a_full_disk_is_told_once(broker, commit, arguments, out):
    await commit({("orders", 0): 4})
    code, told = await ended(broker, *arguments, out=out)
    assert (code, told.count("\n")) == (1, 1)
    assert told.endswith("the output could not be written: No space left on device\n")


@pytest.mark.parametrize("out", [FULL])
async def test_a_change_that_was_made_and_could_not_be_printed_is_told(broker, commit, out):
    await commit({("orders", 0): 4})
    code, told = await ended(broker, *TO_LATEST, "--execute", out=out)
    assert code == 1
    assert told.endswith("it was done, but the output could not be written: No space left on device\n")
    assert broker.committed("billing")["orders", 0] == 10


async def test_nothing_is_done_where_standard_output_is_closed(broker, commit):
    await commit({("orders", 0): 4})
    code, told = await ended(broker, *TO_LATEST, "--execute", out="closed")
    assert (code, told) == (1, "aiogroup: standard output is closed: nothing was done\n")
    assert broker.committed("billing")["orders", 0] == 4


@pytest.mark.parametrize(
    ("arguments", "code", "err"),
    [
        (TO_LATEST, 3, "gone"),
        (TO_LATEST, 3, "closed"),
        (("lag", "billing", "--max-lag", "1"), 4, "gone"),
        (("describe", "none"), 1, "closed"),
        (("groups", "--bootstrap-server", ""), 2, "closed"),
        (TAIL, 0, "gone"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else str(value),
)
async def test_the_exit_code_is_right_although_nobody_reads(broker, commit, token, arguments, code, err):
    await commit({("orders", 0): (2, token)})
    assert (await ended(broker, *arguments, out="gone", err=err))[0] == code
