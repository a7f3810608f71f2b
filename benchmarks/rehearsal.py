"""`python -m benchmarks.rehearsal [--quick] [--keep FOLDER]`: faults of three real members, and advice against them.

Three processes with static names read one topic of a real Kafka for ten minutes. Into their work come handlers that
take 20 s, an event loop that is blocked for 12 s, and a rolling restart, with time-outs that are too short for all of
them. `aiogroup.spark.liveness` reads what their event logs tell; its advice is applied, and the same is run again.

It is a benchmark and no example since it takes 20 minutes; `examples/tune_timeouts.py` shows the same in virtual time.
Each step is a command of its own, too: `fleet FOLDER [SETTINGS]` runs the members and leaves their logs there, `advise
FOLDER` reads them, writes report.html and findings.json there, and prints what is advised. Without a step all are run,
and benchmarks/results/rehearsal.json is written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from aiogroup import Consumer, ConsumerStoppedError
from aiogroup.devkafka import Cluster
from aiogroup.eventlog import EventLog
from benchmarks.results import FOLDER, machine, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("billing-0", "billing-1", "billing-2")
PARTITIONS = 6
RECORDS_EVERY_S = 0.1
STOP_S = 30
NEEDLESS = ("poll_interval_exceeded", "loop_blocked", "session_expired", "left", "crashed", "returned", "rejoined")
"""What a rebalance is called that better settings spare; the others are of the group's beginning."""


@dataclass(frozen=True)
class Plan:
    """How long all lasts, what is injected when (as parts of the whole), and the settings before any advice."""

    whole_s: float = 600
    slow_s: float = 20
    blocked_s: float = 12
    away_s: float = 20
    settle_s: float = 20
    sample_ms: int = 10_000
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 2_000
    max_poll_interval_ms: int = 10_000
    slow_at: tuple[float, ...] = (0.10, 0.60)
    blocked_at: tuple[float, ...] = (0.20, 0.75)
    restart_at: float = 0.30
    topic: str = "orders"
    group: str = "billing"

    @property
    def settings(self) -> dict[str, int]:
        return {
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "max_poll_interval_ms": self.max_poll_interval_ms,
        }


FULL = Plan()
QUICK = Plan(
    whole_s=60, slow_s=5, blocked_s=4, away_s=4, settle_s=4, sample_ms=1_000, session_timeout_ms=2_000,
    heartbeat_interval_ms=500, max_poll_interval_ms=3_000, slow_at=(0.10,), blocked_at=(0.25,), restart_at=0.40,
)  # fmt: skip


# A member, which is a process of its own.


async def member(options: dict[str, Any]) -> None:
    folder = Path(options["folder"])
    async with EventLog(folder / "logs", interval_ms=options["sample_ms"]) as log:
        consumer = Consumer(options["topic"], auto_offset_reset="earliest", observers=[log], **options["settings"])
        async with consumer, asyncio.TaskGroup() as stopping:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, lambda: stopping.create_task(consumer.stop()))
            with suppress(ConsumerStoppedError):
                async for record in consumer:
                    await handle(record.value.decode(), options, folder)


async def handle(value: str, options: dict[str, Any], folder: Path) -> None:
    """A record whose handler took too long comes again, to another member: only the first one is held up."""
    kind, _, number = value.partition("-")
    if not number or not is_first(folder / f"{value}.done"):
        return
    if kind == "slow":
        await asyncio.sleep(options["slow_s"])
    else:
        time.sleep(options["blocked_s"])  # noqa: ASYNC251 (this is the fault)


def is_first(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


# The fleet.


class Fleet:
    def __init__(self, servers: str, plan: Plan, settings: dict[str, int], folder: Path) -> None:
        self._given = {"folder": str(folder), **asdict(plan)}
        self._settings = {"bootstrap_servers": servers, "group_id": plan.group, **settings}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        own = {**self._settings, "client_id": name, "group_instance_id": name}
        command = [sys.executable, "-m", "benchmarks.rehearsal", "member", json.dumps({**self._given, "settings": own})]
        self._running[name] = subprocess.Popen(command)

    async def stop(self, *names: str) -> None:
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        for name in names:
            await asyncio.to_thread(self._running.pop(name).wait, STOP_S)

    def end(self) -> None:
        for each in self._running.values():
            each.kill()
            each.wait()


async def run_fleet(servers: str, plan: Plan, settings: dict[str, int], folder: Path) -> None:
    (folder / "logs").mkdir(parents=True)
    fleet = Fleet(servers, plan, settings, folder)
    faults = [(at, f"slow-{number}") for number, at in enumerate(plan.slow_at)]
    faults += [(at, f"blocked-{number}") for number, at in enumerate(plan.blocked_at)]
    loop = asyncio.get_running_loop()
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer, asyncio.TaskGroup() as tasks:
        working = tasks.create_task(work(producer, plan.topic))
        try:
            for name in NAMES:
                fleet.start(name)
            began_s = loop.time()
            restarting = tasks.create_task(restart(fleet, plan))
            for at, value in sorted(faults):
                await asyncio.sleep(began_s + at * plan.whole_s - loop.time())
                await producer.send_and_wait(plan.topic, value.encode(), partition=len(value) % PARTITIONS)
            await restarting
            await asyncio.sleep(began_s + plan.whole_s - loop.time())
            await fleet.stop(*NAMES)
        finally:
            fleet.end()
            working.cancel()


async def restart(fleet: Fleet, plan: Plan) -> None:
    await asyncio.sleep(plan.restart_at * plan.whole_s)
    for name in NAMES:
        await fleet.stop(name)
        await asyncio.sleep(plan.away_s)
        fleet.start(name)
        await asyncio.sleep(plan.settle_s)


async def work(producer: AIOKafkaProducer, topic: str) -> None:
    number = 0
    while True:
        await producer.send(topic, b"work", partition=number % PARTITIONS)
        await asyncio.sleep(RECORDS_EVERY_S)
        number += 1


def on_kafka(plan: Plan, settings: dict[str, int], folder: Path) -> None:
    """A cluster of its own for each run: nothing of one is left for the next."""
    properties = {"group.initial.rebalance.delay.ms": "3000", "group.min.session.timeout.ms": "1000"}
    with Cluster(properties=properties) as cluster:
        cluster.create_topic(plan.topic, PARTITIONS)
        asyncio.run(run_fleet(cluster.bootstrap_servers, plan, settings, folder))


# The analysis.


def advised(folder: Path, plan: Plan) -> dict[str, Any]:
    """What the log of one run tells, by a Spark of its own; it stays in the folder."""
    from aiogroup.spark.session import make_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    spark = make_session("local[2]", name="rehearsal", conf=conf)
    try:
        return read(spark, folder, plan)
    finally:
        spark.stop()


def read(spark: SparkSession, folder: Path, plan: Plan) -> dict[str, Any]:
    """The rebalances with their causes, and the advice."""
    from aiogroup.spark.liveness import Enough, advise, read_events
    from aiogroup.spark.liveness.output.report import page
    from aiogroup.spark.liveness.output.text import as_text

    events = read_events(spark, folder / "logs")
    # Ten minutes are no day, and one restart is not thirty: the faults are known here.
    advice = advise(events, enough=Enough(observations_count=len(NAMES), span_ms=int(0.8 * plan.whole_s * 1_000)))
    print(as_text(advice), flush=True)
    (folder / "report.html").write_text(page(advice), encoding="utf-8")
    (found,) = advice.findings
    began = found.story.started_at_ms
    findings = {
        "rebalances": [
            {
                "after_s": round((each.started_at_ms - began) / 1_000, 1),
                "cause": each.cause,
                "member": each.caused_by.partition("@")[0],
                "members_count": each.members_count,
                "standstill_s": round(each.standstill_ms / 1_000, 1),
            }
            for each in found.story.rebalances
        ],
        "advice": [each._asdict() for each in found.proposals],
        "changed": {each.setting: each.proposed for each in found.proposals if each.verdict == "change"},
    }
    (folder / "findings.json").write_text(json.dumps(findings, indent=1) + "\n")
    return findings


def needless(findings: dict[str, Any]) -> Counter[str]:
    """How many rebalances had which cause, without those by which the group began."""
    return Counter(each["cause"] for each in findings["rebalances"] if each["cause"] in NEEDLESS)


def rehearse(plan: Plan, folder: Path) -> dict[str, Any]:
    before, after = folder / "before", folder / "after"
    on_kafka(plan, plan.settings, before)
    first = advised(before, plan)
    on_kafka(plan, plan.settings | first["changed"], after)
    second = advised(after, plan)
    return {"plan": asdict(plan), "before": first, "after": second}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="?", choices=("fleet", "advise", "member"))
    parser.add_argument("given", nargs="*", help="of the step")
    parser.add_argument("--quick", action="store_true", help="a minute each time, and shorter faults")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the logs and reports are left")
    args = parser.parse_args()
    plan = QUICK if args.quick else FULL
    if args.step == "member":
        asyncio.run(member(json.loads(args.given[0])))
    elif args.step == "fleet":
        folder, *more = args.given
        on_kafka(plan, plan.settings | json.loads(more[0] if more else "{}"), Path(folder))
    elif args.step == "advise":
        print(json.dumps(advised(Path(args.given[0]), plan)["changed"]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            told = rehearse(plan, args.keep or Path(temporary))
        for name in ("before", "after"):
            count = needless(told[name])
            print(f"{name}: {count.total()} needless rebalances {dict(count)}")
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / "rehearsal.json"
        path.write_text(json.dumps({"versions": versions(), "machine": machine(), **told}, indent=1) + "\n")
        print(f"benchmarks/{FOLDER.name}/{path.name} has every rebalance.")


if __name__ == "__main__":
    main()
