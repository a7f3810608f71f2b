"""Health and figures of a consumer, from what is known locally: no remote call, no unknown read as 0."""

from __future__ import annotations

from enum import StrEnum

from aiogroup.values import dataclass

__all__ = ["GroupMetadata", "Health", "HealthStatus"]


class HealthStatus(StrEnum):
    """How a consumer is, in one word; what each means for a probe is in `Health`."""

    READY = "ready"
    """Reads, or waits for records."""
    DEGRADED = "degraded"
    """Reads what is there: some of its topics do not exist, or no job moves what was handed off (KIP-333)."""
    JOINING = "joining"
    """Alive; the group gives out partitions, nothing is subscribed yet, or no topic of the subscription exists."""
    PARKED = "parked"
    """The application stopped asking for records, so the partitions were given up (KIP-62)."""
    UNREACHABLE = "unreachable"
    """No heartbeat was answered for a session, or no fetch of any leader for 30 s. A restart would not help."""
    FAILED = "failed"
    """Nothing but a new consumer helps."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Health:
    """`is_alive` for a liveness probe, `is_ready` for readiness; a member that
    rebalances is alive, and ready only where records flow all the same (cooperative).
    One that no broker answers is alive too, and not ready: a restart would not help.
    `missing_topics` are subscribed or assigned, and no broker knows them.

    Ages are milliseconds, `None` when it has not happened yet.
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
    """Who the member is: what a transactional producer needs to commit for the group (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
