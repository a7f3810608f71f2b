"""How calm the machine is: `python -m benchmarks.calm`. It runs a ticker alone in its loop, a fixed piece of work, and
a loop that never waits and reads the clock.

No client can be better than these results: a tick that is late here, or a gap in that loop, is caused by the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from benchmarks.meter import Load, Ticker
from benchmarks.results import Table

SECONDS = 3.0
SCENARIO, CLIENT = "a ticker alone", "no client"
WORK = 1_000_000
COLUMNS = (
    ("late_max_ms", "latest tick ms, of all", "worst"),
    ("late_p99_ms", "p99 ms", "median"),
    ("gap_ms", "longest gap of a busy loop, ms", "worst"),
    ("work_ms", "a million additions, ms", "median"),
    ("load", "load", "median"),
    ("others_cores", "other cores", "median"),
)


def table() -> Table:
    return Table("machine", COLUMNS)


def work_ms() -> float:
    at, total = time.perf_counter(), 0
    for number in range(WORK):
        total += number
    return (time.perf_counter() - at) * 1000


def longest_gap_ms(seconds: float) -> float:
    """The longest gap in a thread that only reads the clock: during it the core was used by something else."""
    at = time.perf_counter()
    until, longest = at + seconds, 0.0
    while at < until:
        now = time.perf_counter()
        longest = max(longest, now - at)
        at = now
    return longest * 1000


async def run(seconds: float) -> dict[str, Any]:
    work = work_ms()
    ticker, load = Ticker(), Load()
    ticker.start()
    await asyncio.sleep(seconds)
    told = load.result()
    await ticker.stop()
    gap_ms = round(longest_gap_ms(seconds), 1)
    return {**ticker.result(), "gap_ms": gap_ms, "work_ms": round(work, 1), **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", nargs="?", choices=(CLIENT,))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    print(json.dumps(asyncio.run(run(parser.parse_args().seconds))))


if __name__ == "__main__":
    main()
