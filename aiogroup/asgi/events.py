"""The events of a service: they go to the log, as a consumer's do, with that consumer's group and client id."""

from __future__ import annotations

from typing import ClassVar

from aiogroup.telemetry.event import Event, Level
from aiogroup.values import dataclass

__all__ = [
    "BodyNotEnded",
    "EventLoopShared",
    "FencedStill",
    "LoopFailed",
    "NoBrokerYet",
    "NoPartitionAssigned",
    "StaticNameInWorker",
]


@dataclass(frozen=True, slots=True)
class EventLoopShared(Event):
    """The consumers share the server's event loop: what blocks it blocks their heartbeats too."""

    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaticNameInWorker(Event):
    """A consumer with a static name runs in a worker process of a server: its siblings would have the same name."""

    LEVEL: ClassVar[Level] = "warning"
    consumer: str
    member_name: str


@dataclass(frozen=True, slots=True)
class NoBrokerYet(Event):
    """No broker has answered since the start. Told at once, and then each minute with the number of attempts."""

    LEVEL: ClassVar[Level] = "warning"
    consumer: str
    why: str
    attempts_count: int


@dataclass(frozen=True, slots=True)
class NoPartitionAssigned(Event):
    """The first assignment has no partition for this consumer: the group has more members than partitions."""

    consumer: str


@dataclass(frozen=True, slots=True)
class LoopFailed(Event):
    """A loop has ended: `why` is body_raised, body_ended, consumer_failed or fenced. It is started again after
    `restart_in_ms`, or not at all (`None`).
    """

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    why: str
    error: str
    traceback: str
    restart_in_ms: int | None


@dataclass(frozen=True, slots=True)
class FencedStill(Event):
    """Told each minute: another process has this consumer's static name, and this one reads nothing."""

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class BodyNotEnded(Event):
    """The body has not ended within the time of the stop, nor when it was cancelled after it: it is left behind."""

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    stop_timeout_ms: int
