"""What a member's parts show of it to whoever looks from outside. Nothing is changed by a look."""

from __future__ import annotations

from typing import Final

from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.states import MemberState
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry.figures import GroupFigures
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup._core.telemetry.inside import Deadline
from aiogroup._core.values import dataclass
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.membership.liveness import Liveness
from aiogroup._runtime.membership.rebalance import Rebalance
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["GroupHealth", "MemberInspection"]

REBALANCES: Final = frozenset({MemberState.PREPARING, MemberState.JOINING, MemberState.SYNCING, MemberState.ADOPTING})


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """The group's part of a consumer's health; `silence` names what has not answered for too long.

    The records of the `held` partitions wait for the commit of where they begin.
    """

    status: HealthStatus = HealthStatus.READY
    why: str = "reads"
    since_heartbeat_ms: int | None = None
    silence: str = ""
    held: tuple[TopicPartition, ...] = ()
    why_held: str = ""


class MemberInspection:
    """Looks at a member. With self-assigned partitions there is little to be seen."""

    def __init__(
        self,
        config: ConsumerConfig,
        assignment: Assignment,
        subscription: Subscription,
        coordinator: Coordinator,
        commits: OwnCommits,
        current: CurrentRebalance,
        liveness: Liveness,
        rebalance: Rebalance,
        poll_clock: PollClock,
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._subscription = subscription
        self._coordinator = coordinator
        self._commits = commits
        self._current = current
        self._liveness = liveness
        self._rebalance = rebalance
        self._membership = coordinator.membership
        self._poll_clock = poll_clock

    @property
    def identity(self) -> tuple[str, int]:
        """The member's id and generation."""
        identity = self._membership.identity
        return identity.member_id, identity.generation

    def deadlines(self, now: int) -> tuple[Deadline, ...]:
        if self._subscription.is_manual or not self._liveness.has_begun:
            return ()
        config, rebalance, poll = self._config, self._current, self._poll_clock.deadlines
        acknowledged_at_ms = self._liveness.heartbeat.acknowledged_at_ms
        is_under_way = self._membership.state in REBALANCES and rebalance.began_at_ms > 0
        rebalance_setting = "max_poll_interval_ms" if config.rebalance_timeout_ms is None else "rebalance_timeout_ms"
        return (
            Deadline(
                "session", *self._membership.session, None if acknowledged_at_ms is None else now - acknowledged_at_ms
            ),
            Deadline(
                "poll",
                "max_poll_interval_ms",
                config.effective_poll_interval_ms,
                None if poll is None else now - poll.since_ms,
            ),
            Deadline(
                "rebalance",
                rebalance_setting,
                config.effective_rebalance_timeout_ms,
                now - rebalance.began_at_ms if is_under_way else None,
            ),
        )

    def health(self, now: int) -> GroupHealth:
        why_held = self._commits.why_held
        held = tuple(each.tp for each in self._assignment if Bar.HELD in each.bars) if why_held else ()
        if self._subscription.is_manual:
            return GroupHealth(held=held, why_held=why_held)
        membership = self._membership
        acknowledged_at_ms = self._liveness.heartbeat.acknowledged_at_ms
        since_heartbeat_ms = None if acknowledged_at_ms is None else now - acknowledged_at_ms
        status, why, state = HealthStatus.READY, "reads", membership.state
        if state is MemberState.PARKED:
            status, why = HealthStatus.PARKED, "no request for records within max_poll_interval_ms"
        elif state is not MemberState.STABLE and membership.may_deliver and self._assignment:
            why = f"reads while the group rebalances: {state.value}"  # cooperative
        elif state is not MemberState.STABLE:
            has_been_assigned = self._rebalance.completed_count > 0
            status, why = HealthStatus.REBALANCING if has_been_assigned else HealthStatus.JOINING, state.value
        return GroupHealth(status, why, since_heartbeat_ms, self._silence(now), held, why_held)

    def figures(self, now: int) -> GroupFigures:
        completed_at_ms = self._rebalance.completed_at_ms
        return GroupFigures(
            {
                each.name: (each.used_ms or 0) / each.limit_ms
                for each in self.deadlines(now)
                if each.used_ms is not None or each.name != "session"  # which runs always: it is not known yet
            },
            self._rebalance.completed_count,
            None if completed_at_ms is None else now - completed_at_ms,
            self._rebalance.ownership.waits.copy(),
            self._commits.committer.failures.copy(),
        )

    def _silence(self, now: int) -> str:
        setting, session_ms = self._membership.session
        if self._liveness.session_watchdog.is_unanswered:
            return f"no heartbeat was answered for {setting}={session_ms}"
        searched_ms = self._coordinator.searched_ms(now)
        if self._membership.is_rebalancing and searched_ms >= session_ms:
            return f"no coordinator of the group was found for {searched_ms} ms"
        return ""
