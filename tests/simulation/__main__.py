"""`python -m tests.simulation --seed N` replays one with its trace; `--seeds N` runs many."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.world import simulate

MESSAGE = """seed {seed}: {why}
replay it with its trace: python -m tests.simulation --seed {seed}"""


def run_one(seed):
    """(seed, what was violated, a digest of all that happened)."""
    world = simulate(seed)
    digest = hashlib.sha256("\n".join(lines(world)).encode()).hexdigest()[:16]
    return seed, world.checker.violations[:3], digest


def lines(world):
    for at, who, what in world.trace:
        yield f"{round((at - 1_000) * 1000):>7} {who:<12} {what}"


def replay(seed):
    world = simulate(seed)
    for line in lines(world):
        print(line)
    print(f"seed {seed}: profile {world.profile}, {world.strategy}, {world.settings}")
    for why in world.checker.violations:
        print(f"VIOLATION {why}")
    return not world.checker.violations


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.seed is not None:
        return 0 if replay(options.seed) else 1
    began_at = time.monotonic()
    failed = []
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, (seed, violations, _) in enumerate(pool.map(run_one, seeds, chunksize=8), 1):
            if violations:
                failed.append(seed)
                print(MESSAGE.format(seed=seed, why=violations[0]), flush=True)
            if done % 500 == 0:
                print(f"{done} of {len(seeds)} seeds, {time.monotonic() - began_at:.0f} s", file=sys.stderr)
    print(f"{len(seeds)} seeds in {time.monotonic() - began_at:.1f} s, {len(failed)} failed: {failed[:50]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
