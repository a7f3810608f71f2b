"""Groups of 10 to 1,000 members in virtual time: what one event costs them, and how that grows.

`python -m benchmarks.scale [--members 10 100] [--scenario crash] [--protocol range] [--jobs 2]`

Real consumers at the embedded broker, ten partitions for each member, with a record each in ten seconds; each case in a
process of its own. A case depends on its seed alone, so it needs no quiet machine and no repetition. `--markdown`
prints the tables of docs/scale.md; `--beside-kafka` runs the smallest group with short time-outs here and on real
Kafka.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

SCENARIOS = ("start", "rolling restart", "crash", "scale-up", "scale-up, expansion", "coordinator moves", "1 % lost")
PROTOCOLS = ("range", "cooperative-sticky")
EXPANSION = "scale-up, expansion"
COLUMNS = {
    "members": "members",
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


def cases(sizes: Sequence[int], scenarios: Sequence[str], protocols: Sequence[str]) -> Iterator[dict[str, object]]:
    """All combinations that there are: only static members know an expansion time-out."""
    for scenario in scenarios:
        for members in sizes:
            for is_static in (False, True):
                for protocol in protocols:
                    if is_static or scenario != EXPANSION:
                        yield {
                            "scenario": scenario,
                            "members": members,
                            "is_static": is_static,
                            "protocol": protocol,
                        }


def run_apart(case: dict[str, object]) -> dict[str, object]:
    """One case in a process of its own: its settings and what it cost."""
    command = [sys.executable, "-m", "benchmarks.scale", "--one", json.dumps(case)]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    told = {"seconds": round(time.monotonic() - began), **case}
    return told | (json.loads(done.stdout) if not done.returncode else {"failed": True})


def run_here(settings: str) -> None:
    """The one case of a process; its answer is a line of JSON."""
    from benchmarks.scaling import Case, run_in_virtual_time

    logging.disable(logging.CRITICAL)  # members that are killed complain
    print(json.dumps(dataclasses.asdict(run_in_virtual_time(Case(**json.loads(settings))))))


def row(told: dict[str, object]) -> dict[str, str]:
    """The figures of a case as text. The standstill is that of all partitions, divided by their number."""
    kind = "static" if told["is_static"] else "dynamic"
    cells = {"members": str(told["members"]), "kind": kind, "protocol": str(told["protocol"])}
    if told.get("failed"):
        return cells | {"rebalances": "failed"}
    cost = {key: value for key, value in told.items() if isinstance(value, int | float)}
    return cells | {
        "rebalances": str(cost["rebalances"]),
        "standstill": f"{cost['standstill_s'] / (10 * cost['members']):.1f}",
        "worst": f"{cost['worst_s']:.1f}",
        "age": f"{cost['age_p99_s']:.1f}",
        "repeated": f"{cost['repeated']} of {cost['records']}",
        "requests": str(cost["requests"]),
        "joins": str(cost["joins"]),
        "kb": f"{cost['request_kb']:,.0f}",
    }


def show(results: Sequence[dict[str, object]], *, as_markdown: bool) -> None:
    """One table for each scenario."""
    for scenario in dict.fromkeys(each["scenario"] for each in results):
        rows = [row(each) for each in results if each["scenario"] == scenario]
        print(f"\n### {scenario}\n" if as_markdown else f"\n{scenario}")
        if as_markdown:
            print("| " + " | ".join(COLUMNS.values()) + " |")
            print("|" + "---|" * len(COLUMNS))
            for each in rows:
                print("| " + " | ".join(each.get(key, "") for key in COLUMNS) + " |")
        else:
            width = {key: max(len(title), *(len(each.get(key, "")) for each in rows)) for key, title in COLUMNS.items()}
            print("  ".join(title.rjust(width[key]) for key, title in COLUMNS.items()))
            for each in rows:
                print("  ".join(each.get(key, "").rjust(width[key]) for key in COLUMNS))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--jobs", type=int, default=2, help="how many cases at a time; 1,000 members need 4 GB")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--beside-kafka", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        run_here(options.one)
        return 0
    if options.beside_kafka:
        from benchmarks.scaling_beside import compare

        return compare()
    todo = list(cases(options.members, options.scenario, options.protocol))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = []
        for number, told in enumerate(pool.map(run_apart, todo), 1):
            results.append(told)
            what = f"{told['scenario']}, {row(told)['members']} {row(told)['kind']}, {told['protocol']}"
            print(f"{number} of {len(todo)}: {what}, {told['seconds']} s", file=sys.stderr)
    show(results, as_markdown=options.markdown)
    return any(each.get("failed", False) for each in results)


if __name__ == "__main__":
    sys.exit(main())
