"""Makes the tasks that keep a member in its group, and that take it out when the application stalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.facts import Fact, RecordsWanted
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.states import MemberState
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.membership.heartbeat import Heartbeat
from aiogroup._runtime.membership.loop_watchdog import LoopWatchdog
from aiogroup._runtime.membership.ownership import Ownership
from aiogroup._runtime.membership.poll_watchdog import PollWatchdog
from aiogroup._runtime.membership.session_watchdog import SessionWatchdog
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import PollIntervalExceeded

if TYPE_CHECKING:
    from aiogroup._runtime.membership.heartbeat_thread import HeartbeatThread

__all__ = ["Liveness"]


class Liveness:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        inbox: Inbox,
        coordinator: Coordinator,
        ownership: Ownership,
        poll_clock: PollClock,
        meters: Sequence[Meter],
    ) -> None:
        self.answered_until_ms = FOREVER_MS
        """No record is handed out from this instant on: no heartbeat was answered for a whole session
        (`Heartbeat.counts_until_ms`).
        """
        self.has_begun = False
        """Whether the tasks of a member run: a group is joined when something is subscribed first."""
        self._meters = meters
        self._config = config
        self._assignment = assignment
        self._changes = changes
        self._emit = emit
        self._inbox = inbox
        self._coordinator = coordinator
        self._ownership = ownership
        self._poll_clock = poll_clock
        self.heartbeat: Heartbeat | HeartbeatThread
        if config.heartbeat_thread:
            from aiogroup._runtime.membership.heartbeat_thread import HeartbeatThread  # noqa: PLC0415 (few have one)

            self.heartbeat = HeartbeatThread(
                config,
                link,
                changes,
                emit,
                coordinator,
                poll_clock,
                self._on_fact,
                self._on_count,
            )
        else:
            self.heartbeat = Heartbeat(config, changes, emit, coordinator, self._on_count)
            link.is_heartbeat_late = self.heartbeat.is_late
        self.session_watchdog = SessionWatchdog(assignment, delivery, changes, emit, coordinator, self.heartbeat)

    def begin(self, supervisor: Supervisor) -> None:
        self.has_begun = True
        supervisor.spawn("heartbeat", self.heartbeat.run)
        supervisor.spawn("session watchdog", self.session_watchdog.run)
        loop_watchdog = LoopWatchdog(self._config, self._emit, self._coordinator, self._meters)
        supervisor.spawn("loop watchdog", loop_watchdog.run)
        if isinstance(self.heartbeat, Heartbeat):
            watchdog = PollWatchdog(
                self._config,
                self._changes,
                self._emit,
                self._coordinator,
                self._poll_clock,
                self._on_expired,
            )
            supervisor.spawn("poll watchdog", watchdog.run)

    def abandon(self) -> None:
        """The consumer is forgotten, and no thread may outlive it. May be called from any thread."""
        if not isinstance(self.heartbeat, Heartbeat):
            self.heartbeat.end()

    def _on_count(self, until_ms: int) -> None:
        """May be called from the heartbeat thread, as it sets one value."""
        if not self._config.deliver_while_unreachable:
            self.answered_until_ms = until_ms

    def _on_fact(self, fact: Fact) -> None:
        """Apply a fact of the heartbeat thread. It may park the member although records are asked for by now."""
        membership = self._coordinator.membership
        was_parked = membership.state is MemberState.PARKED
        self._coordinator.handle(fact)
        if membership.state is MemberState.PARKED and not was_parked:
            self._on_expired()
            if self._poll_clock.is_asked and not self._ownership.callbacks.is_running:
                self._coordinator.handle(RecordsWanted())

    def _on_expired(self) -> None:
        """Give up the partitions of a member that was parked, and inform the application.

        A member that had failed or left before is not parked. Its end is under way already, and waits for the callback
        that took longer than the interval.
        """
        membership = self._coordinator.membership
        if membership.state is not MemberState.PARKED:
            return
        partitions, interval_ms = tuple(sorted(self._assignment.names)), self._config.effective_poll_interval_ms
        # A static member sends neither LeaveGroup nor heartbeats: its name keeps its partitions for a session.
        is_silent = membership.identity.is_static and not self._config.leave_on_poll_interval
        acts_within_ms = self._coordinator.membership.session[1] if is_silent else 0
        self._ownership.drop_all_and_defer_callback()
        self._emit(events.PollIntervalExceeded(partitions, interval_ms, acts_within_ms))
        if self._config.raise_on_poll_interval:
            self._inbox.put(PollIntervalExceeded(partitions, interval_ms))
