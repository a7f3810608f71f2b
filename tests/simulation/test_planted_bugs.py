"""What the simulation is worth: each planted bug must be found, by a seed that is clean without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.planted_bugs import BUGS, Bug
from tests.simulation.world import simulate
from tests.support.sources import ROOT

MORE_SEEDS = 60
"""Where those of the list do not find it any more: the schedule changed."""

LIMIT_SECONDS = 300

pytestmark = pytest.mark.usefixtures("forgotten")


def test_there_are_enough_bugs_and_each_has_a_name_of_its_own():
    assert len({each.name for each in BUGS}) == len(BUGS) >= 20


def test_a_bug_that_can_no_longer_be_planted_is_reported():
    for text in ("nothing of this kind", "self"):
        with pytest.raises(LookupError):
            Bug("gone", "aiogroup/consumer.py", text, "").applied()


@pytest.mark.parametrize("bug", BUGS, ids=lambda each: each.name)
def test_bug_is_found(bug):
    bug.applied()
    hunt = subprocess.run(
        [sys.executable, "-m", "tests.simulation.hunt", bug.name, "--seeds", str(MORE_SEEDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert hunt.returncode == 0, (hunt.stdout + hunt.stderr)[-2_000:]
    seed = int(hunt.stdout.partition(":")[0])
    assert simulate(seed).checker.violations == [], f"seed {seed} finds it, and something else without it"
