"""`python -m benchmarks.recovering [--quick] [--records N]`: coming back to a backlog while new records flow.

A group committed, crashed, and comes back to 1,000,000 records while 1,000 a second go on: plain, with two lanes
(KIP-333), and aiokafka. Each run has a topic and a group of its own, the clients take turns. Prints tables, judges the
goals, and writes benchmarks/results/recovering.json, which `python -m benchmarks.timeline` draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from aiogroup import ConfigError, Consumer
from aiogroup.devkafka import Cluster
from benchmarks import catching_up as one
from benchmarks import clients as c
from benchmarks import goals
from benchmarks.backlog import Backlog
from benchmarks.compare import shown
from benchmarks.flow import flowing
from benchmarks.results import FOLDER, Table, write
from benchmarks.turns import measure, rotated, take_turns

PARTITIONS, PER_S, SIZE = 4, 1_000, 100
PROCESSED = 100
"""The number of records of each partition that were committed before the crash."""
GOAL_RECORDS = 1_000_000
WORK_US = 20.0
FIRST_LIVE_MS, P99_TIMES, LEAST_RATE, LEAST_BESIDE = 1_000.0, 2.0, 0.5, 0.98
READ, WORK = "reads only", f"works {WORK_US:g} us on each record"
LOOP = ", async for"
OFF, ON = (c.FOR, c.MANY), (c.ON_FOR, c.ON_MANY)
DRAIN = "drain, nothing pending"
COLUMNS = (
    ("first_live_ms", "first live ms, worst", "worst"),
    ("live_p50_ms", "live p50 ms", "median"),
    ("live_p99_ms", "p99 ms", "median"),
    ("steady_p50_ms", "steady p50 ms", "median"),
    ("steady_p99_ms", "p99 ms", "median"),
    ("catch_up_s", "catch-up s", "median"),
    ("catch_up_per_s", "records/s", "median"),
    ("load", "load", "median"),
    ("others_cores", "other cores", "median"),
)
DRAIN_COLUMNS = (
    ("records_per_s", "records/s", "median"),
    ("cpu_s_per_million", "CPU s per million", "median"),
    ("load", "load", "median"),
    ("others_cores", "other cores", "median"),
)


@dataclass(frozen=True)
class Sizes:
    records: int = GOAL_RECORDS
    rounds: int = 3
    steady_s: float = 10.0
    work_rounds: int = 1
    drain_records: int = 1_500_000
    drain_rounds: int = 11


QUICK = Sizes(records=200_000, rounds=1, steady_s=3.0, drain_records=300_000, drain_rounds=1)


def clients() -> tuple[list[str], str]:
    """The clients that can be made, and why another one cannot."""
    try:
        Consumer(group_id="bench", bootstrap_servers="localhost:9", **one.ORDERED)
    except ConfigError as error:
        return [each for each in one.SETTINGS if each != one.IN_ORDER], f"{one.IN_ORDER}: not built ({error})"
    return list(one.SETTINGS), ""


def leave(cluster: Cluster, name: str) -> None:
    """Commit what a group of this name had committed when it crashed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    committed = [TopicPartition(name, partition, PROCESSED) for partition in range(PARTITIONS)]
    until = time.monotonic() + 30
    while True:
        [done] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, committed)]).values()
        try:
            errors = [each.error for each in done.result(30).topic_partitions if each.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            return
        if time.monotonic() > until:  # a broker that has just started does not coordinate yet
            raise SystemExit(f"{name}: not committed in 30 s: {errors[0]}")
        time.sleep(0.1)


def come_back(cluster: Cluster, client: str, name: str, sizes: Sizes, work_us: float) -> dict[str, Any]:
    """One run: a group that crashed long ago comes back."""
    backlog = Backlog(name, PARTITIONS, sizes.records + PARTITIONS * PROCESSED, SIZE)
    backlog.write(cluster)
    leave(cluster, name)
    kind, is_loop = client.removesuffix(LOOP), client.endswith(LOOP)
    options = [f"--servers={cluster.bootstrap_servers}", f"--topic={name}", f"--partitions={PARTITIONS}"]
    options += [f"--group={name}", f"--records={sizes.records}", f"--seconds={sizes.steady_s}"]
    options += [f"--work-us={work_us}", *(["--loop"] if is_loop else [])]
    with flowing(cluster.bootstrap_servers, name, PARTITIONS, PER_S) as pid:
        options += [f"--ours={each}" for each in (*(node.pid for node in cluster.nodes), pid)]
        run = measure("catching_up", kind, options, limit_s=300.0)
    backlog.remove(cluster)
    return run


def recover(cluster: Cluster, sizes: Sizes, into: Table) -> Iterator[str]:
    built, lacks = clients()
    if lacks:
        yield lacks
    come_back(cluster, one.AIOKAFKA, "warm-up", sizes, 0.0)  # a broker that has just started is slow
    ways = [*built, one.PLAIN + LOOP, one.TWO_LANES + LOOP]
    for scenario, who, rounds, work_us in ((READ, ways, sizes.rounds, 0.0), (WORK, built, sizes.work_rounds, WORK_US)):
        for number, (_, client) in enumerate(rotated(who, rounds)):
            name = f"recovering-{scenario.split()[0]}-{number}"
            into.row(scenario, client).runs.append(come_back(cluster, client, name, sizes, work_us))
        yield into.markdown([into.row(scenario, client) for client in who])


def drain(cluster: Cluster, sizes: Sizes, into: Table) -> str:
    """The mode on, with nothing pending, beside the mode off."""
    backlog = Backlog("recovering-drain", PARTITIONS, sizes.drain_records, SIZE)
    backlog.write(cluster)
    options = [f"--topic={backlog.topic}", f"--servers={cluster.bootstrap_servers}", f"--size={SIZE}"]
    options += [f"--count={backlog.count}", *(f"--ours={node.pid}" for node in cluster.nodes)]
    order = [each for pair in zip(OFF, ON, strict=True) for each in pair]
    for client, run in take_turns(order, sizes.drain_rounds, partial(measure, "drain", options=options)):
        into.row(DRAIN, client).runs.append(run)
    backlog.remove(cluster)
    return into.markdown()


def tables() -> tuple[Table, Table]:
    return Table("recover", COLUMNS), Table("drain", DRAIN_COLUMNS)


def judged(told: Sequence[Table]) -> list[goals.Goal]:
    measured = goals.Measured(told)
    ours = (one.TWO_LANES, one.TWO_LANES + LOOP)
    return [
        goals.Goal(
            f"first live record: <= {FIRST_LIVE_MS:g} ms from the assignment, in every round",
            [
                part
                for scenario, client in ((READ, ours[0]), (READ, ours[1]), (WORK, ours[0]))
                for part in measured.highest([("recover", scenario, "first_live_ms")], client, FIRST_LIVE_MS, "worst")
            ],
        ),
        goals.Goal(
            f"p99 age of live records: <= {P99_TIMES:g}x of the steady state",
            [beside_steady(measured, client) for client in ours],
        ),
        goals.Goal(
            f"catch-up: >= {LEAST_RATE:g}x of the plain consumer's",
            [
                measured.ratio(("recover", READ, "catch_up_per_s"), client, other, least=LEAST_RATE)
                for client, other in zip(ours, (one.PLAIN, one.PLAIN + LOOP), strict=True)
            ],
        ),
        goals.Goal(
            f"the mode with nothing pending: >= {LEAST_BESIDE:g}x without it",
            [
                measured.ratio(("drain", DRAIN, "records_per_s"), on, off, least=LEAST_BESIDE)
                for on, off in zip(ON, OFF, strict=True)
            ],
        ),
    ]


def beside_steady(measured: goals.Measured, client: str) -> goals.Part:
    live, steady = (measured.value(("recover", READ, metric), client) for metric in ("live_p99_ms", "steady_p99_ms"))
    if live is None or not steady:
        return goals.Part(f"{client}: not measured", None)
    text = f"{client}: {shown(live)} ms, {shown(live / steady)} x {shown(steady)} ms"
    return goals.Part(text, live <= P99_TIMES * steady)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the records, one round")
    parser.add_argument("--records", type=int, help="records in the backlog")
    parser.add_argument("--rounds", type=int, help="of coming back; the median of them counts")
    parser.add_argument("--parts", default="recover,drain", help="some of %(default)s")
    args = parser.parse_args()
    base = QUICK if args.quick else Sizes()
    sizes = Sizes(
        args.records or base.records,
        args.rounds or base.rounds,
        base.steady_s,
        base.work_rounds,
        base.drain_records,
        base.drain_rounds,
    )
    began_at = time.monotonic()
    told = tables()
    with Cluster(benchmark=True) as cluster:
        if "recover" in args.parts:
            for part in recover(cluster, sizes, told[0]):
                print(f"{part}\n\nafter {time.monotonic() - began_at:.0f} s\n", flush=True)
        if "drain" in args.parts:
            print(drain(cluster, sizes, told[1]) + "\n", flush=True)
    verdicts = judged(told)
    print(goals.markdown(verdicts))
    if sizes.records < GOAL_RECORDS:
        print(f"\nThe goals are about a backlog of {GOAL_RECORDS:,} records, this was {sizes.records:,}.")
    path = FOLDER / "recovering.json"
    write(path, told, quick=args.quick, records=sizes.records, per_s=PER_S, goals=goals.told(verdicts))
    print(f"\nbenchmarks/{FOLDER.name}/{path.name} has every run. It took {time.monotonic() - began_at:.0f} s.")


if __name__ == "__main__":
    main()
