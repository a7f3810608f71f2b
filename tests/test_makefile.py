"""`make test` runs every test, and those that share a cluster of their own on one worker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.workers import by_one_worker, scope_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=by_one_worker("some_name"))
def for_one_worker():
    return True


def test_the_step_on_kafka_collects_every_file_with_a_test_that_is_marked_so():
    (named,) = re.findall(r"^TESTS_ON_KAFKA := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    collected = [ROOT / name for name in named.split()]
    assert all(path.exists() for path in collected)
    marked = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.(kafka|spark)\b", path.read_text()) and path != Path(__file__)
    }
    assert marked
    assert not [path for path in marked if not {path, *path.parents} & set(collected)]


def test_a_test_that_one_worker_runs_says_so_in_its_id(request, for_one_worker):
    assert for_one_worker
    assert scope_of(request.node.nodeid) == "some_name"
    assert scope_of("tests/test_x.py::test_y[@some_name-1]") == "some_name"
    assert scope_of("tests/test_x.py::test_y[1]") == "tests/test_x.py::test_y[1]"
