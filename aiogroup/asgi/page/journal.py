"""What a service remembers for those who look later: its newest events and samples, in bounded memory.

Nothing is remembered in a service without `access`, since nobody may look. Events that come all the time are left out:
a service that commits after each record has thousands of them a second.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.structs import TopicPartition

__all__ = ["Journal", "LagSample", "fitting", "plain", "shown"]

EVENTS_COUNT: Final = 500
EVENTS_CHARS: Final = 400_000
SAMPLES_COUNT: Final = 600
"""Ten minutes, at one a second."""
ROUTINE: Final = (
    events.HeartbeatSent, events.HeartbeatAcknowledged, events.OffsetsCommitted, events.MemberMoved,
    events.MergeEnforced,
)  # fmt: skip
"""They come all the time, and are not remembered."""
TEXT_CHARS: Final = 4_000
NAMES_COUNT: Final = 100
"""How many items of a list or mapping are kept: an event may name a thousand partitions."""


class LagSample(NamedTuple):
    """How a loop was at one moment: milliseconds since the epoch, its lag, and records a second since the last one.

    `catch_up_lag` is the part of the lag that catch-up lanes read (KIP-333); `None` where there are none.
    """

    at_ms: int
    lag: int | None
    per_second: float | None
    catch_up_lag: int | None


class Journal:
    """Its events are numbered from 1 on, over all loops of the service. Each is kept as the text of a JSON object."""

    def __init__(self) -> None:
        self.last_number = 0
        self._events: deque[tuple[int, str]] = deque()
        self._chars = 0
        self._samples: dict[str, deque[LagSample]] = {}
        self._wall_less_steady_ms: int | None = None
        self._sampled_at_ms = 0  # of the steady clock

    def note(self, loop: str, group_id: str | None, client_id: str, event: Event) -> None:
        """Remember an event of the loop with this name."""
        if isinstance(event, ROUTINE):
            return
        self.last_number += 1
        about = {
            "number": self.last_number,
            "at_ms": wall_ms(),
            "event": event.name,
            "level": event.level,
            "loop": loop,
            "group": group_id,
            "client_id": client_id,
        }
        fields = {name: plain(value) for name, value in event.fields().items()}
        text = json.dumps({**fields, **about} if fields.keys() & about.keys() else {**about, **fields})
        self._events.append((self.last_number, text))
        self._chars += len(text)
        while len(self._events) > EVENTS_COUNT or self._chars > EVENTS_CHARS:
            self._chars -= len(self._events.popleft()[1])

    def events(self, after: int = 0) -> list[str]:
        """Those that are still known with a higher number; all of them if no event has that number yet.

        Who asks with a higher number, and did not name the process, has seen another one, which this one follows.
        """
        if after > self.last_number:
            after = 0
        return [text for number, text in self._events if number > after]

    def instant_ms(self, steady_ms: int) -> int:
        """The instant of a sample: the wall clock as it was at the first one, then carried on by the steady one.

        By a wall clock that is set back the newest samples would be older than the last, and nobody would get them.
        """
        if self._wall_less_steady_ms is None or steady_ms < self._sampled_at_ms:  # another event loop runs it now
            self._wall_less_steady_ms = wall_ms() - steady_ms
        self._sampled_at_ms = steady_ms
        return steady_ms + self._wall_less_steady_ms

    def sample(self, loop: str, sample: LagSample) -> None:
        """Remember a sample of the loop with this name."""
        self._samples.setdefault(loop, deque(maxlen=SAMPLES_COUNT)).append(sample)

    def samples(self, after_ms: int = 0) -> dict[str, list[LagSample]]:
        """Those that are later than this instant, by loop."""
        return {loop: [each for each in of if each.at_ms > after_ms] for loop, of in self._samples.items()}


def plain(value: object) -> object:
    """The value as JSON has it, and not longer than a page can show."""
    if isinstance(value, TopicPartition):
        return shown(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS else f"{value[:TEXT_CHARS]} ... ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {str(key): plain(of) for key, of in list(value.items())[:NAMES_COUNT]}
    if isinstance(value, (tuple, list, Set)):
        left_count = len(value) - NAMES_COUNT
        return [*(plain(each) for each in list(value)[:NAMES_COUNT]), *([f"and {left_count} more"] * (left_count > 0))]
    return plain(repr(value))


def fitting(values: Iterable[object], most_chars: int) -> list[str]:
    """The first of these values, each as the text of JSON: as many as have `most_chars` characters together."""
    texts: list[str] = []
    for value in values:
        text = json.dumps(value)
        most_chars -= len(text)
        if most_chars < 0:
            break
        texts.append(text)
    return texts


def shown(tp: TopicPartition) -> str:
    """The name of a partition as pages and logs have it."""
    return f"{tp.topic}-{tp.partition}"
