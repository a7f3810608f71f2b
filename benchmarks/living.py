"""A service's everyday work: latency at a steady rate, commits, and one busy partition beside a thousand idle ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from aiogroup.devkafka import Cluster
from benchmarks import clients as c
from benchmarks.backlog import Backlog
from benchmarks.flow import flowing
from benchmarks.results import Table
from benchmarks.turns import measure, rotated, take_turns

FLOW = "1000 records a second, 4 partitions"
IDLE = "1000 idle partitions, one with 100 records a second"
COMMIT = "commit of what was just read"
LIBRARIES = (c.AIOKAFKA_MANY, c.AIO_CONSUMER, c.CONSUMER, c.MANY)
SETTLE_RUNS, SETTLED_MS = 4, 50.0
ALL = (c.AIOKAFKA_FOR, *LIBRARIES, c.FOR, c.FLOOR_HEAD)
CIRCUMSTANCES = (("load", "load", "median"), ("others_cores", "other cores", "median"))
AGES = (("p50_ms", "p50 ms", "median"), ("p99_ms", "p99 ms", "median"), ("latest_ms", "latest ms, of all", "worst"))
FLOW_COLUMNS = (*AGES, ("cpu_percent", "CPU % of a core", "median"), *CIRCUMSTANCES)


def flow_table() -> Table:
    return Table("flow", FLOW_COLUMNS)


def commit_table() -> Table:
    return Table("commit", (*AGES, *CIRCUMSTANCES))


def latency(cluster: Cluster, seconds: float, rounds: int, into: Table) -> str:
    """The latency from making a record to having it in hand."""
    cluster.create_topic("flow", 4)
    with flowing(cluster.bootstrap_servers, "flow", 4, 1_000) as pid:
        options = [*_options(cluster, pid), "--topic=flow", "--partitions=4", f"--seconds={seconds}"]
        return _read(FLOW, ALL, options, rounds, into)


def idle(cluster: Cluster, clients: Sequence[str], seconds: float, rounds: int, into: Table) -> str:
    cluster.create_topic("busy", 1)
    cluster.create_topic("idle", 1_000)
    with flowing(cluster.bootstrap_servers, "busy", 1, 100) as pid:
        topics = ["--topic=busy", "--topic=idle", "--partitions=1"]
        return _read(IDLE, clients, [*_options(cluster, pid), *topics, f"--seconds={seconds}"], rounds, into)


def _options(cluster: Cluster, *others: int) -> list[str]:
    pids = [*(node.pid for node in cluster.nodes), *others]
    return [f"--servers={cluster.bootstrap_servers}", *(f"--ours={pid}" for pid in pids)]


def _read(scenario: str, clients: Sequence[str], options: Sequence[str], rounds: int, into: Table) -> str:
    _settle(options)
    for _, client in rotated(clients, rounds):
        into.row(scenario, client).runs.append(measure("flowing", client, options))
    return into.markdown([into.row(scenario, client) for client in clients])


def _settle(options: Sequence[str]) -> None:
    """Wait: a broker that has just started takes single records more slowly than they are made, so they would be
    seconds old.
    """
    for _ in range(SETTLE_RUNS):
        if measure("flowing", c.CONSUMER, options).get("p99_ms", math.inf) <= SETTLED_MS:
            return


def commits(cluster: Cluster, count: int, rounds: int, into: Table) -> str:
    """Commits with one partition, so that every client commits the same number of offsets each time."""
    backlog = Backlog("commits", 1, (count + 1) * c.BATCH, 100)
    backlog.write(cluster)
    options = [*_options(cluster), f"--topic={backlog.topic}", f"--commits={count}"]
    for client, run in take_turns(LIBRARIES, rounds, partial(measure, "committing", options=options)):
        into.row(COMMIT, client).runs.append(run)
    backlog.remove(cluster)
    return into.markdown()
