"""The health of a consumer, from what is known locally: without a remote call, and with `None` for what is unknown."""

from __future__ import annotations

from enum import StrEnum

from aiogroup.values import dataclass

__all__ = ["GroupMetadata", "Health", "HealthStatus"]


class HealthStatus(StrEnum):
    """The state of a consumer in one word; `Health` says what each means for a probe."""

    READY = "ready"
    """The consumer reads, or waits for records."""
    DEGRADED = "degraded"
    """The consumer reads, but some of its topics do not exist, no job reads the ranges left to jobs (KIP-333), or where
    some partitions begin could not be committed yet."""
    JOINING = "joining"
    """The group is assigning partitions, nothing is subscribed yet, no topic of the subscription exists, or where all
    partitions begin could not be committed yet."""
    PARKED = "parked"
    """The application stopped asking for records, so the partitions were given up (KIP-62)."""
    UNREACHABLE = "unreachable"
    """No heartbeat was answered for a session, or no fetch of any leader for 30 s. A restart would not help."""
    FAILED = "failed"
    """The consumer failed for good: make a new one."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a consumer: `is_alive` for a liveness probe, `is_ready` for a readiness probe.

    A member that rebalances is alive, and ready only if records flow during the rebalance (cooperative). A member that
    no broker answers is alive, because a restart would not help, but not ready. `missing_topics` are subscribed or
    assigned, and no broker knows them.

    Ages are in milliseconds, `None` for something that has not happened yet.
    """

    status: HealthStatus
    why: str
    partitions_count: int
    since_request_ms: int | None
    since_heartbeat_ms: int | None
    missing_topics: tuple[str, ...] = ()

    @property
    def is_alive(self) -> bool:
        return self.status not in (HealthStatus.FAILED, HealthStatus.STOPPED, HealthStatus.PARKED)

    @property
    def is_ready(self) -> bool:
        return self.status in (HealthStatus.READY, HealthStatus.DEGRADED)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The member's identity, which a transactional producer needs to commit offsets for the group (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
