"""What a look inside a running consumer shows: `None` is what is not known, and never 0."""

from __future__ import annotations

from aiogroup._core.telemetry.figures import PartitionFigures
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["Deadline", "PartitionInside"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """One of the three time-outs of a member: session, poll or rebalance (KIP-62)."""

    name: str
    setting: str
    limit_ms: int
    used_ms: int | None
    """`None` while it does not run."""


@dataclass(frozen=True, slots=True)
class PartitionInside:
    """One assigned partition."""

    tp: TopicPartition
    figures: PartitionFigures
    position: int | None
    begin: int | None
    held_count: int
    """Records that were handed out and are not processed."""
    held_from: int | None
    """The lowest offset of these; `None` if there are none."""
    state: str
    withheld: tuple[str, ...]
    """Why no record of it is handed out; empty while they are."""
    error: str
    ranges: tuple[tuple[int, int], ...]
    """The pending ranges of the catch-up lane (KIP-333), each without its end."""
    range_per_second: float | None
    range_left_ms: int | None
