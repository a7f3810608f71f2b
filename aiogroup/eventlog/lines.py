"""Makes lines of events. No record's key or value, no address and no traceback is ever in one."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
from typing import Any, Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.meter import coarser
from aiogroup.eventlog.columns import VERSION, Sample
from aiogroup.structs import TopicPartition

__all__ = ["SAMPLE_BYTES", "Lines"]

SAMPLE_BYTES: Final = 2_000
"""The length of a sample's line, with its end."""
TEXT_COUNT: Final = 300
"""The most characters of a text."""
NAME_COUNT: Final = 100
"""The most characters of a name, in every line: Kafka's limit for a static name is 249."""
STEPS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_ADDRESS: Final = re.compile(r"\[[0-9a-fA-F:.]+\](?::\d+)?|\b[\w.-]+:\d{2,5}\b|\b\d{1,3}(?:\.\d{1,3}){3}\b")
_CLASS: Final = re.compile(r"<?([\w.]+)")
_OBJECTS: Final = frozenset({"error", "observer"})
"""These fields are the `repr` of an object of the application, which may show anything: its class alone is written."""
_LEFT_OUT: Final = frozenset(
    {(events.ObserverFailed, "traceback"), (events.LoopFailed, "traceback"), (events.PoisonRecord, "why")}
)
"""A traceback shows code, and what a deserializer says of a record often shows the record."""


class Lines:
    """Makes the lines of one log in this process; a forked one needs another object, since it counts for itself."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.host = platform.node()
        self._next_number = itertools.count().__next__

    def of(self, event: Event, whose: dict[str, Any], at_ms: int, mono_ms: int) -> bytes:
        """The line of an event; `whose` has what names the consumer. What is `None` is left out."""
        number = self._next_number()
        if not isinstance(event, Sample):
            return self._line(number, event.name, event_fields(event), whose, at_ms, mono_ms)
        fields = event.fields()
        line = b""
        for step in STEPS:
            wider = {
                name: {str(bucket): count for bucket, count in coarser(_numbered(each), step).items()}
                for name, each in event.histograms.items()
            }
            line = self._line(
                number, event.name, {**fields, "histograms": wider, "bucket_step": step}, whose, at_ms, mono_ms
            )
            if len(line) <= SAMPLE_BYTES:
                break
        return line

    def _line(
        self, number: int, name: str, fields: dict[str, Any], whose: dict[str, Any], at_ms: int, mono_ms: int
    ) -> bytes:
        told: dict[str, Any] = {"at_ms": at_ms, "mono_ms": mono_ms, "seq": number, "event": name}
        told |= {key: _cut(value, NAME_COUNT) for key, value in whose.items()}
        told |= {"host": self.host[:NAME_COUNT], "pid": self.pid, "version": VERSION, **fields}
        shown = {key: value for key, value in told.items() if value is not None}
        return json.dumps(shown, separators=(",", ":"), default=_class_of).encode() + b"\n"


def event_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as they are written."""
    found: dict[str, Any] = {}
    for name, value in event.fields().items():
        if (type(event), name) in _LEFT_OUT:
            continue
        if name in _OBJECTS:
            match = _CLASS.match(str(value))
            found[name] = match[1][:TEXT_COUNT] if match else ""
        elif isinstance(value, str):
            found[name] = _cut(_ADDRESS.sub("<address>", value), TEXT_COUNT)
        elif isinstance(value, tuple) and value and isinstance(value[0], TopicPartition):
            found[name] = [f"{tp.topic}-{tp.partition}" for tp in value]
        else:
            found[name] = value
    return found


def _numbered(counts: Any) -> dict[int, int]:  # noqa: ANN401 (JSON's names are text, and a histogram's are numbers)
    return {int(bucket): count for bucket, count in counts.items()}


def _cut(value: object, count: int) -> object:
    return value[: count - 3] + "..." if isinstance(value, str) and len(value) > count else value


def _class_of(value: object) -> str:
    return type(value).__name__
