"""When the next record by time may be chosen although a partition has none to compare with: KIP-695, decided here.

Theory of operation
-------------------
A partition with a record at hand is **buffered**, and takes part by that record's timestamp. One without is

    unknown    its lag is not known: a broker must say so first
    behind     its lag is above 0: records exist, and will come
    idling     its lag is 0: producers get `max_idle_ms`, counted from the moment at which that was known first
    given up   that time is over; it stays so until records come or the lag changes

The next record may be chosen when something is buffered and every other partition is given up; with `NEVER_WAIT` as
soon as something is buffered. All partitions are looked at each time: where the first one that blocks hid the others,
as in Kafka Streams, their time would begin late. What is forgotten with its partition (revoked, or paused by the
application) begins anew when that is back; there Streams keeps old deadlines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = ["NEVER_WAIT", "Merge", "MergeState", "Sight", "Stall", "Waiting"]

NEVER_WAIT: Final = -1
UNKNOWN_TIME: Final = -1


class MergeState(StrEnum):
    """Why a partition has no record to choose from."""

    UNKNOWN = "unknown"
    """Its lag is not known yet."""
    BEHIND = "behind"
    """It has records at the broker that did not come yet."""
    IDLING = "idling"
    """It has no records, and producers have time left."""
    GIVEN_UP = "given up"
    """It has no records, and the merge goes on without it."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a partition without a record: its lag, and when a broker last said anything good of it.

    `ownership` tells it from the same partition before it was revoked.
    """

    lag: int | None
    heard_at_ms: int | None = None
    ownership: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition that a merge waits for: in which state, and since when by the event loop's clock (milliseconds)."""

    state: MergeState
    since_at_ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """A partition that has blocked for too long without a good answer."""

    tp: TopicPartition
    state: MergeState
    blocked_ms: int


@dataclasses.dataclass(slots=True)
class _Missing:
    ownership: int
    state: MergeState
    since_at_ms: int
    deadline_at_ms: int | None  # of idling; kept when given up
    blocked_at_ms: int | None  # unknown or behind since, in whatever order
    quiet_at_ms: int | None  # the same, or the last good answer, or when it was last told


class Merge:
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
        """Whether to choose now; `sights` are all partitions that take part and have no record."""
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
        """The partitions without which nothing is chosen, by the last look."""
        if self.max_idle_ms == NEVER_WAIT:
            return {}
        return {
            tp: Waiting(each.state, each.since_at_ms)
            for tp, each in self._missing.items()
            if each.state is not MergeState.GIVEN_UP
        }

    @property
    def needs_records(self) -> bool:
        """It waits for what a fetch will bring."""
        return self.max_idle_ms != NEVER_WAIT and any(each.blocked_at_ms is not None for each in self._missing.values())

    @property
    def missing(self) -> tuple[TopicPartition, ...]:
        """The partitions without a record, by the last look: where it chooses, it does so without them."""
        return tuple(self._missing)

    @property
    def unknown(self) -> tuple[TopicPartition, ...]:
        """The partitions whose lag must be learnt."""
        return tuple(tp for tp, each in self._missing.items() if each.state is MergeState.UNKNOWN)

    @property
    def wake_at_ms(self) -> int | None:
        """When to look again although nothing happened; `None`: time alone changes nothing."""
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
        """Partitions that have blocked for `stall_ms` without a good answer, each again after that time."""
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
        """Which of the next records, by index, are behind what is handed out before them, and by how many ms."""
        late: list[tuple[int, int]] = []
        highest = self.max_time
        if times[0] >= highest and times == sorted(times):  # mostly so, and quickly seen
            return late
        for index, at in enumerate(times):
            if at < highest:
                late.append((index, highest - at))
            else:
                highest = at
        return late

    def on_handed_out(self, times: Sequence[int], late_count: int, *, is_enforced: bool) -> None:
        """Records with these timestamps were handed out, so many of them late.

        `is_enforced`: while a partition had none to compare with.
        """
        self.late_count += late_count
        highest = max(times)
        if highest > self.max_time:
            self.max_time = highest
        if is_enforced:
            self.enforced_count += len(times)
