"""Lines of an event log as fleets with known troubles would have written them: nothing runs, everything is planted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

DAY_MS = 86_400_000
SETTINGS = {
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "rebalance_timeout_ms": None,
    "max_poll_records": 500,
    "registration_timeout_ms": None,
    "expansion_timeout_ms": 0,
    "parallel_min_backlog": 1_000,
    "group_instance_id": None,
}


def bucket_of(value):
    """The bucket that holds the value: above 2 ** ((i - 1) / 4), up to 2 ** (i / 4)."""
    return 0 if value <= 1 else math.ceil(4 * math.log2(value) - 1e-9)


def histogram(values):
    return {str(bucket): count for bucket, count in sorted(Counter(map(bucket_of, values)).items())}


@dataclass
class Member:
    """One process. Its clock is `ahead_ms` of the true time; `at` is always the true time."""

    fleet: Fleet
    client_id: str
    host: str
    pid: int = 1
    ahead_ms: int = 0
    settings: dict = field(default_factory=dict)
    seq: int = 0

    def tell(self, at, event, **fields):
        line = {
            "at_ms": at + self.ahead_ms,
            "mono_ms": at,
            "seq": self.seq,
            "event": event,
            "group": self.fleet.group,
            "client_id": self.client_id,
            "member_id": f"{self.client_id}-id",
            "host": self.host,
            "pid": self.pid,
            "version": 1,
            **fields,
        }
        self.seq += 1
        self.fleet.lines.append(line)

    def sample(self, at, **values):
        """A sample with histograms of these values, by the histograms' names."""
        self.tell(
            at,
            "sample",
            settings={**SETTINGS, **self.fleet.settings, **self.settings},
            histograms={name: histogram(each) for name, each in values.items()},
            bucket_step=1,
        )

    def start(self, at, generation, why="joining"):
        self.tell(at, "rebalance_started", why=why, generation=generation)

    def joining(self, at):
        self.tell(at, "member_moved", old="preparing", new="joining", why="")

    def complete(self, at, generation, duration_ms, partitions_count=2, why="the group rebalances"):
        self.tell(at, "member_moved", old="syncing", new="adopting", why="")
        partitions = [f"orders-{number}" for number in range(partitions_count)]
        self.tell(
            at,
            "rebalance_completed",
            why=why,
            generation=generation,
            partitions=partitions,
            duration_ms=duration_ms,
            is_leader=False,
        )

    def stop(self, at):
        self.tell(at, "consumer_stopped", clean=True, duration_ms=100)


@dataclass
class Fleet:
    """A group, and everything that its members wrote."""

    group: str = "billing"
    settings: dict = field(default_factory=dict)
    lines: list = field(default_factory=list)
    generation: int = 0

    def member(self, name, **given):
        return Member(self, f"app-{name}", given.pop("host", f"host-{name}"), **given)

    def rebalance(self, at, members, *, whys=None, waits=None, lasts_ms=400):
        """All of them rebalance together, from `at` on; `waits` says how long one waited for its application."""
        whys, waits = whys or {}, waits or {}
        longest_ms = max((waits.get(each.client_id, 0) for each in members), default=0)
        for each in members:
            each.start(at, self.generation, whys.get(each.client_id, "the group rebalances"))
            each.joining(at + waits.get(each.client_id, 0))
        self.generation += 1
        for each in members:
            each.complete(at + longest_ms + lasts_ms, self.generation, longest_ms + lasts_ms)

    def quiet(self, start, end, members, step=10_000, **values):
        """Samples of everybody, each with these values."""
        for each in members:
            for at in range(start, end, step):
                each.sample(at, **values)
