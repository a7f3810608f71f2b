"""`python -m benchmarks [--quick]`: aiogroup beside aiokafka, confluent-kafka, Java and two floors.

Every run is a process of its own and the clients take turns. Prints tables, judges the goals, and writes
benchmarks/results/TIME.json; `python benchmarks/compare.py OLD NEW` shows the changes between two of these.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiogroup.devkafka import Cluster
from benchmarks import calm, draining, goals, importing, joining, living, merging, results, stopping
from benchmarks.turns import measure

PARTS = ("machine", "import", "drain", "merge", "flow", "commit", "idle", "stop", "join")
GOAL_RECORDS = 1_500_000


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run; `rounds` is the number of rounds of drains."""

    records: int = GOAL_RECORDS
    rounds: int = 5
    drains: Sequence[draining.Drain] = draining.FULL
    drain_clients: str = ""
    merges: Sequence[int] = merging.PARTITIONS
    calm_s: float = 5.0
    import_rounds: int = importing.ROUNDS
    flow_s: float = 10.0
    flow_rounds: int = 5
    idle_clients: Sequence[str] = living.ALL
    commits: int = 500
    commit_rounds: int = 5
    stop_rounds: int = 3
    stop_limit_s: float = stopping.LIMIT_S
    stop_clients: Sequence[str] = stopping.CLIENTS
    join_rounds: int = 5
    joins: Sequence[str] = tuple(joining.STRATEGIES)


QUICK = Sizes(
    records=150_000,
    rounds=2,
    drains=draining.QUICK,
    merges=merging.PARTITIONS[:1],
    calm_s=1.0,
    import_rounds=2,
    flow_s=2.0,
    flow_rounds=1,
    idle_clients=living.LIBRARIES,
    commits=100,
    commit_rounds=1,
    stop_rounds=1,
    stop_limit_s=stopping.QUICK_LIMIT_S,
    stop_clients=stopping.QUICK_CLIENTS,
    join_rounds=1,
    joins=("cooperative-sticky",),
)


class Session:
    """One run of the benchmarks: the chosen parts and their results."""

    def __init__(self, sizes: Sizes, parts: Sequence[str]) -> None:
        self._sizes = sizes
        self._parts = parts
        self.machine, self.drain = calm.table(), draining.table()
        self.flow, self.commit = living.flow_table(), living.commit_table()
        self.stop, self.join = stopping.table(), joining.table()
        self.merge = merging.table()
        self.imports = importing.table()
        self.tables = [self.machine, self.imports, self.drain, self.merge, self.flow, self.commit, self.stop, self.join]

    def run(self) -> Iterator[str]:
        """Yield the Markdown of each scenario when it is done."""
        sizes = self._sizes
        yield from self._calm()
        if "import" in self._parts:
            yield from importing.imports(sizes.import_rounds, self.imports)
        if {"drain", "merge", "flow", "commit", "idle"} & set(self._parts):
            with Cluster(benchmark=True) as cluster:
                yield from self._on(cluster)
        if "stop" in self._parts:
            yield from stopping.stops(sizes.stop_limit_s, sizes.stop_rounds, self.stop, sizes.stop_clients)
        if "join" in self._parts:
            yield from joining.joins(sizes.joins, sizes.join_rounds, self.join)
        yield from self._calm()

    def _calm(self) -> Iterator[str]:
        """Measure the idle machine before and after everything, since its other load varies."""
        if "machine" in self._parts:
            run = measure("calm", calm.CLIENT, ["--seconds", self._sizes.calm_s])
            self.machine.row(calm.SCENARIO, calm.CLIENT).runs.append(run)
            yield self.machine.markdown()

    def _on(self, cluster: Cluster) -> Iterator[str]:
        sizes, parts = self._sizes, self._parts
        if "drain" in parts:
            yield from draining.drain(
                cluster, sizes.drains, sizes.records, sizes.rounds, self.drain, sizes.drain_clients
            )
        if "merge" in parts:
            yield from merging.merges(cluster, sizes.merges, sizes.records, sizes.rounds, self.merge)
        if "flow" in parts:
            yield living.latency(cluster, sizes.flow_s, sizes.flow_rounds, self.flow)
        if "commit" in parts:
            yield living.commits(cluster, sizes.commits, sizes.commit_rounds, self.commit)
        if "idle" in parts:  # last, since its partitions remain
            yield living.idle(cluster, sizes.idle_clients, sizes.flow_s, sizes.flow_rounds, self.flow)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, fewer scenarios and rounds")
    parser.add_argument("--records", type=int, help="records in a backlog, a multiple of 500")
    parser.add_argument("--rounds", type=int, help="of imports, drains, flows, commits, stops and joins")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the drains whose name contains this")
    parser.add_argument("--clients", metavar="TEXT", default="", help="only drains of clients whose name contains this")
    args = parser.parse_args()
    if unknown := set(args.parts.split(",")) - set(PARTS):
        parser.error(f"--parts: no such part: {', '.join(sorted(unknown))}")
    return args


def chosen(args: argparse.Namespace) -> Sizes:
    sizes = QUICK if args.quick else Sizes()
    if args.rounds:
        names = [each.name for each in dataclasses.fields(Sizes) if each.name.endswith("rounds")]
        sizes = dataclasses.replace(sizes, **dict.fromkeys(names, args.rounds))
    return dataclasses.replace(
        sizes,
        records=(args.records or sizes.records) // 500 * 500,
        drain_clients=args.clients,
        drains=tuple(each for each in sizes.drains if args.only in each.name),
    )


def main() -> None:
    args = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background both signals end the run under way
        signal.signal(number, signal.default_int_handler)
    try:
        _measure(args)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _measure(args: argparse.Namespace) -> None:
    sizes = chosen(args)
    session = Session(sizes, args.parts.split(","))
    print(", ".join(f"{name} {version}" for name, version in results.versions().items()) + "\n", flush=True)
    began_at = time.monotonic()
    for part in session.run():
        print(f"{part}\n\nafter {time.monotonic() - began_at:.0f} s\n", flush=True)
    verdicts = goals.judged(session.tables)
    print(goals.markdown(verdicts) + "\n")
    if sizes.records < GOAL_RECORDS:
        print(f"The goals are about drains of {GOAL_RECORDS:,} records, this was {sizes.records:,}.")
    took_s = round(time.monotonic() - began_at)
    path = results.FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    facts = {"quick": args.quick, "records": sizes.records, "rounds": sizes.rounds, "took_s": took_s}
    results.write(path, session.tables, **facts, goals=goals.told(verdicts))
    print(f"benchmarks/{path.parent.name}/{path.name} has every run. It took {took_s} s.")


if __name__ == "__main__":
    main()
