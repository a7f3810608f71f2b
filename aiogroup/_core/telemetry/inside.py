"""What a look inside a running consumer shows: `None` is what is not known, and never 0."""

from __future__ import annotations

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["Deadline", "LagInside", "PartitionInside"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """One of the three time-outs of a member: session, poll or rebalance (KIP-62)."""

    name: str
    setting: str
    limit_ms: int
    used_ms: int | None
    """`None` while it does not run."""


@dataclass(frozen=True, slots=True)
class LagInside:
    """The lag of one partition, of both lanes together, and how many offsets both lanes have passed."""

    tp: TopicPartition
    lag: int | None
    passed: int | None
    catch_up_lag: int | None
    """The part of it that is the catch-up lane's; `None` without such a lane."""


@dataclass(frozen=True, slots=True)
class PartitionInside:
    """One assigned partition. `lag` is that of both lanes together."""

    tp: TopicPartition
    position: int | None
    committed: int | None
    begin: int | None
    end: int | None
    lag: int | None
    catch_up_lag: int | None
    """The part of it that is the catch-up lane's; `None` without such a lane."""
    lag_age_ms: int | None
    """How old the knowledge of the end is."""
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
