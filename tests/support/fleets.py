"""Event log lines as fleets with known troubles would write them. No consumer runs: all lines are made up."""

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
    """One process. Its clock is ahead of the true time by `ahead_ms`; `at` is always the true time."""

    fleet: Fleet
    client_id: str
    host: str
    pid: int = 1
    number: int | None = None
    ahead_ms: int = 0
    settings: dict = field(default_factory=dict)

    def tell(self, at, event, **fields):
        line = {
            "at_ms": at + self.ahead_ms,
            "mono_ms": at,
            "event": event,
            "group": self.fleet.group,
            "client_id": self.client_id,
            "consumer_number": self.number,
            "member_id": f"{self.client_id}-id",
            "host": self.host,
            "pid": self.pid,
            "version": 1,
            **fields,
        }
        self.fleet.told.setdefault(id(self), (self, []))[1].append(line)

    def sample(self, at, **values):
        """A sample with histograms of these values, by the histograms' names."""
        self.tell(
            at,
            "sample",
            settings={**SETTINGS, **self.fleet.settings, **self.settings},
            histograms={name: histogram(each) for name, each in values.items()},
            bucket_step=1,
        )

    def start(self, at, generation, why="joining", **more):
        self.tell(at, "rebalance_started", why=why, generation=generation, **more)

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
    told: dict = field(default_factory=dict)
    generation: int = 0

    @property
    def lines(self):
        """All lines. Each process numbers its lines by time, in whatever order they were added."""
        return [
            {**line, "seq": seq}
            for _, own in self.told.values()
            for seq, line in enumerate(sorted(own, key=lambda each: each["mono_ms"]))
        ]

    def member(self, name, **given):
        return Member(self, f"app-{name}", given.pop("host", f"host-{name}"), **given)

    def rebalance(self, at, members, *, whys=None, waits=None, lasts_ms=400, reasons=None):
        """Let all members rebalance from `at` on. `waits` says how long a member waited for its application."""
        whys, waits = whys or {}, waits or {}
        longest_ms = max((waits.get(each.client_id, 0) for each in members), default=0)
        for each in members:
            reason = {} if reasons is None else {"reason": reasons.get(each.client_id, "group")}
            each.start(at, self.generation, whys.get(each.client_id, "the group rebalances"), **reason)
            each.joining(at + waits.get(each.client_id, 0))
        self.generation += 1
        for each in members:
            each.complete(at + longest_ms + lasts_ms, self.generation, longest_ms + lasts_ms)

    def quiet(self, start, end, members, step=10_000, **values):
        """Add samples of all members, each with these values."""
        for each in members:
            for at in range(start, end, step):
                each.sample(at, **values)


KINDS = {
    "member_moved": lambda r: {"new": r.choice(["preparing", "joining", "adopting", "stable"])},
    "heartbeat_acknowledged": lambda r: {"generation": r.randrange(4), "latency_ms": 3},
    "rebalance_started": lambda r: {
        "why": r.choice(["joining", "the group rebalances"]),
        "generation": r.randrange(4),
        "reason": r.choice(["joining", "group", None]),
    },
    "rebalance_waiting_for_application": lambda r: {"why": "joining", "waited_ms": r.randrange(9_000)},
    "rebalance_completed": lambda r: {
        "generation": r.randrange(4),
        "duration_ms": r.randrange(9_000),
        "partitions": [f"orders-{number}" for number in range(r.randrange(3))],
    },
    "poll_interval_exceeded": lambda r: {"partitions": [], "max_poll_interval_ms": r.randrange(9_000)},
    "event_loop_blocked": lambda r: {"blocked_ms": r.randrange(20_000), "session_timeout_ms": 10_000},
    "process_stood_still": lambda r: {"stood_still_ms": r.randrange(20_000)},
    "session_unanswered": lambda r: {"session_timeout_ms": 10_000, "partitions": []},
    "coordinator_lost": lambda r: {"node_id": r.randrange(3), "why": "silent", "is_expected": r.random() < 0.3},
    "coordinator_found": lambda r: {"node_id": r.randrange(3)},
    "member_removed": lambda _: {"why": "HEARTBEAT: UNKNOWN_MEMBER_ID"},
    "catch_up_started": lambda r: {"topic": "orders", "partition": r.randrange(2), "records_count": r.randrange(9_000)},
    "catch_up_done": lambda r: {"topic": "orders", "partition": r.randrange(2), "duration_ms": r.randrange(9_000)},
    "member_failed": lambda r: {
        "why": r.choice(["uses group_instance_id='a' now", "not authorized"]),
        "error": r.choice(["FencedInstanceIdError", "GroupAuthorizationError", None]),
    },
    "consumer_stopped": lambda r: {"clean": r.random() < 0.5, "duration_ms": 3},
    "an_event_of_a_later_version": lambda _: {"a_new_field": 1},
}
RARE = {"consumer_stopped", "member_failed"}


def _random_sample(r):
    names = ["heartbeat_gap_ms", "request_gap_ms", "record_ms", "batch_records"]
    told = {**SETTINGS, "group_instance_id": r.choice([None, None, "name-0", "name-1"])}
    told["session_timeout_ms"] = r.choice([6_000, 10_000])
    return {
        "settings": {name: str(value) for name, value in told.items() if value is not None},
        "histograms": {name: histogram(r.randrange(1, 10**6) for _ in range(r.randrange(4))) for name in names},
        "bucket_step": r.choice([1, 1, 2]),
        "since_heartbeat_ms": r.choice([None, 0, 2_000]),
    }


def random_lines(r, group):
    """Random lines in any order: several lives, different clocks, copies, late lines, missing ends."""
    lines = []
    for number in range(r.randrange(1, 5)):
        at, seq, ahead_ms = r.randrange(10_000, 100_000), r.randrange(3), r.choice([0, 0, 5_000, -7_000])
        for _ in range(r.randrange(1, 30)):
            at += r.choice([0, 1, 500, 10_000, r.randrange(90_000)])
            seq = 0 if r.random() < 0.03 else seq + 1
            event = r.choice([*KINDS, "sample", "sample"])
            if event in RARE and r.random() < 0.8:
                event = "rebalance_completed"
            own = _random_sample(r) if event == "sample" else KINDS[event](r)
            lines.append(
                {"at_ms": at + ahead_ms, "mono_ms": at, "seq": seq, "event": event, "group": group,
                 "client_id": f"app-{number % 2}", "consumer_number": r.choice([None, 0, number // 2]),
                 "member_id": None, "host": f"host-{number % 3}", "pid": 1,
                 "version": 1, **own}
            )  # fmt: skip
    lines += r.choices(lines, k=r.randrange(5))
    r.shuffle(lines)
    return lines
