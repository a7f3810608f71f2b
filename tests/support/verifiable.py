"""Verifiable clients as processes, ours or Java's, with their lines judged as they come."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.support.contract import ContractError, Group, Member

ROOT = Path(__file__).parents[2]
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


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
            try:
                self.events.append(self._feed(line))
            except ContractError as error:
                self.broken.append(error)

    def all(self, name):
        return [event for event in list(self.events) if event["name"] == name]

    @property
    def names(self):
        return [event["name"] for event in list(self.events)]

    def wait(self, seconds=30):
        """The exit code, once everything is read."""
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
    """With the judgement of its lines: `judged.state`, `.assignment`, `.total_consumed`, `.revoked_count`."""

    def __init__(self, start, judged, log):
        self.judged = judged
        super().__init__(start, judged.feed, log)

    @property
    def partitions(self):
        return sorted(partition for _, partition in self.judged.assignment)

    @property
    def total(self):
        return self.judged.total_consumed


class Bench:
    """Starts verifiable clients for one topic and one group, judges them together, and ends them all."""

    def __init__(self, place, directory):
        self.place = place
        self.group = Group()
        self.members = []
        self._directory = directory
        self._closing = ExitStack()
        self._lock = threading.Lock()
        self._config = directory / "client.properties"
        self._config.write_text("# quick\nheartbeat.interval.ms=200\nmetadata.max.age.ms = 2000\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.close()

    def consumer(self, *arguments, java=False, session_ms=3_000, commits=True, read=True):
        member = Member(self.group)
        member.commits = commits
        feed, lock = member.feed, self._lock

        def locked(line):
            with lock:
                return feed(line)

        member.feed = locked
        given = ["--bootstrap-server", self.place.cluster.bootstrap_servers, "--topic", self.place.topic]
        given += ["--group-id", self.place.group, "--session-timeout", str(session_ms), "--reset-policy", "earliest"]
        given += [
            "--assignment-strategy",
            RANGE,
            "--command-config" if java else "--consumer.config",
            str(self._config),
        ]
        given += [] if commits else ["--enable-autocommit"]
        tool = ConsumerTool(self._start("consumer", [*given, *arguments], java), member, self._log())
        self.members.append(tool)
        return self._keep(tool, read)

    def producer(self, *arguments, java=False, feed=lambda line: line):
        given = ["--bootstrap-server", self.place.cluster.bootstrap_servers, "--topic", self.place.topic]
        return self._keep(Tool(self._start("producer", [*given, *arguments], java), feed, self._log()), True)

    def _keep(self, tool, read):
        self._closing.callback(tool.close)
        return tool.read() if read else tool

    def _log(self):
        return self._directory / f"{len(list(self._directory.iterdir()))}.err"

    def _start(self, name, arguments, java):
        if java:
            main = f"org.apache.kafka.tools.Verifiable{name.capitalize()}"
            return lambda **popen: self.place.cluster.java(main, *arguments, **popen)
        command = [sys.executable, "-m", "aiogroup.verifiable", name, *arguments]
        return lambda **popen: subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "error"}, **popen
        )

    def check(self):
        """No line of any member was a breach."""
        for tool in self.members:
            assert not tool.broken, tool.tail()

    def tails(self):
        return "\n----\n".join(tool.tail() for tool in self.members)
