"""The expiry of commits that name a retention time (`retention_time_ms` of OffsetCommit 2 to 4), and of no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiogroup.embedded.machine.groups.group import GroupState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
    from aiogroup.embedded.machine.groups.coordinators import Coordinators
    from aiogroup.embedded.machine.groups.log import Committed
    from aiogroup.embedded.machine.timers import Timers

__all__ = ["Expiry"]

CHECK_MS: Final = 600_000
"""Kafka's offsets.retention.check.interval.ms: until then an offset that has expired is still returned."""
NOT_ASKED: Final = -1
Key = tuple[str, int]


class Expiry:
    """Kafka's OffsetMetadataManager.cleanupExpiredOffsets, for commits that name a retention time."""

    def __init__(self, coordinators: Coordinators, timers: Timers) -> None:
        self._coordinators = coordinators
        self._timers = timers

    def note(self, request: OffsetCommitRequest, keys: Iterable[Key], now_ms: int) -> None:
        """Plan to forget what was just committed for `keys`."""
        log = self._coordinators.log_of(request.group_id)
        if request.retention_time_ms == NOT_ASKED or log is None:
            return
        expires_at_ms = now_ms + request.retention_time_ms
        if expires_at_ms > 0x7FFF_FFFF_FFFF_FFFF:
            expires_at_ms = now_ms  # Java's sum overflows and is negative: the commit has expired
        committed = {key: log.offsets[key] for key in keys if key in log.offsets}
        if committed:
            self._plan(request.group_id, committed, max(expires_at_ms, now_ms))

    def _plan(self, group_id: str, committed: dict[Key, Committed], from_ms: int) -> None:
        at_ms = -(-from_ms // CHECK_MS) * CHECK_MS
        self._timers.at(at_ms, lambda now_ms: self._check(group_id, committed, now_ms))

    def _check(self, group_id: str, committed: dict[Key, Committed], now_ms: int) -> None:
        """Forget what has expired. A later commit has its own retention. A group keeps commits for topics that it
        reads, or may read.
        """
        log = self._coordinators.log_of(group_id)
        if log is None:
            return
        left = {key: each for key, each in committed.items() if log.offsets.get(key) is each}
        gone = [key for key in left if self._may_forget(group_id, key[0]) and not log.is_pending(*key)]
        log.forget_offsets(gone)
        left = {key: each for key, each in left.items() if key not in gone}
        if left:
            self._plan(group_id, left, now_ms + 1)

    def _may_forget(self, group_id: str, topic: str) -> bool:
        """ClassicGroup.offsetExpirationCondition."""
        coordinator = self._coordinators.seat_of(group_id).coordinator
        group = None if coordinator is None else coordinator.groups.get(group_id)
        if group is None:
            return False
        return group.state is GroupState.EMPTY or (
            group.consumes and group.state is GroupState.STABLE and not group.reads(topic)
        )
