"""The health of a consumer, from what is known locally: without a remote call, and with `None` for what is unknown."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from aiogroup._core.values import dataclass

__all__ = ["GroupMetadata", "Health", "HealthStatus", "Since"]


class HealthStatus(StrEnum):
    """The state of a consumer in one word: the first of these that holds, so the worst one comes first."""

    STOPPED = "stopped"
    """`stop` has ended."""
    STOPPING = "stopping"
    """`stop` has begun."""
    FENCED = "fenced"
    """Another process uses the consumer's static name now (`FencedInstanceIdError`). A restart would take the name
    back, and the two would take turns for ever."""
    FAILED = "failed"
    """The consumer failed for good: make a new one."""
    PARKED = "parked"
    """The application stopped asking for records, so the partitions were given up (KIP-62)."""
    STARTING = "starting"
    """No broker has answered yet."""
    UNREACHABLE = "unreachable"
    """No heartbeat was answered for a session, or no fetch of any leader for 30 s, or no leader could be connected even
    once. A restart would not help."""
    JOINING = "joining"
    """The group has not given the consumer an assignment since its start (an empty one is one), or nothing is
    subscribed."""
    REBALANCING = "rebalancing"
    """The group assigns its partitions anew, and no record may flow meanwhile (eager)."""
    PAUSED = "paused"
    """The application has paused all assigned partitions, by `pause` or a block `async with consumer.paused()`."""
    CATCHING_UP = "catching_up"
    """Ranges of the backlog are pending, and are read beside new records (KIP-333)."""
    DEGRADED = "degraded"
    """The consumer reads, but some of its topics do not exist or may not be read, some partitions have no leader, no
    job reads the ranges left to jobs (KIP-333), or where some partitions begin could not be committed yet. Also where a
    service was told so (`service[name].degraded("database")`), then even if nothing is read."""
    READY = "ready"
    """The consumer reads, or waits for records; also with lag, and without a partition for this member."""


class Since:
    """Since when a value has been the same, as far as the calls that report it can tell."""

    def __init__(self) -> None:
        self._value: object = None
        self._at_ms: int | None = None

    def ms(self, value: object, now: int) -> int:
        """Note the value, and for how many milliseconds it has been the same; 0 if it is new."""
        if self._at_ms is None or value != self._value:
            self._value, self._at_ms = value, now
        return now - self._at_ms


FLOWING: Final = frozenset({HealthStatus.READY, HealthStatus.DEGRADED, HealthStatus.CATCHING_UP})
DEAD: Final = frozenset({HealthStatus.FAILED, HealthStatus.STOPPED, HealthStatus.PARKED})


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a consumer: `is_alive` for a liveness probe, `is_ready` for a readiness probe.

    A member that rebalances is alive, and ready only if records flow during the rebalance (cooperative). A member that
    no broker answers, or that was fenced, is alive, because a restart would not help, but not ready. `missing_topics`
    are subscribed or assigned, and no broker knows them. `is_wholly_degraded`: what degrades it concerns all of its
    partitions, so that no record flows. `aiogroup.asgi` has probes that wait for a while before they fail.

    Ages are in milliseconds, `None` for something that has not happened yet. `since_ms` is how long the consumer has
    been in this state, so far as the calls of `health()` have seen it: call it every second, and it is exact to the
    second.
    """

    status: HealthStatus
    why: str
    partitions_count: int
    since_request_ms: int | None
    since_heartbeat_ms: int | None
    missing_topics: tuple[str, ...] = ()
    is_wholly_degraded: bool = False
    since_ms: int = 0

    @property
    def is_alive(self) -> bool:
        return self.status not in DEAD

    @property
    def is_ready(self) -> bool:
        """Whether records may flow."""
        return self.status in FLOWING and not self.is_wholly_degraded


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The member's identity, which a transactional producer needs to commit offsets for the group (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
