"""A backlog read in the order of its timestamps and in any order: `merged()` beside `async for`.

The timestamps go round the partitions, so that every record comes from another partition than the last: the hardest
case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from aiogroup.devkafka import Cluster
from benchmarks import clients as c
from benchmarks.backlog import Backlog
from benchmarks.draining import COLUMNS
from benchmarks.results import Table
from benchmarks.turns import measure, take_turns

PARTITIONS: Sequence[int] = (50, 2)
SIZE = 100


def name(partitions: int) -> str:
    return f"by time, {partitions} partitions"


def table() -> Table:
    return Table("merge", COLUMNS, c.FOR, "records_per_s")


def merges(cluster: Cluster, partitions: Sequence[int], count: int, rounds: int, into: Table) -> Iterator[str]:
    """Yields the Markdown of each scenario when it is done."""
    for each in partitions:
        backlog = Backlog(f"merging-{each}", each, count, SIZE, is_timed=True)
        backlog.write(cluster)
        options = ["--topic", backlog.topic, "--servers", cluster.bootstrap_servers]
        options += ["--count", str(count), "--size", str(SIZE), *(f"--ours={node.pid}" for node in cluster.nodes)]
        clients = (c.FOR, c.MERGED)
        for client, run in take_turns(clients, rounds, partial(measure, "drain", options=options)):
            into.row(name(each), client).runs.append(run)
        backlog.remove(cluster)
        yield into.markdown([into.row(name(each), client) for client in clients])
