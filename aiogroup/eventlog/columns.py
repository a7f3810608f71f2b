"""What a line of the event log may hold: the fields of every line, of each event and of samples, with their types.

`aiogroup.spark.liveness` makes its schema of `columns()`: nothing of an event is written down a second time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_type_hints

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["VERSION", "Envelope", "EventsDropped", "ProcessStoodStill", "Sample", "columns", "event_classes"]

VERSION: Final = 1
"""The version of the schema: it grows when a field gets another meaning or type, not when one is added."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields of every line. An event's own field of the same name takes the place of one of these."""

    at_ms: int
    mono_ms: int
    seq: int
    event: str
    group: str | None
    client_id: str | None
    consumer_number: int | None
    member_id: str | None
    host: str
    pid: int
    version: int


@dataclass(frozen=True, slots=True)
class Sample(Event):
    """What one consumer did in the last `interval_ms`, and how it is now. Counts restart with each sample.

    `histograms` has for each name how many values each bucket holds (`_core/telemetry/meter.py`). `bucket_step`
    is 1 unless the line would have been too long: then only every 2nd, 4th, ... bucket is used, and takes the values of
    those before it.
    """

    status: str
    generation: int | None
    interval_ms: int
    since_request_ms: int | None
    since_heartbeat_ms: int | None
    partitions_count: int
    requests_count: int
    records_count: int
    lag_live: int | None
    lag_catch_up: int | None
    buffered_bytes: int | None
    events: Mapping[str, int]
    settings: Mapping[str, str]
    histograms: Mapping[str, Mapping[str, int]]
    bucket_step: int


@dataclass(frozen=True, slots=True)
class EventsDropped(Event):
    """`dropped_count` lines were not written since the last such event: the queue was full. `total_count`: in all."""

    dropped_count: int
    total_count: int


@dataclass(frozen=True, slots=True)
class ProcessStoodStill(Event):
    """No thread of the process ran for so long: it was stopped, or its container or machine was. Written before an
    `event_loop_blocked` of which this is the reason, where the log goes to files.
    """

    stood_still_ms: int


def event_classes() -> Iterator[type[Event]]:
    """Every class whose objects become lines."""
    for each in vars(events).values():
        if isinstance(each, type) and issubclass(each, Event) and each is not Event:
            yield each
    yield Sample
    yield EventsDropped
    yield ProcessStoodStill


def columns() -> dict[str, Any]:
    """The type of each field that a line may have, without `None`, in the order in which Spark shows them.

    Raises:
        TypeError: two events have a field of the same name with different types.
    """
    found: dict[str, Any] = {}
    classes: tuple[type[Any], ...] = (Envelope, *event_classes())
    for cls in classes:
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            kind = _in_a_line(hints[field.name])
            if found.setdefault(field.name, kind) != kind:
                raise TypeError(f"{cls.__name__}.{field.name} is {kind}, and {found[field.name]} in another event")
    return found


def _in_a_line(hint: Any) -> Any:  # noqa: ANN401 (a type, or what `typing` makes of one)
    """The type without `None`; partitions are written as text, such as `orders-0`."""
    kinds = [each for each in get_args(hint) if each is not type(None)] if type(None) in get_args(hint) else [hint]
    if len(kinds) != 1:
        raise TypeError(f"{hint}: a field of a line has one type")
    return tuple[str, ...] if kinds[0] == tuple[TopicPartition, ...] else kinds[0]
