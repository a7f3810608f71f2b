"""`python -m tests.simulation.hunt "name of a bug"` plants it and looks for it, seed by seed; prints the seed."""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.simulation.planted_bugs import BUGS, plant


def find(bug, more_seeds):
    """The first seed that finds the planted bug, and what it finds; None if neither the list nor so many more do."""
    from tests.simulation.world import LANES, LANES_FROM, beginning, simulate

    first = LANES_FROM if set(bug.profiles) & LANES.keys() else 0
    fitting = (seed for seed in itertools.count(first) if not bug.profiles or beginning(seed)[-1] in bug.profiles)
    for seed in (*bug.seeds, *itertools.islice(fitting, more_seeds)):
        violations = simulate(seed).checker.violations
        if violations:
            return seed, violations[0]
    return None


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt")
    parser.add_argument("bug", choices=[each.name for each in BUGS])
    parser.add_argument("--seeds", type=int, default=100, help="how many more where those of the list do not find it")
    options = parser.parse_args()
    bug = next(each for each in BUGS if each.name == options.bug)
    plant(bug)
    found = find(bug, options.seeds)
    if found is not None:
        print("{}: {}".format(*found))
        return 0
    print(f"not found by {(*bug.seeds,)} and {options.seeds} seeds of {bug.profiles or 'all profiles'}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
