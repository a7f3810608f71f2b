"""Decides when a merge may choose the next record by time although some partition has no record to compare (KIP-695).

Theory of operation
-------------------
A partition whose next record is available is **buffered**, and competes with that record's timestamp. A partition
without one is in one of these states:

    unknown    its lag is not known until a broker reports it
    behind     its lag is above 0: the broker has records that will arrive
    idling     its lag is 0: producers have `max_idle_ms` from the moment at which the lag was first known to be 0
    given up   that time is over; the state lasts until records arrive or the lag changes

The next record may be chosen when something is buffered and every other partition is given up; with `NEVER_WAIT` as
soon as something is buffered. Every decision examines all partitions. Kafka Streams stops at the first one that blocks,
so the idle time of the others begins late. When a partition is revoked, or paused by the application, its deadline is
forgotten and starts again when the partition returns; Streams keeps the old deadline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["NEVER_WAIT", "MergeRule", "MergeState", "Sight", "Stall", "Waiting"]

NEVER_WAIT: Final = -1
UNKNOWN_TIME: Final = -1


class MergeState(StrEnum):
    """Why a partition has no record to choose from."""

    UNKNOWN = "unknown"
    """Its lag is not known yet."""
    BEHIND = "behind"
    """The broker has records of it that have not arrived yet."""
    IDLING = "idling"
    """It has no records, and producers still have time to write some."""
    GIVEN_UP = "given up"
    """It has no records, and the merge goes on without it."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known about a partition without a record: its lag, and when a broker last answered for it without an
    error.

    `ownership` distinguishes it from the same partition before a revocation.
    """

    lag: int | None
    heard_at_ms: int | None = None
    ownership: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition that a merge waits for: its state, and since when (milliseconds of the event loop's clock)."""

    state: MergeState
    since_at_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that has blocked for too long without a good answer."""

    tp: TopicPartition
    state: MergeState
    blocked_ms: int


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class _Missing:
    """A partition without a record, and since when."""

    ownership: int
    state: MergeState
    since_at_ms: int
    deadline_at_ms: int | None  # when idling ends; kept after the partition is given up
    blocked_at_ms: int | None  # since when it has been unknown or behind without a break
    quiet_at_ms: int | None  # the latest of `blocked_at_ms`, the last good answer, and the last report of a stall


class MergeRule:
    """Decides for one merge; `stall_ms` is how long a partition may block without a good answer."""

    def __init__(self, max_idle_ms: int, stall_ms: int) -> None:
        self.max_idle_ms = max_idle_ms
        self.enforced_count = 0
        self.late_count = 0
        self.max_time = UNKNOWN_TIME
        self._stall_ms = stall_ms
        self._missing: dict[TopicPartition, _Missing] = {}

    # Whether to wait.

    def look(self, sights: Mapping[TopicPartition, Sight], now_ms: int, *, has_record: bool) -> bool:
        """Whether to choose now; `sights` holds every partition that takes part and has no record."""
        former = self._missing
        self._missing = {tp: self._see(former.get(tp), sight, now_ms) for tp, sight in sights.items()}
        return has_record and not self.waiting_for

    def _see(self, former: _Missing | None, sight: Sight, now_ms: int) -> _Missing:
        if former is not None and former.ownership != sight.ownership:
            former = None
        state, deadline_at_ms = MergeState.UNKNOWN, None
        if sight.lag:
            state = MergeState.BEHIND
        elif sight.lag == 0:
            deadline_at_ms = former.deadline_at_ms if former is not None else None
            if deadline_at_ms is None:
                deadline_at_ms = now_ms + max(0, self.max_idle_ms)
            state = MergeState.IDLING if now_ms < deadline_at_ms else MergeState.GIVEN_UP
        blocked_at_ms = quiet_at_ms = None
        if deadline_at_ms is None:
            blocked_at_ms = quiet_at_ms = now_ms
            if former is not None and former.blocked_at_ms is not None and former.quiet_at_ms is not None:
                blocked_at_ms, quiet_at_ms = former.blocked_at_ms, former.quiet_at_ms
            if sight.heard_at_ms is not None:
                quiet_at_ms = max(quiet_at_ms, sight.heard_at_ms)
        since_at_ms = former.since_at_ms if former is not None and former.state is state else now_ms
        return _Missing(sight.ownership, state, since_at_ms, deadline_at_ms, blocked_at_ms, quiet_at_ms)

    @property
    def waiting_for(self) -> dict[TopicPartition, Waiting]:
        """The partitions that the last decision waits for."""
        if self.max_idle_ms == NEVER_WAIT:
            return {}
        return {
            tp: Waiting(each.state, each.since_at_ms)
            for tp, each in self._missing.items()
            if each.state is not MergeState.GIVEN_UP
        }

    @property
    def needs_records(self) -> bool:
        """Whether it waits for records or lags that a fetch will bring."""
        return self.max_idle_ms != NEVER_WAIT and any(each.blocked_at_ms is not None for each in self._missing.values())

    @property
    def missing(self) -> tuple[TopicPartition, ...]:
        """The partitions that had no record at the last decision: a choice is made without them."""
        return tuple(self._missing)

    @property
    def unknown(self) -> tuple[TopicPartition, ...]:
        """The partitions whose lag must be asked for."""
        return tuple(tp for tp, each in self._missing.items() if each.state is MergeState.UNKNOWN)

    @property
    def wake_at_ms(self) -> int | None:
        """When to decide again although nothing happened; `None` if time alone changes nothing."""
        if self.max_idle_ms == NEVER_WAIT:
            return None
        idling = [
            each.deadline_at_ms
            for each in self._missing.values()
            if each.state is MergeState.IDLING and each.deadline_at_ms is not None
        ]
        quiet = [each.quiet_at_ms + self._stall_ms for each in self._missing.values() if each.quiet_at_ms is not None]
        return min(idling + quiet, default=None)

    def take_stalls(self, now_ms: int) -> list[Stall]:
        """Partitions that have blocked for `stall_ms` without a good answer. Each is reported again after every further
        `stall_ms`.
        """
        stalls = []
        if self.max_idle_ms != NEVER_WAIT:
            for tp, each in self._missing.items():
                if each.quiet_at_ms is None or each.blocked_at_ms is None or now_ms - each.quiet_at_ms < self._stall_ms:
                    continue
                each.quiet_at_ms = now_ms
                stalls.append(Stall(tp, each.state, now_ms - each.blocked_at_ms))
        return stalls

    # What was chosen.

    @property
    def stream_time(self) -> int | None:
        """The highest timestamp that was handed out, `None` before the first. It never goes back."""
        return None if self.max_time == UNKNOWN_TIME else self.max_time

    def lateness_of(self, times: Sequence[int]) -> list[tuple[int, int]]:
        """The indices of the next records that have a lower timestamp than one handed out before them, each with the
        difference in ms.
        """
        late: list[tuple[int, int]] = []
        highest = self.max_time
        if times[0] >= highest and times == sorted(times):  # the usual case, and cheap to check
            return late
        for index, at in enumerate(times):
            if at < highest:
                late.append((index, highest - at))
            else:
                highest = at
        return late

    def on_handed_out(self, times: Sequence[int], late_count: int, *, is_enforced: bool) -> None:
        """Records with these timestamps were handed out, `late_count` of them late.

        `is_enforced`: they were chosen while some partition had no record to compare.
        """
        self.late_count += late_count
        highest = max(times)
        if highest > self.max_time:
            self.max_time = highest
        if is_enforced:
            self.enforced_count += len(times)
