"""The lists of what runs on real Kafka name tests that are there, each once and with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.brokers_differ import JUDGED, ONLY_REAL

FOLDER = Path(__file__).parent / "kafka"


@pytest.mark.parametrize("named", [*ONLY_REAL, *JUDGED])
def test_what_is_listed_is_there(named):
    file, _, function = named.partition("::")
    tree = ast.parse((FOLDER / file).read_text())
    functions = {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert not function or function.partition("[")[0] in functions


def test_nothing_is_listed_twice():
    listed = [*ONLY_REAL, *JUDGED]
    assert len(set(listed)) == len(listed)
    assert not [each for each in listed if "::" in each and each.partition("::")[0] in listed]


def test_each_has_its_reason():
    assert all({**ONLY_REAL, **JUDGED}.values())
