"""Counts what happens to a consumer, for its figures: every event, and how long rebalances and commits take."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from aiogroup.telemetry import events
from aiogroup.telemetry.event import Emit, Event

__all__ = ["BOUNDS_MS", "Counts", "Durations", "DurationsBy", "Totals"]

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
    """Passes every event on to `emit`, and adds up those of single partitions until `tell`: a person wants one line for
    an assignment, not one for each of its partitions.
    """

    def __init__(self, emit: Emit) -> None:
        self._pass_on = emit
        self._forget()

    def _forget(self) -> None:
        self._from_policy_count = self._new_count = self._catching_up_count = self._pending_count = 0
        self._recreated_count = 0
        self._recreated: set[str] = set()
        self._has_some = False

    def emit(self, event: Event) -> None:
        self._pass_on(event)
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
            case _:
                return
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
        self._pass_on(totals)
