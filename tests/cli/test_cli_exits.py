"""How the command ends as a process: Ctrl-C, a reader that has had enough, an output that cannot write every letter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

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


async def test_a_reader_that_has_had_enough_ends_it_quietly(broker, commit):
    await commit({("orders", 0): 4})
    with started(broker, "lag", "billing", "--watch", "--interval-ms", "20") as running:
        assert running.stdout.readline().startswith("billing, Empty, at ")
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
