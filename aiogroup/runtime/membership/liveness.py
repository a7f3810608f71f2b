"""The tasks that keep a member in its group, or take it out when the application stalls; in the main loop or not."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiogroup.errors import PollIntervalExceeded
from aiogroup.membership.facts import Fact, RecordsWanted
from aiogroup.membership.liveness import PollClock
from aiogroup.membership.states import MemberState
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.membership.heartbeat import Heartbeat
from aiogroup.runtime.membership.heartbeat_thread import HeartbeatThread
from aiogroup.runtime.membership.loop_watchdog import LoopWatchdog
from aiogroup.runtime.membership.poll_watchdog import PollWatchdog
from aiogroup.runtime.membership.session_watchdog import SessionWatchdog
from aiogroup.telemetry import events

__all__ = ["Liveness"]


class Liveness:
    """`drop()` gives the partitions up at once; `is_asking()`: records are waited for, and no callback is running."""

    def __init__(
        self, context: Context, coordinator: Coordinator, drop: Callable[[], None], is_asking: Callable[[], bool]
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._drop = drop
        self._is_asking = is_asking
        self._interval_ms = context.config.effective_poll_interval_ms
        self.poll_clock = PollClock(self._interval_ms, now_ms())
        self.heartbeat: Heartbeat | HeartbeatThread
        if context.config.heartbeat_thread:
            self.heartbeat = HeartbeatThread(context, coordinator, self.poll_clock, self._on_fact, self._on_count)
        else:
            self.heartbeat = Heartbeat(context, coordinator, self._on_count)
            context.link.is_heartbeat_late = self.heartbeat.is_late
        self.session_watchdog = SessionWatchdog(context, self.heartbeat, self._session)

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What runs in the main loop, by name."""
        tasks = {
            "heartbeat": self.heartbeat.run,
            "session watchdog": self.session_watchdog.run,
            "loop watchdog": LoopWatchdog(self._context, self._session).run,
        }
        if isinstance(self.heartbeat, Heartbeat):
            watchdog = PollWatchdog(self._context, self._coordinator, self.poll_clock, self._on_expired)
            tasks["poll watchdog"] = watchdog.run
        return tasks

    def abandon(self) -> None:
        """The consumer is forgotten: no thread may outlive it. From any thread."""
        if isinstance(self.heartbeat, HeartbeatThread):
            self.heartbeat.end()

    def _session(self) -> tuple[str, int]:
        return self._coordinator.membership.settings.session_of(self._coordinator.identity)

    def _on_count(self, until_ms: int) -> None:
        """From the heartbeat thread, too: it is one value."""
        if not self._context.config.deliver_while_unreachable:
            self._context.answered_until_ms = until_ms

    def _on_fact(self, fact: Fact) -> None:
        """What the thread learnt. It may have parked the member although records are asked for by now."""
        membership = self._coordinator.membership
        was_parked = membership.state is MemberState.PARKED
        self._coordinator.handle(fact)
        if membership.state is MemberState.PARKED and not was_parked:
            self._on_expired()
            if self._is_asking():
                self._coordinator.handle(RecordsWanted())

    def _on_expired(self) -> None:
        """The member is parked: the application is told, and loses its partitions.

        Not one that had failed or left before: that is under way, and waits for a callback that takes so long.
        """
        context, membership = self._context, self._coordinator.membership
        if membership.state is not MemberState.PARKED:
            return
        partitions = tuple(sorted(context.assignment.names))
        # A static member sends no LeaveGroup and no more heartbeats: its name keeps its partitions for a session.
        is_silent = membership.identity.is_static and not membership.settings.leave_on_poll_interval
        acts_within_ms = self._session()[1] if is_silent else 0
        self._drop()
        context.tell(events.PollIntervalExceeded(partitions, self._interval_ms, acts_within_ms))
        if context.config.raise_on_poll_interval:
            context.inbox.put(PollIntervalExceeded(partitions, self._interval_ms))
