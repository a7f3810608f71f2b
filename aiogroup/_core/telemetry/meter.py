"""What is measured of one consumer for an observer that asks for it: per request and per wake-up, never per record.

The histograms have fixed buckets on a logarithmic scale: those of many members and hours are merged by addition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Protocol

from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.figures import FiguresInSteps
from aiogroup.config import ConsumerConfig

__all__ = [
    "ConsumerObserver",
    "Histogram",
    "Meter",
    "Observed",
    "ObserverOfConsumers",
    "bounds_of",
    "bucket_of",
    "coarser",
]

BUCKETS_PER_DOUBLING: Final = 4


def bucket_of(value: float) -> int:
    """The bucket of a value: i holds those above 2 ** ((i - 1) / 4), up to 2 ** (i / 4). 0 holds all up to 1."""
    return 0 if value <= 1 else math.ceil(BUCKETS_PER_DOUBLING * math.log2(value))


def bounds_of(bucket: int, step: int = 1) -> tuple[float, float]:
    """The bounds of a bucket: its values are above the first and at most the second. Those of bucket 0 are 0 to 1."""
    upper: float = 2 ** (bucket / BUCKETS_PER_DOUBLING)
    lower: float = 0 if bucket <= 0 else 2 ** ((bucket - step) / BUCKETS_PER_DOUBLING)
    return lower, upper


def coarser(counts: Mapping[int, int], step: int) -> dict[int, int]:
    """The same values in every `step`-th bucket alone, each of which takes those of the buckets before it."""
    found: dict[int, int] = {}
    for bucket, count in counts.items():
        wider = -(-bucket // step) * step
        found[wider] = found.get(wider, 0) + count
    return found


class Histogram:
    """How many values each bucket holds."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def note(self, value: float, count: int = 1) -> None:
        bucket = bucket_of(value)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def take(self) -> dict[int, int]:
        """The counts since the last call."""
        counts, self.counts = self.counts, {}
        return counts


class Meter:
    """Counts until somebody takes what was counted."""

    __slots__ = ("batch_records", "loop_late_ms", "record_ms", "records_count", "request_gap_ms", "requests_count")

    def __init__(self) -> None:
        self.request_gap_ms = Histogram()
        """From the end of a request for records to the start of the next one: what the poll interval bounds."""
        self.record_ms = Histogram()
        """The same divided by the records that were handed out in between; counted once for each record."""
        self.batch_records = Histogram()
        """How many records were handed out between two requests, where there were some."""
        self.loop_late_ms = Histogram()
        """How late the event loop woke the loop watchdog."""
        self.requests_count = 0
        self.records_count = 0

    def note_request(self, gap_ms: int, records_count: int, *, is_alone: bool) -> None:
        """A request begins, and none is under way. Where others overlapped since the last time (not `is_alone`), the
        time of a record is not known.
        """
        self.requests_count += 1
        self.records_count += records_count
        self.request_gap_ms.note(gap_ms)
        if records_count:
            self.batch_records.note(records_count)
            if is_alone:
                self.record_ms.note(gap_ms / records_count, records_count)


class MemberInside(Protocol):
    @property
    def member(self) -> tuple[str, int] | None: ...


class Observed(Protocol):
    """What an observer of one consumer uses of it."""

    config: ConsumerConfig

    def inside(self) -> MemberInside | None: ...

    def figures(self) -> FiguresInSteps: ...


class ConsumerObserver(Protocol):
    """The observer of one consumer. It must not hold the consumer: a forgotten one could not be noticed."""

    meter: Meter

    def on_event(self, event: Event) -> None: ...

    def on_start(self) -> None:
        """The consumer's tasks run, in the running event loop."""
        ...


class ObserverOfConsumers(Protocol):
    """An observer that needs to know whose events it gets: it is asked for an observer of each consumer."""

    def of_consumer(self, consumer: Observed) -> ConsumerObserver: ...
