"""The lists of what runs on real Kafka name tests that are there, each once and with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.brokers_differ import JUDGED, ONLY_REAL, THOROUGH

FOLDER = Path(__file__).parent / "kafka"


@pytest.mark.parametrize("named", [*ONLY_REAL, *JUDGED, *THOROUGH])
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
    assert all({**ONLY_REAL, **JUDGED, **THOROUGH}.values())


def test_what_is_left_out_has_a_witness_that_is_not():
    """A file, a function of the same file, or other parameters of the same function."""
    assert not THOROUGH.keys() & JUDGED.keys()
    for left_out, witnesses in THOROUGH.items():
        file, _, function = left_out.partition("::")
        for witness in witnesses.split(", "):
            if witness.startswith("tests/"):
                assert (FOLDER.parents[1] / witness).exists(), witness
            elif witness.endswith(".py"):
                assert (FOLDER / witness).exists(), witness
                assert witness not in THOROUGH
            elif witness.startswith("["):
                assert f"{file}::{function.partition('[')[0]}{witness}" not in THOROUGH
            else:
                assert f"def {witness}(" in (FOLDER / file).read_text(), witness
                assert f"{file}::{witness}" not in THOROUGH
