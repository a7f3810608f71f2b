"""`python -m tests.simulation.hunt "name of a bug"` plants it and looks for it, seed by seed; prints the seed.

`python -m tests.simulation.hunt --renew` looks for quicker seeds of all bugs that are not found soon, as after a change
of the schedule, and writes them into planted_bugs.py.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.simulation.planted_bugs import BUGS, ROOT, plant

LIST = Path(__file__).with_name("planted_bugs.py")
SOON_S = 1.5
ENOUGH = 4
"""Of so many seeds that find a bug the quickest is taken."""


def fitting(bug):
    """The seeds of the bug's profiles."""
    from tests.simulation.world import LANES, LANES_FROM, LATEST, LATEST_FROM, beginning

    first = 0
    for profiles, begin in ((LANES, LANES_FROM), (LATEST, LATEST_FROM)):
        first = begin if set(bug.profiles) & profiles.keys() else first
    return (seed for seed in itertools.count(first) if not bug.profiles or beginning(seed)[-1] in bug.profiles)


def find(bug, more_seeds):
    """The first seed that finds the planted bug, and what it finds; None if neither the list nor so many more do."""
    from tests.simulation.world import simulate

    for seed in (*bug.seeds, *itertools.islice(fitting(bug), more_seeds)):
        violations = simulate(seed).checker.violations
        if violations:
            return seed, violations[0]
    return None


def quickest(bug, more_seeds):
    """(seconds, seed) of seeds that find the planted bug, the quickest first; the first alone if it does so soon."""
    from tests.simulation.world import simulate

    found = []
    for number, seed in enumerate((*bug.seeds, *itertools.islice(fitting(bug), more_seeds))):
        begun_s = time.process_time()
        if simulate(seed).checker.violations:
            found.append((time.process_time() - begun_s, seed))
            if number == 0 and found[0][0] < SOON_S:
                break
        if len(found) == ENOUGH:
            break
    return sorted(found)


def seeds_of(bug, more_seeds):
    """What `quickest` finds in a process of its own, in which the bug is planted; as text."""
    command = [sys.executable, "-m", "tests.simulation.hunt", bug.name, "--seeds", str(more_seeds), "--quickest"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout


def renew(more_seeds):
    """Write the list anew. Returns: the names of the bugs that nothing finds."""
    from tests.simulation.world import simulate

    missed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for bug, told in zip(BUGS, pool.map(lambda bug: seeds_of(bug, more_seeds), BUGS), strict=True):
            found = [(float(took_s), int(seed)) for took_s, seed in map(str.split, told.splitlines())]
            clean = [(took_s, seed) for took_s, seed in found if not simulate(seed).checker.violations]
            if not clean:
                missed.append(bug.name)
            elif clean[0][1] != next(iter((*bug.seeds, *itertools.islice(fitting(bug), 1)))):
                write(bug, clean[0][1])
            print(f"{bug.name}: {bug.seeds} -> {clean[:1]}", flush=True)
    return missed


def write(bug, seed):
    """In place of the bug's seeds in the list, which are a line of their own."""
    before, name, rest = LIST.read_text().partition(f'        "{bug.name}",\n')
    own, end, after = rest.partition("\n    ),\n")
    seeds = re.compile(r"^        (seeds=)?\([\d_]+,(?: [\d_]+,?)*\),$", re.MULTILINE)
    told, count = seeds.subn(rf"        \1({seed:_},),", own, count=1)
    if count != 1:
        raise LookupError(f"{bug.name}: name its profiles and a seed in {LIST.name} first")
    LIST.write_text(before + name + told + end + after)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt")
    parser.add_argument("bug", nargs="?", choices=[each.name for each in BUGS])
    parser.add_argument("--seeds", type=int, default=100, help="how many more where those of the list do not find it")
    parser.add_argument("--quickest", action="store_true", help="seconds and seeds, the quickest first")
    parser.add_argument("--renew", action="store_true", help="quick seeds of all bugs, written into planted_bugs.py")
    options = parser.parse_args()
    if options.renew:
        missed = renew(options.seeds)
        print(*(f"not found: {name}" for name in missed), sep="\n")
        return len(missed) > 0
    if options.bug is None:
        parser.error("name a bug, or give --renew")
    bug = next(each for each in BUGS if each.name == options.bug)
    plant(bug)
    if options.quickest:
        for took_s, seed in quickest(bug, options.seeds):
            print(f"{took_s:.3f} {seed}")
        return 0
    found = find(bug, options.seeds)
    if found is not None:
        print("{}: {}".format(*found))
        return 0
    print(f"not found by {(*bug.seeds,)} and {options.seeds} seeds of {bug.profiles or 'all profiles'}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
