"""`examples/static_members.py` prints the draft's tables."""

from __future__ import annotations

import subprocess
import sys

from tests.support.sources import ROOT

DOWN = [
    ("member A dropped", "00:00", "00:00", "none"),
    ("member B dropped", "00:10", "00:00", "none"),
    ("member A back online", "00:14", "00:10", "none"),
    ("B gone for too long", "00:25", "00:10", "one rebalance: A, leader"),
]
UP = [
    ("new member A joins", "00:00", "00:00", "none"),
    ("new member B joins", "00:03", "00:00", "none"),
    ("expansion time-out", "00:05", "", "one rebalance: A, B, leader"),
    ("new member C joins", "00:06", "00:06", "none"),
    ("expansion time-out", "00:11", "", "one rebalance: A, B, C, leader"),
]


def test_the_example_prints_the_drafts_two_tables():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "examples/static_members.py"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    found = [tuple(cell.strip() for cell in (each[:26], each[27:33], each[34:44], each[45:])) for each in lines]
    assert [each for each in found if each[1].startswith("00:")] == DOWN + UP
