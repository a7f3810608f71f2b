"""`python -m examples.demo`: two members share a topic, one is killed, nothing is lost.

Starts aiogroup's embedded broker, or with `--kafka` Apache Kafka, on this machine, produces records, lets two processes
consume them as one group, ends one of them with SIGKILL in the middle and counts. Exit code 1 when a record was lost.
Ctrl-C ends everything it started.
"""

import argparse
import asyncio
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aiokafka import AIOKafkaProducer

from aiogroup.devkafka import DevKafkaError
from aiogroup.embedded import Broker
from examples.demo.reports import Place, Report, hand_over_ms, times_processed

TOPIC, GROUP, PARTITIONS = "demo", "demo", 8
STALL_S = 20
"""If nothing is processed for this time, nothing more will be."""
RECORDS, RECORDS_ON_KAFKA = 50_000, 100_000
REST_MS_TIMES_RECORDS, REST_ON_KAFKA = 400_000, 700_000
"""However many records there are, members need about four seconds for half of them (on Kafka seven), so the kill comes
in the middle.
"""
ROOT = Path(__file__).parents[2]


class Member:
    """A process that consumes, and its report. It ends when its standard input is closed."""

    def __init__(self, name: str, servers: str, directory: Path, rest_ms: int) -> None:
        self.name = name
        self.report = Report(directory / f"{name}.report")
        self._log = directory / f"{name}.log"
        command = [sys.executable, "-m", "examples.demo.member", "--name", name, "--servers", servers]
        command += ["--group", GROUP, "--topic", TOPIC, "--report", str(self.report.path)]
        command += ["--rest-ms", str(rest_ms)]
        with self._log.open("wb") as log:
            # A group of its own: Ctrl-C reaches the demo alone, which ends its members in order.
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )

    def check(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended by itself ({self.process.returncode}):\n{self._log.read_text()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode


async def produce(servers: str, count: int) -> set[Place]:
    """Send records, and return the places that the broker acknowledged."""
    places: set[Place] = set()
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)  # type: ignore[no-untyped-call]
    async with producer:
        for first in range(0, count, 5_000):
            sent = [
                await producer.send(TOPIC, b"record %d" % number, partition=number % PARTITIONS)  # type: ignore[no-untyped-call]
                for number in range(first, min(first + 5_000, count))
            ]
            places |= {(written.partition, written.offset) for written in await asyncio.gather(*sent)}
    return places


def wait_for(condition: Callable[[], bool], *members: Member) -> bool:
    """Read the members' reports until the condition holds; False when nothing happened for STALL_S seconds."""
    stalls_at, seen_count = time.monotonic() + STALL_S, -1
    while True:
        for member in members:
            member.report.read()
        if condition():
            return True
        for member in members:
            member.check()
        count = sum(len(member.report.processed) for member in members)
        if count != seen_count:
            stalls_at, seen_count = time.monotonic() + STALL_S, count
        if time.monotonic() > stalls_at:
            return False
        time.sleep(0.05)


def say(text: str = "") -> None:
    print(text, flush=True)


def start_broker(stack: ExitStack, on_kafka: bool) -> str:
    """Start the broker of the demo, with its topic. Returns where it is."""
    if not on_kafka:
        say("Starting the embedded broker (in this process, in memory; it is not Kafka) ...")
        broker = stack.enter_context(Broker())
        broker.create_topic(TOPIC, PARTITIONS)
        return broker.bootstrap_servers
    from aiogroup.devkafka import Cluster  # noqa: PLC0415 (the embedded broker needs nothing of it)

    say("Starting Apache Kafka (one node, ends with this demo) ...")
    cluster = stack.enter_context(Cluster())
    cluster.create_topic(TOPIC, PARTITIONS)
    return cluster.bootstrap_servers


def run(count: int, on_kafka: bool) -> bool:
    """The demo; False when a record was lost."""
    with ExitStack() as stack:
        servers = start_broker(stack, on_kafka)
        say(f"Producing {count:,} records to {PARTITIONS} partitions ...")
        produced = asyncio.run(produce(servers, count))

        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aiogroup-demo-")))
        say("Starting two members of one group ...")
        rest_ms = max(1, (REST_ON_KAFKA if on_kafka else REST_MS_TIMES_RECORDS) // count)
        members = []
        for name in ("member-1", "member-2"):
            member = Member(name, servers, directory, rest_ms)
            stack.callback(member.end)
            members.append(member)
        took_ms = kill_one(members, count)
        wait_for(lambda: produced <= times_processed(*reports(members)).keys(), members[-1])
        code = members[-1].end()
        members[-1].report.read()
        return conclude(produced, members, took_ms, code)


def kill_one(members: list[Member], count: int) -> int | None:
    """Kill the first member in the middle of the work. Returns how long until the second one takes it over, in
    milliseconds.
    """
    victim, survivor = members
    if not wait_for(lambda: all(len(each.report.holds) == PARTITIONS // 2 for each in members), *members):
        raise SystemExit(f"error: the two members do not share the partitions within {STALL_S} s")
    for member in members:
        say(f"  {member.name} reads partitions {', '.join(map(str, sorted(member.report.holds)))}")
    wait_for(lambda: times_processed(*reports(members)).total() >= count * 3 // 10, *members)
    killed_at_ns = time.monotonic_ns()
    victim.kill()
    victim.report.read()
    say(f"{len(times_processed(*reports(members))):,} records are processed. Killed {victim.name} (SIGKILL).")
    say(f"The group notices when its session ends, 6 s after its last heartbeat; {survivor.name} goes on.")
    left = set(victim.report.holds)
    wait_for(lambda: hand_over_ms(survivor.report, left, killed_at_ns) is not None, survivor)
    say(f"{survivor.name} reads partitions {', '.join(map(str, sorted(survivor.report.holds)))} now.")
    return hand_over_ms(survivor.report, left, killed_at_ns)


def reports(members: list[Member]) -> list[Report]:
    return [member.report for member in members]


def conclude(produced: set[Place], members: list[Member], took_ms: int | None, code: int) -> bool:
    """Print the sums; False when a record was lost or the survivor failed."""
    times = times_processed(*reports(members))
    lost = produced - times.keys()
    say()
    say(f"  produced   {len(produced):>9,}")
    say(f"  processed  {len(times):>9,}   ({', '.join(f'{m.name}: {len(m.report.processed):,}' for m in members)})")
    say(f"  repeated   {times.total() - len(times):>9,}   processed by the dead member, not yet committed")
    say(f"  lost       {len(lost):>9,}")
    took = "never" if took_ms is None else f"{took_ms / 1000:.1f} s"
    say(f"  hand-over  {took:>9}   from the kill to the survivor's first record of the dead member's partitions")
    say()
    if code:
        say(f"error: {members[-1].name} ended with exit code {code}")
    return not lost and not code


def interrupt(number: int, _frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):  # a second one must not interrupt the cleaning up
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    default = f"{RECORDS:,}, on Kafka {RECORDS_ON_KAFKA:,} without it"
    parser.add_argument("--records", type=int, help=f"how many to produce, at least 1000; {default}")
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, not on the embedded broker")
    options = parser.parse_args(arguments)
    if options.records is None:
        options.records = RECORDS_ON_KAFKA if options.kafka else RECORDS
    if options.records < 1_000:
        parser.error("--records: at least 1000, or there is no middle to kill in")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    # The producer logs each retry on a new topic; only the acknowledgements count.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    started_at = time.monotonic()
    try:
        is_good = run(options.records, options.kafka)
    except DevKafkaError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("\nInterrupted; everything that was started is ended.")
        return 130
    verdict = "No record was lost." if is_good else "FAILED: see above."
    broker = "Apache Kafka" if options.kafka else "the embedded broker; on Apache Kafka: make demo KAFKA=1"
    say(f"{verdict} ({time.monotonic() - started_at:.0f} s, on {broker})")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
