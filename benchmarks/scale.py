"""Groups of 10 to 1,000 members in virtual time: what one event costs them, and how that grows.

`python -m benchmarks.scale [--members 10 100] [--scenario crash] [--protocol range] [--kind static] [--each 10]
[--jobs 2]`

Real consumers at the embedded broker, ten partitions for each member, with a record each in ten seconds; each case in a
process of its own. A case depends on its seed alone, so it needs no quiet machine and no repetition. `--markdown`
prints the tables of docs/scale.md; `--keep FILE` appends each case to a file, and passes over those that it has;
`--beside-kafka` runs the smallest group with short time-outs here and on real Kafka.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import json
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCENARIOS = ("start", "rolling restart", "crash", "scale-up", "scale-up, expansion", "coordinator moves", "1 % lost")
PROTOCOLS = ("range", "cooperative-sticky")
KINDS = ("dynamic", "static")
EXPANSION = "scale-up, expansion"
PARTITIONS_EACH = 10
COLUMNS = {
    "members": "members",
    "partitions": "partitions",
    "kind": "members are",
    "protocol": "assignor",
    "rebalances": "rebalances",
    "standstill": "standstill of a partition, s",
    "worst": "longest, s",
    "age": "age of records, p99, s",
    "repeated": "repeated of records",
    "requests": "requests",
    "joins": "of these JoinGroup",
    "kb": "kB at the coordinator",
}


def cases(
    scenarios: Sequence[str], sizes: Sequence[int], each: Sequence[int], kinds: Sequence[str], protocols: Sequence[str]
) -> Iterator[dict[str, object]]:
    """All combinations that there are: only static members know an expansion time-out."""
    for scenario, members, partitions_each, kind, protocol in itertools.product(
        scenarios, sizes, each, kinds, protocols
    ):
        if kind == "static" or scenario != EXPANSION:
            yield {
                "scenario": scenario,
                "members": members,
                "partitions_each": partitions_each,
                "is_static": kind == "static",
                "protocol": protocol,
            }


def run_apart(case: dict[str, object]) -> dict[str, object]:
    """One case in a process of its own: its settings and what it cost."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", json.dumps(case)]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    told = {"seconds": round(time.monotonic() - began), **case}
    return told | (json.loads(done.stdout) if not done.returncode else {"failed": True})


class Kept:
    """The cases that a file has, a line of JSON each; without a file there are none."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._told: list[dict[str, object]] = [json.loads(line) for line in lines]

    def run(self, case: dict[str, object]) -> dict[str, object]:
        """What the file has of it, or else one run."""
        found = [each for each in self._told if case.items() <= each.items()]
        if found:
            return found[-1]
        told = run_apart(case)
        if self._path is not None and not told.get("failed"):
            with self._path.open("a") as file:
                file.write(json.dumps(told) + "\n")
        return told


def run_here(settings: str) -> None:
    """The one case of a process; its answer is a line of JSON."""
    from benchmarks.scaling import Case, run_in_virtual_time

    logging.disable(logging.CRITICAL)  # members that are killed complain
    gc.set_threshold(
        200_000, 20, 20
    )  # millions of objects that live to the end would be looked through again and again
    told = dataclasses.asdict(run_in_virtual_time(Case(**json.loads(settings))))
    print(json.dumps({**told, "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def row(told: dict[str, object]) -> dict[str, str]:
    """The figures of a case as text. The standstill is that of all partitions, divided by their number."""
    kind = "static" if told["is_static"] else "dynamic"
    cost = {key: value for key, value in told.items() if isinstance(value, int | float)}
    partitions = cost["members"] * cost["partitions_each"]
    cells = {"members": str(told["members"]), "partitions": str(partitions), "kind": kind}
    cells["protocol"] = str(told["protocol"])
    if told.get("failed"):
        return cells | {"rebalances": "failed"}
    return cells | {
        "rebalances": str(cost["rebalances"]),
        "standstill": f"{cost['standstill_s'] / partitions:.1f}",
        "worst": f"{cost['worst_s']:.1f}",
        "age": f"{cost['age_p99_s']:.1f}",
        "repeated": f"{cost['repeated']} of {cost['records']}",
        "requests": str(cost["requests"]),
        "joins": str(cost["joins"]),
        "kb": f"{cost['request_kb']:,.0f}",
    }


def show(results: Sequence[dict[str, object]], *, as_markdown: bool) -> None:
    """One table for each scenario; without a column of partitions if each member has ten."""
    columns = dict(COLUMNS)
    if all(each["partitions_each"] == PARTITIONS_EACH for each in results):
        del columns["partitions"]
    for scenario in dict.fromkeys(each["scenario"] for each in results):
        rows = [row(each) for each in results if each["scenario"] == scenario]
        print(f"\n### {scenario}\n" if as_markdown else f"\n{scenario}")
        if as_markdown:
            print("| " + " | ".join(columns.values()) + " |")
            print("|" + "---|" * len(columns))
            for each in rows:
                print("| " + " | ".join(each.get(key, "") for key in columns) + " |")
        else:
            width = {key: max(len(title), *(len(each.get(key, "")) for each in rows)) for key, title in columns.items()}
            print("  ".join(title.rjust(width[key]) for key, title in columns.items()))
            for each in rows:
                print("  ".join(each.get(key, "").rjust(width[key]) for key in columns))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--each", type=int, nargs="+", default=[PARTITIONS_EACH], help="partitions for each member")
    parser.add_argument("--jobs", type=int, default=2, help="how many cases at a time; 1,000 members need up to 2 GB")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--keep", type=Path, help="append each case to this file; those that it has are not run again")
    parser.add_argument("--beside-kafka", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        run_here(options.one)
        return 0
    if options.beside_kafka:
        from benchmarks.scaling_beside import compare

        return compare()
    todo = list(cases(options.scenario, options.members, options.each, options.kind, options.protocol))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = []
        for number, told in enumerate(pool.map(Kept(options.keep).run, todo), 1):
            results.append(told)
            what = f"{told['scenario']}, {row(told)['members']} {row(told)['kind']}, {told['protocol']}"
            needed = f"{told['seconds']} s, {told.get('memory_mb', '?')} MB"
            print(f"{number} of {len(todo)}: {what}, {needed}", file=sys.stderr)
    show(results, as_markdown=options.markdown)
    return any(each.get("failed", False) for each in results)


if __name__ == "__main__":
    sys.exit(main())
