"""The figures of one consumer at one moment, for exporters: what is not known is `None`, never 0."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from aiogroup._core.telemetry.counts import Durations
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup._core.values import dataclass

__all__ = ["Figures", "FiguresInSteps", "GroupFigures", "HasFigures", "PartitionFigures", "TopicCount"]


class PartitionFigures(NamedTuple):
    """One assigned partition. `lag` is that of both lanes; `catch_up` is `None` without a catch-up lane (KIP-333)."""

    topic: str
    partition: int
    lag: int | None
    live: int | None
    catch_up: int | None
    committed: int | None
    end: int | None
    age_ms: int | None
    """How old the knowledge of the end is."""
    passed: int | None = None
    """How many offsets both lanes have passed."""


class TopicCount(NamedTuple):
    """What was handed out of one topic; bytes by the average size of the records in their batch."""

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What a member knows of its group; `deadlines_used` has a part of 1 for each of session, poll, rebalance."""

    deadlines_used: Mapping[str, float]
    rebalances_count: int
    since_rebalance_ms: int | None
    hand_overs: Mapping[str, Durations]
    failed_commits: Durations


@dataclass(frozen=True, slots=True)
class Figures:
    """A consumer. The counts begin when it was made, and stay after it was stopped."""

    group_id: str | None
    client_id: str
    status: HealthStatus
    since_request_ms: int | None
    since_heartbeat_ms: int | None
    events: Mapping[tuple[str, str], int]
    rebalances: Mapping[str, Durations]
    commits: Durations
    loop_blocked: Durations
    group: GroupFigures | None = None
    partitions: tuple[PartitionFigures, ...] = ()
    topics: Mapping[str, TopicCount] | None = None
    """What was handed out, by topic; `None` before the start."""
    record_ages_ms: Mapping[str, int] | None = None
    """How old the newest record of the last hand-out was then, by lane."""
    buffered_bytes: int | None = None


FiguresInSteps: TypeAlias = Generator[None, None, Figures]
"""Yields after every few partitions, so that the caller may let the event loop run."""


class HasFigures(Protocol):
    """A consumer, or a loop of a service, which makes one after the other."""

    def figures(self) -> FiguresInSteps | None:
        """The figures of now, to be run to their end; `None` before there is a consumer."""
