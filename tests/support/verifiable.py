"""Verifiable clients as processes, aiogroup's or Java's, with their lines judged as they come."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from itertools import chain

from aiokafka import AIOKafkaConsumer

from tests.support.contract import COOPERATIVE, ContractError, Group, member_for, one_owner
from tests.support.forked import Forked
from tests.support.group_members import until
from tests.support.nodes import load
from tests.support.sources import ROOT

PACKAGE = "org.apache.kafka.clients.consumer."
RANGE = PACKAGE + "RangeAssignor"
STRATEGIES = {
    "range": RANGE,
    "roundrobin": PACKAGE + "RoundRobinAssignor",
    "sticky": PACKAGE + "StickyAssignor",
    "cooperative-sticky": COOPERATIVE,
    "default": f"{RANGE},{COOPERATIVE}",  # Java's default
}


class Tool:
    """A process whose standard output is read by a thread; `feed(line)` judges each line and gives the event."""

    def __init__(self, start, feed, log):
        self.events = []
        self.broken = []
        self._feed = feed
        self._log = log
        self._reader = None
        with log.open("wb") as errors:
            self.process = start(stdout=subprocess.PIPE, stderr=errors)

    def read(self):
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self):
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # SIGKILL cut the line off: it does not count
            try:
                self.events.append(self._feed(line))
            except ContractError as error:
                self.broken.append(error)

    def all(self, name):
        return [event for event in list(self.events) if event["name"] == name]

    @property
    def names(self):
        return [event["name"] for event in list(self.events)]

    def wait(self, seconds=40):
        """Wait until everything is read. Returns the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def end(self, seconds=30):
        self.process.terminate()
        return self.wait(seconds)

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        self.process.kill()
        self.process.wait()
        if self._reader is not None:
            self._reader.join(10)
        self.process.stdout.close()

    def tail(self):
        return f"{self.broken}\n{self.events[-6:]}\n{self._log.read_text(errors='replace')[-2_500:]}"


class ConsumerTool(Tool):
    """A consumer whose lines are judged: `judged.state`, `.assignment`, `.total_consumed`, `.revoked_count`."""

    def __init__(self, start, judged, log):
        self.judged = judged
        super().__init__(start, judged.feed, log)

    @property
    def partitions(self):
        return sorted(partition for _, partition in self.judged.assignment)

    @property
    def total(self):
        return self.judged.total_consumed

    @property
    def is_leader(self):
        """Whether an aiogroup consumer leads, by the last rebalance in its log, which may come after its printed line.
        `None` before.
        """
        told = re.findall(r"rebalance_completed.* is_leader=(\w+)", self._log.read_text(errors="replace"))
        return told[-1] == "True" if told else None

    def kill(self):
        """SIGKILL, and the harness's bookkeeping for it (handle_kill_process)."""
        self.process.kill()
        self.wait()
        self.judged.on_killed()
        self._loses()

    def freeze(self):
        """SIGSTOP: others get its partitions without its knowledge."""
        self.signal(signal.SIGSTOP)
        self.judged.is_overdue = True
        self._loses()

    def thaw(self):
        self.signal(signal.SIGCONT)

    def _loses(self):
        self.events.append({"timestamp": time.time_ns() // 1_000_000, "name": "lost"})


def offsets(event):
    """The (partition, offset)s of records_consumed."""
    ranges = ((each["partition"], range(each["minOffset"], each["maxOffset"] + 1)) for each in event["partitions"])
    return [(partition, offset) for partition, some in ranges for offset in some]


class Bench:
    """Starts verifiable clients for one topic and one group, judges them together, and ends them all."""

    def __init__(self, place, directory):
        self.place = place
        self.group = Group()
        self.members = []
        self.producers = []
        self.loads = []
        self.forks = True
        """Whether aiogroup's clients are forked; otherwise they are started as `python -m aiogroup.verifiable`."""
        self.times_read = Counter()
        self.uncommitted = set()
        """(partition, offset)s: how often each was read, and which were told as not committed."""
        self._directory = directory
        self._closing = ExitStack()
        self._lock = threading.Lock()
        self._config = directory / "client.properties"
        self._config.write_text("# quick\nheartbeat.interval.ms=200\nmetadata.max.age.ms = 2000\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.close()

    def consumer(self, *arguments, java=False, strategy=RANGE, session_ms=3_000, commits=True, read=True, group=None):
        member = member_for(strategy, group or self.group)
        member.commits = commits
        feed, lock = member.feed, self._lock

        batch = []

        def locked(line):
            with lock:
                event = feed(line)
                if event["name"] == "records_consumed":
                    batch[:] = offsets(event)
                    self.times_read.update(batch)
                elif event["name"] == "offsets_committed" and not event["success"]:
                    self.uncommitted.update(batch)
                return event

        member.feed = locked
        given = ["--bootstrap-server", self.place.cluster.bootstrap_servers, "--topic", self.place.topic]
        given += ["--group-id", self.place.group, "--session-timeout", str(session_ms), "--reset-policy", "earliest"]
        given += [
            "--assignment-strategy",
            strategy,
            "--command-config" if java else "--consumer.config",
            str(self._config),
        ]
        given += [] if commits else ["--enable-autocommit"]
        tool = ConsumerTool(self._start("consumer", [*given, *arguments], java), member, self._log())
        self.members.append(tool)
        return self._keep(tool, read)

    def producer(self, *arguments, java=False):
        given = ["--bootstrap-server", self.place.cluster.bootstrap_servers, "--topic", self.place.topic]
        tool = Tool(self._start("producer", [*given, *arguments], java), json.loads, self._log())
        self.producers.append(tool)
        return self._keep(tool, True)

    @asynccontextmanager
    async def load(self):
        """Produce records all the time, from this process, to all partitions."""
        async with load(self.place.cluster, self.place.topic, self.place.partitions) as acknowledged:
            self.loads.append(acknowledged)
            yield acknowledged

    def _keep(self, tool, read):
        self._closing.callback(tool.close)
        return tool.read() if read else tool

    def _log(self):
        return self._directory / f"{len(list(self._directory.iterdir()))}.err"

    def _start(self, name, arguments, java):
        if java:
            main = f"org.apache.kafka.tools.Verifiable{name.capitalize()}"
            return lambda **popen: self.place.cluster.java(main, *arguments, **popen)
        command = ["aiogroup.verifiable", name, *arguments]
        if self.forks:
            return lambda **popen: Forked(*command, **popen)
        return lambda **popen: subprocess.Popen([sys.executable, "-W", "error", "-m", *command], cwd=ROOT, **popen)

    async def shared(self, *members, seconds=40, each_has=True):
        """Wait until these members hold every partition exactly once, and each of them at least one."""

        def so():
            held = [member.partitions for member in members]
            joined = all(member.judged.state == "joined" for member in members) and (all(held) or not each_has)
            return joined and sorted(chain(*held)) == list(range(self.place.partitions))

        await until(so, seconds, self.tails)

    async def read_on(self, *members, count=20, seconds=30):
        """Wait until each member has read `count` more records, while records come."""
        before = [member.total for member in members]
        await until(
            lambda: all(member.total >= total + count for member, total in zip(members, before, strict=True)),
            seconds,
            self.tails,
        )
        self.check()

    async def end(self, *members):
        """Send SIGTERM to all of them, and check that they end in order."""
        for member in members:
            member.signal(signal.SIGTERM)
        for member in members:
            assert await asyncio.to_thread(member.wait) == 128 + signal.SIGTERM, member.tail()
        self.check()

    async def all_read(self, acknowledged, *, repeats=False, seconds=30):
        """Check that everything acknowledged so far is read. A record may be read twice only if a commit had failed, or
        with `repeats`.
        """
        sent = set(acknowledged)
        await until(
            lambda: self.times_read.keys() >= sent,
            seconds,
            lambda: f"nobody was told of {sorted(sent - self.times_read.keys())[:20]}\n{self.tails()}",
        )
        twice = {record for record, count in self.times_read.items() if count > 1}
        assert repeats or twice <= self.uncommitted, f"{sorted(twice - self.uncommitted)}\n{self.tails()}"

    async def all_committed(self, seconds=10):
        """Wait until the broker's committed offsets cover everything that they read. Do not call it when nobody commits
        any more.
        """
        found = {}
        ends_at = time.monotonic() + seconds
        while found != (ends := self._ends()):
            assert time.monotonic() < ends_at, f"{found} is committed, {ends} is read:\n{self.tails()}"
            found = {number: await self.place.committed(number) for number in ends}

    def _ends(self):
        ends = {}
        for partition, offset in self.times_read:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return ends

    def check(self):
        """Check that no line of any member broke the contract."""
        for tool in self.members:
            assert not tool.broken, tool.tail()

    def check_owners(self):
        """Check that no partition had two owners at a time. Do not call it if a fenced member learns late that it was
        fenced.
        """
        self.check()
        one_owner(*(list(tool.events) for tool in self.members))

    def tails(self):
        """The progress, and for each client what broke the contract, its last events, and the end of its log."""
        return "\n----\n".join([self.records(), *(tool.tail() for tool in self.members)])

    def records(self):
        """The progress of the log, of the producers' acks and of the readers."""
        now, acks = time.time(), defaultdict(list)
        for partition, (offset, at) in chain.from_iterable(each.last.items() for each in self.loads):
            acks[partition].append((at, offset))
        for event in chain.from_iterable(tool.all("producer_send_success") for tool in self.producers):
            acks[event["partition"]].append((event["timestamp"] / 1_000, event["offset"]))
        acked = {partition: max(some) for partition, some in sorted(acks.items())}
        told = ", ".join(f"{offset} of {partition} {now - at:.1f} s ago" for partition, (at, offset) in acked.items())
        return f"the log ends: {self._log_ends()}\nread up to: {self._ends()}\nlast acks: {told or 'none'}"

    def _log_ends(self):
        """The ends of the logs. They are asked from a thread, because this is called from a running loop that is about
        to fail.
        """

        async def ask():
            async with (
                asyncio.timeout(10),
                AIOKafkaConsumer(bootstrap_servers=self.place.cluster.bootstrap_servers) as us,
            ):
                found = await us.end_offsets([self.place.tp(number) for number in range(self.place.partitions)])
            return {tp.partition: end for tp, end in sorted(found.items())}

        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(asyncio.run, ask()).result()
            except Exception as error:  # noqa: BLE001 (nothing may stand in the way of what failed)
                return f"unknown, {error!r}"
