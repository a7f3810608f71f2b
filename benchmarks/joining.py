"""`python -m benchmarks.joining [--quick]`: a second member joins, aiogroup's beside Java's.

Both sides are processes that print the lines of Kafka's VerifiableConsumer, so both are measured by the same lines: the
time from the newcomer's `startup_complete` until the two hold every partition between them and each has its share, and
the longest time without a record of a partition that the first member keeps. The sides take turns, and each run has a
topic and a group of its own; 1,000 records a second flow all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiogroup.devkafka import Cluster
from benchmarks.results import FOLDER, Table, write
from benchmarks.turns import rotated

PARTITIONS = 4
RECORDS_PER_S = 1_000
PROPERTIES = "heartbeat.interval.ms=100\nfetch.max.wait.ms=100\n"
"""A member learns of a rebalance by its next heartbeat: the default of 3 s would hide everything else."""
JAVA = "org.apache.kafka.clients.consumer."
STRATEGIES = {
    "range": JAVA + "RangeAssignor",
    "cooperative-sticky": JAVA + "CooperativeStickyAssignor",
    "default": f"{JAVA}RangeAssignor,{JAVA}CooperativeStickyAssignor",
}
CLIENTS = ("Java", "aiogroup")
COLUMNS = (
    ("joined_ms", "joined, median ms", "median"),
    ("joined_ms", "worst", "worst"),
    ("gap_ms", "longest gap, median ms", "median"),
    ("gap_ms", "worst", "worst"),
    ("load", "load", "median"),
)


class Member:
    """A verifiable consumer: from its lines, the partitions that it holds and when records of each came."""

    def __init__(self, client: str, cluster: Cluster, arguments: list[str], log: Any) -> None:
        if client == "Java":
            tool = "org.apache.kafka.tools.VerifiableConsumer"
            self.process = cluster.java(tool, *arguments, stdout=subprocess.PIPE, stderr=log)
        else:
            command = [sys.executable, "-m", "aiogroup.verifiable", "consumer", *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        self.held: set[int] = set()
        self.seen: dict[int, list[int]] = {}
        self.started_at_ms = 0
        self.changed_at_ms = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            at_ms = event["timestamp"]
            numbers = {each["partition"] for each in event.get("partitions", ())}
            match event["name"]:
                case "startup_complete":
                    self.started_at_ms = at_ms
                case "partitions_assigned":
                    self.held, self.changed_at_ms = self.held | numbers, at_ms
                case "partitions_revoked":
                    self.held, self.changed_at_ms = self.held - numbers, at_ms
                case "records_consumed":
                    for number in numbers:
                        self.seen.setdefault(number, []).append(at_ms)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._reader.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends_at:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def flow(servers: str, topic: str, is_over: threading.Event) -> None:
    """Produce records all the time, to the partitions in turn."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic has no leader at first

    async def produce() -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as producer:
            count, since = 0, time.monotonic()
            while not is_over.is_set():
                await producer.send(topic, b"x" * 100, partition=count % PARTITIONS)
                count += 1
                await asyncio.sleep(max(0.0, since + count / RECORDS_PER_S - time.monotonic()))

    asyncio.run(produce())


def longest_gap_ms(member: Member, kept: set[int], from_ms: int, to_ms: int) -> int:
    gaps = [0]
    for number in kept:
        at_ms = [each for each in member.seen.get(number, []) if from_ms - 500 <= each <= to_ms + 500]
        gaps += [later - earlier for earlier, later in itertools.pairwise(at_ms)]
    return max(gaps)


def measure(client: str, strategy: str, cluster: Cluster, name: str, directory: pathlib.Path) -> dict[str, Any]:
    cluster.create_topic(name, PARTITIONS)
    config = directory / "member.properties"
    config.write_text(PROPERTIES)
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", name, "--group-id", name]
    arguments += ["--assignment-strategy", STRATEGIES[strategy], "--enable-autocommit"]
    arguments += ["--session-timeout", "10000", "--command-config", str(config)]
    is_over = threading.Event()
    flowing = threading.Thread(target=flow, args=(cluster.bootstrap_servers, name, is_over))
    members: list[Member] = []
    with (directory / "errors.txt").open("ab") as log:
        try:
            flowing.start()
            members.append(Member(client, cluster, arguments, log))
            first = members[0]
            everything = set(range(PARTITIONS))
            until(lambda: first.held == everything and len(first.seen) == PARTITIONS, "the first member reads")
            time.sleep(2)  # a Java member compiles its code as it runs: measure one that has run for a while
            members.append(Member(client, cluster, arguments, log))
            second = members[1]

            def is_shared() -> bool:
                shares = [len(member.held) for member in members]
                return sum(shares) == PARTITIONS and min(shares) == PARTITIONS // 2

            until(is_shared, "both have their share")
            time.sleep(1)  # read the records after it, and see a further round if there is one
            if not is_shared():
                raise SystemExit("they had their share and gave it up again")
            stable_at_ms = max(first.changed_at_ms, second.changed_at_ms)
            return {
                "joined_ms": stable_at_ms - second.started_at_ms,
                "gap_ms": longest_gap_ms(first, set(first.held), second.started_at_ms, stable_at_ms),
                "load": os.getloadavg()[0],
            }
        finally:
            is_over.set()
            flowing.join(20)
            for member in reversed(members):
                member.end()


def table() -> Table:
    return Table("join", COLUMNS)


def scenario(strategy: str) -> str:
    return f"second member joins, {strategy}"


def joins(strategies: Sequence[str], rounds: int, into: Table) -> Iterator[str]:
    with Cluster() as cluster, tempfile.TemporaryDirectory() as directory:
        for turn, client in rotated(CLIENTS, rounds):
            for strategy in strategies:
                name = f"joining-{strategy}-{client}-{turn}"
                run = measure(client, strategy, cluster, name, pathlib.Path(directory))
                into.row(scenario(strategy), client).runs.append(run)
    yield into.markdown([into.row(scenario(strategy), client) for strategy in strategies for client in CLIENTS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    options = parser.parse_args()
    told = table()
    for part in joins(tuple(STRATEGIES), 3 if options.quick else options.rounds, told):
        print(part)
    write(FOLDER / "joining.json", [told], quick=options.quick)


if __name__ == "__main__":
    main()
