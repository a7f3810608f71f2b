"""Stretches: the lines of one member from one completed rebalance to the next, folded into one row.

Everything else is computed from these rows and from the merged histograms. The reference makes them from lines, and the
job makes them with Spark. Everything after that is the same code.

A member is named by its client id, host, process and number among the process's consumers (0 in an older log). A new
**life** begins after a line about the member's end, and when the sequence numbers start again: in a container a new
process often has the host and the process id of the old one. If the numbers continue after a silence, the process was
paused, or its log has a hole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = [
    "ENDING",
    "FIELDS",
    "HEARD",
    "INCIDENTS",
    "MOST_MS",
    "NUMBER",
    "SETTINGS",
    "SILENCE_MS",
    "Incident",
    "Stretch",
    "in_order",
]

SILENCE_MS: Final = 60_000
"""Six samples: a member without a line for this time counts as gone."""
MOST_MS: Final = 253_402_300_799_999
"""The end of the year 9999. A line of a later time is no event, and a field with a greater number counts as missing, so
that no sum or difference overflows.
"""
SETTINGS: Final = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "rebalance_timeout_ms",
    "max_poll_records",
    "registration_timeout_ms",
    "expansion_timeout_ms",
    "parallel_min_backlog",
)
"""The settings of a sample that are numbers, in the order of `Stretch.settings`."""
NUMBER: Final = "^[0-9]{1,18}$"
"""A text that is a number and fits into a long."""
ENDING: Final = ("consumer_stopped",)
"""The last events of a life. A failure is not among them: the member still reports what it lost, and is sampled."""
HEARD: Final = ("heartbeat_acknowledged", "rebalance_completed")
"""Events which show that the coordinator has heard of the member. Most logs have no heartbeats, but each sample has
`since_heartbeat_ms`.
"""
INCIDENTS: Final = {
    "poll_interval_exceeded": "max_poll_interval_ms",
    "event_loop_blocked": "blocked_ms",
    "process_stood_still": "stood_still_ms",
    "session_unanswered": "session_timeout_ms",
    "coordinator_lost": "node_id",
    "coordinator_found": "node_id",
    "member_removed": None,
    "catch_up_started": "records_count",
    "catch_up_done": "duration_ms",
}
"""The events that are kept one by one, and the field of each that is kept as `Incident.amount`."""
FIELDS: Final = frozenset(filter(None, INCIDENTS.values())) | {
    "bucket_step", "duration_ms", "error", "generation", "is_expected", "new", "partition", "partitions", "reason",
    "settings", "since_heartbeat_ms", "topic", "waited_ms", "why",
}  # fmt: skip
"""The fields of events and samples that the analysis uses, besides the fields of every line and the histograms."""


class Incident(NamedTuple):
    """One event that is kept. `subject` is the partition of a catch-up, or the reason that was given."""

    at_ms: int
    seq: int
    event: str
    amount: int | None
    subject: str | None


def in_order(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """The incidents by time. Their other fields break ties, so that the order never depends on the input's order."""
    return tuple(sorted(incidents, key=lambda each: (each.at_ms, each.seq, each.event, str(each))))


class Stretch(NamedTuple):
    """The lines of one member from one completed rebalance to the next. The last stretch of a life has no
    `completed_at_ms`.

    All instants are on the member's own clock. `waited_ms` is the longest reported wait for the application.
    `heard_first_ms` and `heard_last_ms` are the first and the last time at which the coordinator is known to have heard
    of the member. Logs of older versions have no `reason` and no `failed_error`.
    """

    group: str
    client_id: str
    host: str
    pid: int
    consumer_number: int
    life: int
    turn: int
    first_at_ms: int
    last_at_ms: int
    lines_count: int
    heard_first_ms: int | None
    heard_last_ms: int | None
    instance_id: str | None
    is_stopped: bool
    failed_at_ms: int | None
    failed_why: str | None
    failed_error: str | None
    started_at_ms: int | None
    why: str | None
    reason: str | None
    joining_at_ms: int | None
    synced_at_ms: int | None
    waited_ms: int | None
    completed_at_ms: int | None
    generation: int | None
    duration_ms: int | None
    partitions_count: int | None
    settings_at_ms: int | None
    settings: tuple[int | None, ...] | None
    incidents: tuple[Incident, ...]

    @property
    def member(self) -> str:
        number = f"#{self.consumer_number}" if self.consumer_number else ""
        return f"{self.client_id}@{self.host}:{self.pid}{number}"

    @property
    def place(self) -> tuple[str, str, str, int, int, int, int]:
        """The stretch's member, life and turn. No two stretches have the same."""
        return self.group, self.client_id, self.host, self.pid, self.consumer_number, self.life, self.turn
