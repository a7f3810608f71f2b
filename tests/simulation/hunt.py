"""`python -m tests.simulation.hunt "name of a bug"` plants it and looks for it, seed by seed; prints the seed."""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.simulation.planted_bugs import BUGS, plant


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt")
    parser.add_argument("bug", choices=[each.name for each in BUGS])
    parser.add_argument("--seeds", type=int, default=100, help="how many more where those of the list do not find it")
    options = parser.parse_args()
    bug = next(each for each in BUGS if each.name == options.bug)
    plant(bug)
    from tests.simulation.world import LANES, LANES_FROM, beginning, simulate

    first = LANES_FROM if set(bug.profiles) & LANES.keys() else 0
    fitting = (seed for seed in itertools.count(first) if not bug.profiles or beginning(seed)[-1] in bug.profiles)
    for seed in (*bug.seeds, *itertools.islice(fitting, options.seeds)):
        violations = simulate(seed).checker.violations
        if violations:
            print(f"{seed}: {violations[0]}")
            return 0
    print(f"not found by {(*bug.seeds,)} and {options.seeds} seeds of {bug.profiles or 'all profiles'}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
