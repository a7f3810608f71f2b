"""Watches one consumer: its events become lines, and each interval a sample of it."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.figures import Figures, FiguresInSteps
from aiogroup._core.telemetry.meter import Histogram, Meter, Observed
from aiogroup._runtime.loop.clock import Alarm, now_ms, running_loop
from aiogroup.config import ConsumerConfig
from aiogroup.eventlog.columns import Sample

__all__ = ["COUNTED", "SETTINGS", "Watch"]

COUNTED: Final = frozenset({"heartbeat_sent", "heartbeat_acknowledged", "offsets_committed", "merge_enforced"})
"""These come at the rate of heartbeats, commits and merges: samples have their number and their durations."""
SETTINGS: Final = (
    "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "rebalance_timeout_ms", "max_poll_records",
    "registration_timeout_ms", "expansion_timeout_ms", "parallel_min_backlog", "group_instance_id", "heartbeat_thread",
    "enable_parallel_rebalance",
)  # fmt: skip
_next_number: Final = itertools.count().__next__
"""Counts the consumers of this process that were watched: two may have one group and one client id."""
SILENT: Final = "joining"
"""The state in which a member need not send heartbeats."""

Write = Callable[[Event, dict[str, Any]], None]


class Watch:
    """The observer of one consumer, which it holds by a weak reference. `write(event, whose)` makes the line."""

    def __init__(
        self, consumer: Observed, write: Write, on_failed: Callable[[], None], interval_ms: int, *, every_event: bool
    ) -> None:
        self.meter = Meter()
        self._number = _next_number()
        self._consumer = weakref.ref(consumer)
        self._write = write
        self._on_failed = on_failed
        self._interval_ms = interval_ms
        self._counted = frozenset[str]() if every_event else COUNTED
        self._config = consumer.config
        self._settings = settings_of(consumer.config)
        self._is_timed = not consumer.config.heartbeat_thread
        self._durations = {"heartbeat_ms": Histogram(), "heartbeat_gap_ms": Histogram(), "commit_ms": Histogram()}
        self._counts: Counter[str] = Counter()
        self._heard_at_ms: int | None = None
        self._sampled_at_ms = 0
        self._due_at_ms = 0
        self._alarm = Alarm(self._on_alarm)
        self._steps: FiguresInSteps | None = None
        self._is_over = False

    def on_event(self, event: Event) -> None:
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 (a log must not be left out for one line)
            self._on_failed()

    def on_start(self) -> None:
        """The first sample is written at once: it says that the consumer is there, and has the settings."""
        if not self._is_over:
            self._sampled_at_ms = self._due_at_ms = now_ms()
            self._on_alarm()

    # Events.

    def _take(self, event: Event) -> None:
        name = event.name
        if isinstance(event, events.ConsumerStopped):
            self._end()
        self._note(event)
        if name in self._counted:
            self._counts[name] += 1
        else:
            self._write(event, self._whose())

    def _note(self, event: Event) -> None:
        match event:
            case events.HeartbeatAcknowledged():
                self._durations["heartbeat_ms"].note(event.latency_ms)
                self._hear()
            case events.OffsetsCommitted():
                self._durations["commit_ms"].note(event.latency_ms)
            case events.MemberRemoved():
                self._hear()  # this, too, is an answer: the gap before it is the one that was too long
            case events.MemberMoved() if event.new == SILENT:
                self._heard_at_ms = None
            case events.MemberMoved() if event.old == SILENT:
                self._heard_at_ms = now_ms()  # JoinGroup was answered

    def _hear(self) -> None:
        """The heartbeat thread's heartbeats are reported when the loop has time, so their gaps are not known."""
        now = now_ms()
        if self._heard_at_ms is not None and self._is_timed:
            self._durations["heartbeat_gap_ms"].note(now - self._heard_at_ms)
        self._heard_at_ms = now

    def _whose(self) -> dict[str, Any]:
        consumer = self._consumer()
        inside = None if consumer is None else consumer.inside()
        member = None if inside is None else inside.member
        return {
            "group": self._config.group_id,
            "client_id": self._config.client_id,
            "consumer_number": self._number,
            "member_id": member[0] or None if member is not None else None,
        }

    # Samples.

    def _on_alarm(self) -> None:
        consumer, now = self._consumer(), now_ms()
        if consumer is None or self._is_over:
            return
        if now >= self._due_at_ms:
            self._due_at_ms = max(self._due_at_ms, now - self._interval_ms) + self._interval_ms
            self._step(consumer.figures())
        self._alarm.ring_by(self._due_at_ms)

    def _step(self, steps: FiguresInSteps) -> None:
        """Read some partitions, and the rest when the loop has run."""
        self._steps = steps
        if not self._go_on(steps):
            running_loop().call_soon(self._continue, steps)

    def _continue(self, steps: FiguresInSteps) -> None:
        if steps is self._steps:
            self._step(steps)

    def _go_on(self, steps: FiguresInSteps) -> bool:
        """One step. Returns whether it was the last one."""
        try:
            try:
                next(steps)
            except StopIteration as taken:
                self._steps = None
                self._sample(taken.value)
            else:
                return False
        except Exception:  # noqa: BLE001 (a sample is missing, and the next one comes)
            self._on_failed()
        return True

    def _end(self) -> None:
        """The last sample, of what came after the one before."""
        self._is_over = True
        self._alarm.cancel()
        consumer = self._consumer()
        if consumer is not None:
            self._steps = steps = consumer.figures()
            while not self._go_on(steps):
                pass

    def _sample(self, figures: Figures) -> None:
        now, whose, meter = now_ms(), self._whose(), self.meter
        consumer = self._consumer()
        inside = None if consumer is None else consumer.inside()
        generation = None if inside is None or inside.member is None else inside.member[1]
        live = [each.live for each in figures.partitions if each.live is not None]
        catch_up = [each.catch_up for each in figures.partitions if each.catch_up is not None]
        measured = {
            "request_gap_ms": meter.request_gap_ms,
            "record_ms": meter.record_ms,
            "batch_records": meter.batch_records,
            "loop_late_ms": meter.loop_late_ms,
            **self._durations,
            "lag_live": _histogram(live),
            "lag_catch_up": _histogram(catch_up),
        }
        taken = {name: histogram.take() for name, histogram in measured.items()}
        counts, self._counts = self._counts, Counter()
        sample = Sample(
            status=figures.status.value,
            generation=generation,
            interval_ms=now - self._sampled_at_ms,
            since_request_ms=figures.since_request_ms,
            since_heartbeat_ms=figures.since_heartbeat_ms,
            partitions_count=len(figures.partitions),
            requests_count=meter.requests_count,
            records_count=meter.records_count,
            lag_live=sum(live) if len(live) == len(figures.partitions) else None,
            lag_catch_up=sum(catch_up) if catch_up else None,
            buffered_bytes=figures.buffered_bytes,
            events=counts,
            settings=self._settings,
            histograms={
                name: {str(bucket): buckets[bucket] for bucket in sorted(buckets)}
                for name, buckets in taken.items()
                if buckets
            },
            bucket_step=1,
        )
        meter.requests_count = meter.records_count = 0
        self._sampled_at_ms = now
        self._write(sample, whose)


def settings_of(config: ConsumerConfig) -> dict[str, str]:
    """The settings in force that concern liveness, as text. What is not set is left out."""
    found = {name: getattr(config, name) for name in SETTINGS}
    found["group_instance_id"] = config.instance_id
    found["rebalance_timeout_ms"] = config.effective_rebalance_timeout_ms
    found["max_poll_interval_ms"] = config.effective_poll_interval_ms
    return {name: str(value)[:249] for name, value in found.items() if value is not None}


def _histogram(values: list[int]) -> Histogram:
    found = Histogram()
    for value in values:
        found.note(value)
    return found
