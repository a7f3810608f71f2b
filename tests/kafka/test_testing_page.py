"""docs/testing.md: what it says of real Kafka runs, its table has every rule with its arguments."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from aiogroup.testing import Damage, Proxy, Rule

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(EXAMPLE,) = (block for block in BLOCKS if "aiogroup.testing" in block)
NAMED = {block.splitlines()[0].removeprefix("# "): block for block in BLOCKS if block.startswith("# ")}


async def test_the_example_runs(make_place):
    place = make_place()
    await place.produce(["paid"])
    names = {}
    exec(compile(EXAMPLE, "docs/testing.md", "exec"), names)
    await names["commits_survive_a_silent_coordinator"](place.cluster.bootstrap_servers, place.topic, place.group)
    assert await place.committed() == 1


def test_one_test_runs_on_both(tmp_path):
    """In a project of its own, as the page has it."""
    for name in ("conftest.py", "test_service.py"):
        (tmp_path / name).write_text(NAMED[name])
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "aiogroup_pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_table_has_every_rule_with_what_is_its_own():
    table = PAGE.partition("| rule | does |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"^\| `(\w+)\((.+)\)` \|", table, re.MULTILINE))
    rules = {
        name: inspect.signature(rule).parameters
        for name, rule in vars(Proxy).items()
        if inspect.isfunction(rule) and inspect.signature(rule).return_annotation == "Rule"
    }
    assert told.keys() == rules.keys()
    for name, parameters in rules.items():
        own = [each for each in parameters if each not in ("self", "node_id", "times")]
        assert re.findall(r"(\w+)(?:=\w*)?(?:, |$)", told[name]) == own
    assert hasattr(Rule, "remove")
    assert len(get_args(Damage)) == 5  # as many as the row of `corrupt` names
