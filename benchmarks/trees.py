"""This checkout beside another one: `python -m benchmarks.trees OTHER [--rounds 7] [--only drain]`.

Both are measured by this checkout's benchmarks, on one broker, in turns, each run in a process of its own; aiokafka
takes part in the flow and in the commits. The C of the other checkout must have been built in its folder: `python
setup.py build_ext --inplace` there. Prints the medians and, for each metric, this checkout's in parts of the other's.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiogroup.devkafka import Cluster
from benchmarks import clients as c
from benchmarks.backlog import Backlog
from benchmarks.flow import flowing
from benchmarks.results import FOLDER, Table, ratio, write
from benchmarks.turns import measure, take_turns

ROOT = Path(__file__).parent.parent
HERE, THERE = "this", "other"
AIOKAFKA = "aiokafka, "
PARTS = ("drain", "flow", "commit")
COLUMNS = {
    "drain": (("records_per_s", "records/s", "median"), ("cpu_s_per_million", "CPU s per million", "median")),
    "flow": (
        ("cpu_percent", "CPU % of a core", "median"),
        ("p50_ms", "age p50 ms", "median"),
        ("p99_ms", "p99 ms", "median"),
    ),
    "commit": (("p50_ms", "p50 ms", "median"), ("p99_ms", "p99 ms", "median")),
}
DRAINS = {100: (c.FOR, c.MANY, c.POLL), 1_000: (c.FOR, c.MANY)}
RATE, PARTITIONS, COMMITS = 1_000, 4, 500


@contextmanager
def folders(other: Path) -> Iterator[dict[str, Path]]:
    """A folder for each checkout, in which Python finds its package and these benchmarks."""
    with tempfile.TemporaryDirectory() as name:
        found = {}
        for tree, root in ((HERE, ROOT), (THERE, other)):
            found[tree] = Path(name, tree)
            found[tree].mkdir()
            (found[tree] / "aiogroup").symlink_to(root / "aiogroup")
            (found[tree] / "benchmarks").symlink_to(ROOT / "benchmarks")
        yield found


class Trees:
    """Takes turns with the two checkouts."""

    def __init__(self, cluster: Cluster, where: dict[str, Path], rounds: int) -> None:
        self._where = where
        self._rounds = rounds
        self._options = [f"--servers={cluster.bootstrap_servers}", *(f"--ours={node.pid}" for node in cluster.nodes)]

    def compare(self, module: str, scenario: str, clients: Sequence[str], options: list[str], into: Table) -> None:
        """Measure the clients of both checkouts; those of aiokafka, which both have, once."""
        runs = [
            f"{tree}, {client}" for client in clients for tree in ((HERE,) if _is_foreign(client) else (HERE, THERE))
        ]

        def run(which: str) -> dict[str, Any]:
            tree, client = which.split(", ", 1)
            return measure(module, client, [*self._options, *options], folder=self._where[tree])

        for which, result in take_turns(runs, self._rounds, run):
            into.row(scenario, which).runs.append(result)


def _is_foreign(client: str) -> bool:
    return client in (c.AIOKAFKA_FOR, c.AIOKAFKA_MANY)


def drains(trees: Trees, cluster: Cluster, count: int, into: Table) -> None:
    for size, clients in DRAINS.items():
        records = count if size == 100 else count // 3 // c.BATCH * c.BATCH
        backlog = Backlog(f"drained-{size}", PARTITIONS, records, size)
        backlog.write(cluster)
        options = [f"--topic={backlog.topic}", f"--count={records}", f"--size={size}"]
        trees.compare("drain", f"{size} B, {PARTITIONS} partitions", clients, options, into)
        backlog.remove(cluster)


def flow(trees: Trees, cluster: Cluster, seconds: float, into: Table) -> None:
    cluster.create_topic("flow", PARTITIONS)
    with flowing(cluster.bootstrap_servers, "flow", PARTITIONS, RATE) as pid:
        options = [f"--ours={pid}", "--topic=flow", f"--partitions={PARTITIONS}", f"--seconds={seconds}"]
        clients = (c.FOR, c.MANY, c.AIOKAFKA_FOR, c.AIOKAFKA_MANY)
        trees.compare("flowing", f"{RATE} records a second", clients, options, into)


def commits(trees: Trees, cluster: Cluster, into: Table) -> None:
    backlog = Backlog("commits", 1, (COMMITS + 1) * c.BATCH, 100)
    backlog.write(cluster)
    options = [f"--topic={backlog.topic}", f"--commits={COMMITS}"]
    trees.compare("committing", "commits", (c.MANY, c.AIOKAFKA_MANY), options, into)
    backlog.remove(cluster)


def ratios(table: Table) -> Iterator[str]:
    """A line for each metric of each client that both checkouts have."""
    for row in table.rows:
        tree, client = row.client.split(", ", 1)
        if tree != HERE or _is_foreign(client):
            continue
        for metric, title, _ in table.columns:
            other = table.median(row.scenario, f"{THERE}, {client}", metric)
            if (part := ratio(row.median(metric), other)) is not None:
                yield f"{row.scenario}, {client}, {title}: {part:.3f} of the other's"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; all of them by default")
    parser.add_argument("--records", type=int, default=1_500_000, help="of 100 B; a third as many of 1 KB")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the flow")
    args = parser.parse_args()
    if not (args.other / "aiogroup" / "__init__.py").is_file():
        parser.error(f"{args.other} is no checkout of aiogroup")
    tables = {part: Table(part, COLUMNS[part]) for part in args.only or PARTS}
    with folders(args.other.resolve()) as where, Cluster(benchmark=True) as cluster:
        trees = Trees(cluster, where, args.rounds)
        for part, table in tables.items():
            if part == "drain":
                drains(trees, cluster, args.records, table)
            elif part == "flow":
                flow(trees, cluster, args.seconds, table)
            else:
                commits(trees, cluster, table)
            print(table.markdown(), *ratios(table), "", sep="\n", flush=True)
    write(FOLDER / "trees.json", list(tables.values()), rounds=args.rounds)


if __name__ == "__main__":
    main()
