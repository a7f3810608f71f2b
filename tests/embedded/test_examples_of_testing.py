"""docs/testing.md: its tests run unchanged in an empty project, whichever plug-in runs `async def` tests there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LIMIT_S = 180
UNITTEST = """
import asyncio, inspect, unittest
from pathlib import Path
from importlib import import_module
from pytest import MonkeyPatch
from aiogroup.embedded import Broker, run_virtual

class Page(unittest.TestCase):
    pass

def as_method(test):
    names = list(inspect.signature(test).parameters)

    async def run_on_a_virtual_broker(self):
        async with Broker() as broker:
            await test(broker)
            self.assertEqual(broker.troubles, [])

    def run(self):
        if names == ["virtual_broker"]:
            run_virtual(run_on_a_virtual_broker(self))
            return
        with Broker() as broker, MonkeyPatch.context() as patch:
            given = {"aiogroup_broker": broker, "monkeypatch": patch}
            done = test(*(given[name] for name in names))
            if inspect.iscoroutine(done):
                asyncio.run(done)
            self.assertEqual(broker.troubles, [])
    return run

for path in Path(__file__).parent.glob("test_on_*.py"):
    for name, test in vars(import_module(path.stem)).items():
        if name.startswith("test_"):
            setattr(Page, name, as_method(test))
"""
RUNNERS = {
    "pytest-asyncio": ("pytest_asyncio.plugin", "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"),
    "anyio": ("anyio.pytest_plugin", "anyio_mode = auto"),
}
ANYIO = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def names_of_tests(block):
    return re.findall(r"^(?:async )?def (test_\w+)", block, re.MULTILINE)


EMBEDDED = [block for block in BLOCKS if re.search("aiogroup_broker|virtual_broker", block) and names_of_tests(block)]
TESTS = sorted(name for block in EMBEDDED for name in names_of_tests(block))


@pytest.fixture
def project(tmp_path):
    """The page's code as files, and nothing else."""
    (service,) = (block for block in BLOCKS if block.startswith("# service.py\n"))
    tmp_path.joinpath("service.py").write_text(service)
    shutil.copy(ROOT / "examples/fastapi_worker.py", tmp_path)
    for number, block in enumerate(EMBEDDED):
        tmp_path.joinpath(f"test_on_{number}.py").write_text(block)
    return tmp_path


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.mark.parametrize("runner", RUNNERS)
def test_with_pytest_and(project, runner):
    plugin, settings = RUNNERS[runner]
    project.joinpath("pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{settings}\n")
    if runner == "anyio":
        project.joinpath("conftest.py").write_text(ANYIO)
    told = run(project, "pytest", "-p", plugin, "-p", "aiogroup_pytest", "-rA").stdout
    assert sorted(re.findall(r"^PASSED \S+::(\w+)", told, re.MULTILINE)) == TESTS


def test_with_unittest_alone(project):
    project.joinpath("test_all.py").write_text(UNITTEST)
    told = run(project, "unittest", "-v", "test_all").stderr
    assert sorted(re.findall(r"^(test_\w+) \(test_all\.Page", told, re.MULTILINE)) == TESTS
    assert told.rstrip().endswith("\nOK")
