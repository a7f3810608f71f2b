"""Counts what happens to a consumer, for its figures: every event, and how long rebalances and commits take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Emit, Event
from aiogroup.structs import TopicPartition

__all__ = [
    "BOUNDS_MS", "COMMIT_FAILED", "COORDINATOR_LOST", "FAILURES", "FETCH_FAILED", "METADATA_FAILED", "Cause", "Counts",
    "Durations", "DurationsBy", "Failures", "Totals", "cause_of",
]  # fmt: skip

COMMIT_FAILED: Final = "commit_failed"
COORDINATOR_LOST: Final = "coordinator_lost"
FETCH_FAILED: Final = "fetch_failed"
METADATA_FAILED: Final = "metadata_failed"
TELL_AGAIN_MS: Final = 60_000
NO_NODE: Final = -1
_NUMBER: Final = re.compile(r"\d+")
FAILURES: Final = frozenset((
    events.CommitFailed, events.CoordinatorLost, events.FetchFailed, events.HeartbeatMissed, events.MetadataFailed,
    events.RebalanceFailed,
))  # fmt: skip
_SUMMED: Final = frozenset((
    events.CatchUpStarted, events.NewPartitionFromEarliest, events.PositionFromPolicy, events.TopicRecreated,
))  # fmt: skip
BOUNDS_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000)
"""The upper bounds of the buckets: from a commit to a rebalance that waits for a whole poll interval."""


class Durations:
    """How many durations fell into each bucket of `BOUNDS_MS`, and their sum."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """The last one counts what was longer than every bound."""
        self.sum_ms = 0

    def note(self, duration_ms: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += 1
        self.sum_ms += duration_ms

    def copy(self) -> Durations:
        copied = Durations()
        copied.counts, copied.sum_ms = [*self.counts], self.sum_ms
        return copied


class DurationsBy:
    """`Durations` for each value of one label; a label has few values."""

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by: dict[str, Durations] = {}

    def note(self, value: str, duration_ms: int) -> None:
        durations = self.by.get(value)
        if durations is None:
            durations = self.by[value] = Durations()
        durations.note(duration_ms)

    def copy(self) -> dict[str, Durations]:
        return {value: durations.copy() for value, durations in self.by.items()}


class Counts:
    """An observer that counts a consumer's events by name and level, and the durations that they tell."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], int] = {}
        self.rebalances = DurationsBy()
        self.commits = Durations()
        self.loop_blocked = Durations()
        self._names: dict[type[Event], str] = {}

    def on_event(self, event: Event) -> None:
        name = self._names.get(type(event))
        if name is None:
            name = self._names[type(event)] = event.name
        key = name, event.level
        self.events[key] = self.events.get(key, 0) + 1
        match event:
            case events.OffsetsCommitted():
                self.commits.note(event.latency_ms)
            case events.RebalanceCompleted():
                self.rebalances.note(event.reason, event.duration_ms)
            case events.EventLoopBlocked():
                self.loop_blocked.note(event.blocked_ms)


class Totals:
    """Adds up events of single partitions until `tell` emits the sums: a person wants one line for an assignment, not
    one for each of its partitions.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._forget()

    def _forget(self) -> None:
        self._from_policy_count = self._new_count = self._catching_up_count = self._pending_count = 0
        self._recreated_count = 0
        self._recreated: set[str] = set()
        self._has_some = False

    def add(self, event: Event) -> None:
        """Add one of the events that are summed."""
        match event:
            case events.PositionFromPolicy():
                self._from_policy_count += len(event.partitions)
            case events.NewPartitionFromEarliest():
                self._new_count += 1
            case events.CatchUpStarted():
                self._catching_up_count += 1
                self._pending_count += event.records_count
            case events.TopicRecreated():
                self._recreated_count += 1
                self._recreated.add(event.topic)
        self._has_some = True

    def tell(self) -> None:
        """Emit the totals, if there are some, and begin anew."""
        if not self._has_some:
            return
        totals = events.PartitionsStarted(
            self._from_policy_count,
            self._new_count,
            self._catching_up_count,
            self._pending_count,
            self._recreated_count,
            tuple(sorted(self._recreated)),
        )
        self._forget()
        self._emit(totals)


class Cause(NamedTuple):
    """Failures with the same cause are one trouble for whoever reads the log."""

    event_name: str
    node_id: int | None = None
    topic: str | None = None
    why: str = ""
    """Of a topic: why its partitions fail. Of a look-up: what was looked up. The numbers in it are left out."""


def cause_of(event: Event) -> Cause | None:
    """`None` if the event is no failure that is tried again, or if it was to be expected."""
    match event:
        case events.FetchFailed(node_id, None, _, why):
            return Cause(event.name, node_id, None, why.partition(":")[0] if node_id == NO_NODE else "")
        case events.FetchFailed(_, topic, _, why):
            return Cause(event.name, None, topic, _NUMBER.sub("", why))
        case events.CoordinatorLost(node_id, is_expected=False):
            return Cause(event.name, node_id)
        case events.RebalanceFailed(is_expected=False):
            return Cause(event.name)
        case events.CommitFailed() | events.HeartbeatMissed(is_expected=False) | events.MetadataFailed():
            return Cause(event.name)
        case _:
            return None


class _Failing:
    __slots__ = ("count", "last_at_ms", "partitions", "since_ms", "told_at_ms")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.since_ms = self.told_at_ms = self.last_at_ms = now_ms
        self.partitions: set[TopicPartition] = set()


class Failures:
    """Passes every event on to `emit`, and tells of failures that come again and again while their cause lasts.

    A failed request is tried again, and each attempt that fails is an event of its own. A person wants one line when
    that begins, which is the first event, one each minute while it goes on (`FailingStill`), and one when it ends
    (`FailingEnded`). The log leaves the others to DEBUG.

    `totals` get the events that they add up, after these were passed on.
    """

    def __init__(self, emit: Emit, now_ms: Callable[[], int], totals: Totals | None = None) -> None:
        self._pass_on = emit
        self._now_ms = now_ms
        self._totals = totals
        self.failing: dict[Cause, _Failing] = {}

    def emit(self, event: Event) -> None:
        kind = type(event)
        if kind in FAILURES and (cause := cause_of(event)) is not None:
            self._note(cause, event)
            return
        self._pass_on(event)
        if self.failing:
            self._look_for_end(event)
        if kind in _SUMMED and self._totals is not None:
            self._totals.add(event)

    def end(self, event_name: str, node_id: int | None = None, topic: str | None = None, why: str = "") -> None:
        """What failed with this cause has just succeeded, or is not needed any more."""
        cause = Cause(event_name, node_id, topic, why)
        if (failing := self.failing.pop(cause, None)) is not None:
            self._pass_on(events.FailingEnded(*cause, failing.count, failing.last_at_ms - failing.since_ms))

    def end_partitions(self, tps: frozenset[TopicPartition]) -> None:
        """These partitions were fetched, or are given up: a topic has failed until this holds for all that failed."""
        for cause, failing in [*self.failing.items()]:
            if failing.partitions and not failing.partitions - tps:
                self.end(*cause)
            failing.partitions -= tps

    def _note(self, cause: Cause, event: Event) -> None:
        now = self._now_ms()
        failing = self.failing.get(cause)
        if failing is not None and now - failing.last_at_ms >= TELL_AGAIN_MS:
            self.end(*cause)  # nothing said so: it was not tried again
            failing = None
        if failing is None:
            failing = self.failing[cause] = _Failing(now)
        failing.count += 1
        failing.last_at_ms = now
        if isinstance(event, events.FetchFailed) and event.topic is not None and event.partition is not None:
            failing.partitions.add(TopicPartition(event.topic, event.partition))
        self._pass_on(event)
        if now - failing.told_at_ms >= TELL_AGAIN_MS:
            failing.told_at_ms = now
            why = str(getattr(event, "why", ""))
            node_id, topic = cause.node_id, cause.topic
            self._pass_on(
                events.FailingStill(cause.event_name, node_id, topic, why, failing.count, now - failing.since_ms)
            )

    def _look_for_end(self, event: Event) -> None:
        match event:
            case events.HeartbeatAcknowledged():
                self._end_all("heartbeat_missed", COORDINATOR_LOST)
            case events.RebalanceCompleted():
                self._end_all("rebalance_failed", COORDINATOR_LOST)
            case events.OffsetsCommitted():
                self._end_all(COORDINATOR_LOST)
            case events.PartitionsRevoked() | events.PartitionsLost():
                self.end_partitions(frozenset(event.partitions))

    def _end_all(self, *names: str) -> None:
        for cause in [each for each in self.failing if each.event_name in names]:
            self.end(*cause)
