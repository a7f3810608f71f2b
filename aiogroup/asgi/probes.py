"""What the probes of a service say: of each consumer's state, and of all of them. Pure.

`/livez` fails only where a restart helps. With the policy "assigned", `/readyz` fails from a consumer's end until there
is an assignment again. It does not fail in a rebalance or without a broker: all members see that at the same time, and
the whole service would drop out of rotation. With "flowing" it also fails once no record could flow for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from aiogroup._core.telemetry.health import Health, HealthStatus
from aiogroup._core.values import dataclass

__all__ = ["Look", "Ready", "Snapshot"]

Ready = Literal["assigned", "flowing"]

PARKED_LIMIT_MS: Final = 60_000
"""How long a handler may hang before a restart is asked for: a parked consumer comes back by itself if the handler
returns, and one that has failed is made anew then.
"""
UNSTARTED_LIMIT_MS: Final = 60_000
"""For how long a service may be probed before it is started; from then on nobody will start it."""
SEVERITY: Final = {status: place for place, status in enumerate(HealthStatus)}
UNASSIGNED: Final = frozenset(HealthStatus) - {
    HealthStatus.UNREACHABLE,
    HealthStatus.REBALANCING,
    HealthStatus.PAUSED,
    HealthStatus.CATCHING_UP,
    HealthStatus.DEGRADED,
    HealthStatus.READY,
}
PLAIN_WHY: Final = {
    HealthStatus.STOPPED: "the consumer was stopped",
    HealthStatus.STOPPING: "the consumer hands over and leaves its group",
    HealthStatus.FENCED: "another process uses this consumer's static name",
    HealthStatus.FAILED: "the consumer ended by an error",
    HealthStatus.PARKED: "the application has asked for no record within the poll interval",
    HealthStatus.STARTING: "no broker has answered yet",
    HealthStatus.UNREACHABLE: "the brokers do not answer",
    HealthStatus.JOINING: "the group has not given the consumer an assignment yet",
    HealthStatus.REBALANCING: "the group assigns its partitions anew",
    HealthStatus.PAUSED: "the application has paused the consumer",
    HealthStatus.CATCHING_UP: "a backlog is read beside new records",
    HealthStatus.DEGRADED: "some partitions or topics cannot be read, or something that the application needs is down",
    HealthStatus.READY: "the consumer reads, or waits for records",
}
"""For everybody who can reach a probe: without a name of a topic, group or host."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one consumer of a service is at one moment."""

    health: Health
    not_flowing_ms: int = 0
    """For how long no record could flow; 0 while records may."""
    needs_new_process: bool = False
    """It has failed, and a new consumer in this process would not help, or did not."""
    has_ended: bool = True
    """If it has failed: the loop's body has ended, too, so that a new consumer can be made."""
    was_assigned: bool = True
    """The current consumer has been seen with an assignment."""

    @property
    def is_live(self) -> bool:
        status = self.health.status
        hangs = status is HealthStatus.PARKED or (status is HealthStatus.FAILED and not self.has_ended)
        if hangs and self.health.since_ms >= PARKED_LIMIT_MS:
            return False
        return status is not HealthStatus.FAILED or not self.needs_new_process

    def is_ready(self, ready: Ready, unready_after_ms: int) -> bool:
        if self.health.status in UNASSIGNED:
            return False
        if self.health.status is HealthStatus.UNREACHABLE and not self.was_assigned:
            return False
        return ready == "assigned" or self.health.is_ready or self.not_flowing_ms < unready_after_ms


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How all consumers of a service are at one moment, by name; without those whose loop may end and has ended."""

    looks: Mapping[str, Look]
    ready: Ready
    unready_after_ms: int
    unstarted: Health | None = None
    """How the service is before it has run for the first time, and since when it is probed; then `None`."""

    @property
    def is_live(self) -> bool:
        if self.unstarted is not None:
            return self.unstarted.since_ms < UNSTARTED_LIMIT_MS
        return all(each.is_live for each in self.looks.values())

    @property
    def is_ready(self) -> bool:
        return all(each.is_ready(self.ready, self.unready_after_ms) for each in self.looks.values())

    @property
    def worst(self) -> Health:
        """The worst state of all; of several such the one that lasts longest."""
        healths = [each.health for each in self.looks.values()]
        if not healths:
            return Health(HealthStatus.READY, "every loop has ended as it may", 0, None, None)
        return min(healths, key=lambda each: (SEVERITY[each.status], -each.since_ms))

    def plain(self) -> dict[str, object]:
        """The state for everybody who can reach a probe."""
        worst = self.unstarted or self.worst
        why = PLAIN_WHY[worst.status] if self.unstarted is None else worst.why
        return {"state": worst.status, "why": why, "since_ms": worst.since_ms}
