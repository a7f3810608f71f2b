"""What the simulation is worth: each planted bug must be found, by a seed that is clean without it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys

import pytest

from tests.simulation.hunt import LIST, find, write
from tests.simulation.planted_bugs import BUGS, REMEDIES, TESTED_BUGS, Bug, replaced
from tests.simulation.replanted import LIMIT_S, NeverEndsError, NotInFunctionsError, functions_of, replanted
from tests.simulation.world import simulate
from tests.support.sources import ROOT

MORE_SEEDS = 60
"""Where those of the list do not find it any more: the schedule changed."""


def test_there_are_enough_bugs_and_each_has_a_name_of_its_own():
    assert len({each.name for each in BUGS}) == len(BUGS) >= 20


def test_the_seeds_of_each_can_be_written_anew(monkeypatch, tmp_path):
    copy = tmp_path / LIST.name
    monkeypatch.setattr("tests.simulation.hunt.LIST", copy)
    before = LIST.read_text().splitlines()
    for bug in BUGS:
        copy.write_text(LIST.read_text())
        write(bug, 1_000_007)
        (changed,) = {*copy.read_text().splitlines()} - {*before}
        assert changed.strip().removeprefix("seeds=") == "(1_000_007,),"


def test_a_bug_that_can_no_longer_be_planted_is_reported():
    for name, words in (
        ("Consumer.start", "nothing of this kind"),
        ("Consumer.start", "self"),
        ("Consumer.gone", "self"),
    ):
        with pytest.raises(LookupError):
            Bug("gone", f"aiogroup/consumer.py:{name}", words, "").applied()


def test_the_layout_of_the_words_is_no_matter():
    text = "def f(a):\n    if a:\n        g(\n            a,  # why\n            2,\n        )\n    return a\n"
    assert replaced(text, "f", "g(a, 2,)", "h()\ni()", "") == (
        "def f(a):\n    if a:\n        h()\n        i()\n    return a\n"
    )


@pytest.mark.parametrize("bug", BUGS, ids=lambda each: each.name)
def test_bug_is_found(bug):
    try:
        with replanted(bug):
            found = find(bug, MORE_SEEDS)
    except NotInFunctionsError:
        seed = found_by_a_process(bug)
    else:
        assert found is not None
        seed = found[0]
    assert simulate(seed).checker.violations == [], f"seed {seed} finds it, and something else without it"


def found_by_a_process(bug):
    hunt = subprocess.run(
        [sys.executable, "-m", "tests.simulation.hunt", bug.name, "--seeds", str(MORE_SEEDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert hunt.returncode == 0, (hunt.stdout + hunt.stderr)[-2_000:]
    return int(hunt.stdout.partition(":")[0])


@pytest.mark.parametrize("bug", TESTED_BUGS, ids=lambda each: each.name)
def test_bug_is_found_by_tests(bug):
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.simulation.planting", "-q", "-x", "-p", "no:randomly", bug.tests],
        cwd=ROOT,
        env={**os.environ, "PLANTED_BUG": bug.name},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert tests.returncode == pytest.ExitCode.TESTS_FAILED, (tests.stdout + tests.stderr)[-2_000:]
    assert "1 failed" in tests.stdout


def test_a_bug_in_what_runs_at_the_import_is_not_planted_afterwards():
    row = next(each for each in BUGS if each.place.startswith(REMEDIES))
    with pytest.raises(NotInFunctionsError), replanted(row):
        pass


def test_a_bug_is_gone_after_its_block():
    bug = next(each for each in BUGS if each.name == "lets a second task read on")
    (name,) = bug.applied()
    functions = {each: each.__code__ for each in functions_of(importlib.import_module(name))}
    with replanted(bug):
        assert [each.__qualname__ for each, code in functions.items() if each.__code__ != code] != []
    assert [each.__qualname__ for each, code in functions.items() if each.__code__ != code] == []


def test_a_bug_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr("tests.simulation.replanted.LIMIT_S", 1)
    with pytest.raises(NeverEndsError), replanted(BUGS[0]):
        signal.pause()
