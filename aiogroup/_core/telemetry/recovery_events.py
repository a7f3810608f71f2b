"""The events of a consumer's lanes (KIP-333); `aiogroup._core.telemetry.events` has these and all others."""

from __future__ import annotations

from typing import ClassVar

from aiogroup._core.telemetry.event import Event, Level
from aiogroup._core.values import dataclass

__all__ = [
    "CatchUpDone", "CatchUpStarted", "CaughtUp", "ForeignToken", "HandOffOverdue", "JobProgressed", "RangeDone",
    "RangeTruncated", "RangesDropped",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CatchUpStarted(Event):
    """The ranges `pending` are read beside the live lane, which goes on at `live_offset`; counts are of offsets."""

    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int
    pending: tuple[tuple[int, int], ...]
    live_offset: int
    records_count: int
    token_id: str


@dataclass(frozen=True, slots=True)
class RangeDone(Event):
    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    left_count: int


@dataclass(frozen=True, slots=True)
class CatchUpDone(Event):
    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class CaughtUp(Event):
    """Nothing is pending any more: the backlogs of `partitions_count` partitions are processed, after `duration_ms`."""

    partitions_count: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class RangeTruncated(Event):
    """The log begins after offsets that were pending: retention removed them before they were processed."""

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RangesDropped(Event):
    """The application sought, or the topic was recreated: these pending offsets will not be read."""

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    dropped: tuple[tuple[int, int], ...]
    why: str


@dataclass(frozen=True, slots=True)
class ForeignToken(Event):
    """The committed metadata looks like a token and must not be obeyed: all records from the offset on are read."""

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class JobProgressed(Event):
    """The second commit log says that a batch job has done `done_count` offsets; `left_count` are pending still."""

    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int
    done_count: int
    left_count: int


@dataclass(frozen=True, slots=True)
class HandOffOverdue(Event):
    """No job moved this range for `parallel_handoff_timeout_ms`, or retention comes near: this member reads it."""

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    start_offset: int
    end_offset: int
