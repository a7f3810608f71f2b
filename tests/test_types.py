"""What a type checker says to an application that uses the installed package, outside of this repository.

`tests/typed` has the applications. In one of them every line that ends in `# mistake` has one mistake.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
import typing
import venv
from pathlib import Path

import aiokafka
import aiokafka.abc
import aiokafka.errors
import aiokafka.structs
import pytest

import aiogroup
from aiogroup import errors_for_mypy, structs, structs_for_checkers
from aiogroup.config import OBSOLETE, ConsumerConfig, ConsumerSettings

ROOT = Path(__file__).parents[1]
FILES = ["mistakes.py", "right.py", "beside_aiokafka.py"]
MISTAKES = {
    ("mistakes.py", number)
    for number, line in enumerate((ROOT / "tests/typed/mistakes.py").read_text().splitlines(), 1)
    if line.endswith("# mistake")
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder with the applications, and with a virtual environment that has a copy of the package installed."""
    folder = tmp_path_factory.mktemp("application")
    venv.create(folder / ".venv", with_pip=False)
    (installed,) = folder.glob(".venv/lib/python*/site-packages")
    shutil.copytree(ROOT / "aiogroup", installed / "aiogroup", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (installed / "others.pth").write_text("\n".join(others))
    for name in FILES:
        shutil.copy(ROOT / "tests/typed" / name, folder)
    return folder


def run(folder, *command):
    return subprocess.run(
        [sys.executable, "-m", *command, *FILES], cwd=folder, capture_output=True, text=True, check=False
    )


def found_by_mypy(folder):
    ran = run(folder, "mypy", "--strict", "--python-executable", ".venv/bin/python", "--cache-dir", ".mypy_cache")
    assert ran.stderr == ""
    return {
        (file, int(line)): said
        for file, line, said in re.findall(r"^([\w.]+):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    }


def found_by_pyright(folder):
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    ran = run(folder, "basedpyright", "--pythonpath", ".venv/bin/python", "--outputjson")
    told = json.loads(ran.stdout)["generalDiagnostics"]
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"] for each in told}


@pytest.mark.kafka  # not for Kafka: a type checker without a cache takes as long as its tests
@pytest.mark.parametrize("find", [found_by_mypy, found_by_pyright])
def test_every_mistake_of_an_application_is_found_and_nothing_else(elsewhere, find):
    found = find(elsewhere)
    assert len(MISTAKES) >= 10
    assert {at: said for at, said in found.items() if at not in MISTAKES} == {}, "said of what is right"
    assert MISTAKES - found.keys() == set(), "not found"


def test_the_classes_are_aiokafkas_own():
    homes = {"ConsumerRebalanceListener": aiokafka.abc}
    for name in set(structs.__all__) - {"aiokafka_errors"}:
        theirs = getattr(homes.get(name, aiokafka.structs), name)
        assert getattr(structs, name) is getattr(aiogroup, name) is theirs, name
    assert structs.aiokafka_errors is aiokafka.errors


@pytest.mark.parametrize("name", ["TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp"])
def test_type_checkers_read_the_same_fields(name):
    said, theirs = getattr(structs_for_checkers, name), getattr(aiokafka.structs, name)
    assert list(typing.get_type_hints(said).items()) == list(typing.get_type_hints(theirs).items())
    defaults = [[each.default for each in inspect.signature(kind).parameters.values()] for kind in (said, theirs)]
    assert defaults[0] == defaults[1]


def test_type_checkers_read_the_same_callbacks():
    said, theirs = structs_for_checkers.ConsumerRebalanceListener, aiokafka.abc.ConsumerRebalanceListener
    assert said.__abstractmethods__ == theirs.__abstractmethods__
    for name in said.__abstractmethods__:
        taken = [list(inspect.signature(getattr(each, name)).parameters) for each in (said, theirs)]
        assert taken[0] == taken[1], name


def test_mypy_reads_the_same_errors():
    said = {name: kind for name, kind in vars(errors_for_mypy).items() if inspect.isclass(kind)}
    assert len(said) > 20
    for name, kind in said.items():
        theirs = getattr(aiokafka.errors, name)
        assert [each.__name__ for each in kind.__mro__] == [each.__name__ for each in theirs.__mro__], name
        attributes = {each for each in kind.__annotations__ if not each.startswith("_")}
        assert attributes == {each for each in {**vars(theirs), **theirs.__annotations__} if each in attributes}, name


def test_type_checkers_know_the_settings_with_the_same_types():
    told, taken = typing.get_type_hints(ConsumerSettings), typing.get_type_hints(ConsumerConfig)
    assert {each.name for each in dataclasses.fields(ConsumerConfig)} | OBSOLETE == told.keys()
    assert {name: told[name] for name in taken if name not in OBSOLETE} == taken
    assert ConsumerSettings.__required_keys__ == frozenset()
