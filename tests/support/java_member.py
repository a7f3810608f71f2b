"""Kafka's own VerifiableConsumer as a member of a group: its events as they come, read off its standard output."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager

ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
}


class JavaMember:
    def __init__(self, cluster, directory, group, topic, *, assignor, instance_id=None, session_timeout_ms=6_000):
        config = directory / f"java-{group}.properties"
        config.write_text("heartbeat.interval.ms=200\nmetadata.max.age.ms=2000\n")
        arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", group]
        arguments += ["--session-timeout", str(session_timeout_ms), "--enable-autocommit", "--verbose"]
        arguments += ["--assignment-strategy", ASSIGNORS[assignor], "--command-config", str(config)]
        if instance_id is not None:
            arguments += ["--group-instance-id", instance_id]
        self.events = []
        self.errors_path = directory / f"java-{group}.err"
        with self.errors_path.open("wb") as errors:
            self.process = cluster.java(
                "org.apache.kafka.tools.VerifiableConsumer", *arguments, stdout=subprocess.PIPE, stderr=errors
            )
        # The tool must never wait for its reader: that would stop its polls, not its heartbeats.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def all(self, name):
        return [event for event in list(self.events) if event["name"] == name]

    @property
    def partitions(self):
        """Its partitions now, by its events (eager protocol: a revocation takes everything)."""
        held = []
        for event in list(self.events):
            if event["name"] == "partitions_assigned":
                held = sorted(each["partition"] for each in event["partitions"])
            elif event["name"] in ("partitions_revoked", "shutdown_complete"):
                held = []
        return held

    def seen(self):
        return {(each["partition"], each["offset"]) for each in self.all("record_data")}

    def stop(self, seconds=20):
        """SIGTERM: it commits, and leaves the group unless it is static."""
        self.process.terminate()
        self.process.wait(seconds)
        self._reader.join(seconds)

    def tail(self):
        return f"{self.events[-5:]}\n{self.errors_path.read_text(errors='replace')[-2_000:]}"


@contextmanager
def java_member(*args, **kwargs):
    member = JavaMember(*args, **kwargs)
    try:
        yield member
    finally:
        member.process.kill()
        member.process.wait()
        member.process.stdout.close()
