"""The application's rebalance callbacks: called one at a time, under heartbeats, at the hand-over point."""

from __future__ import annotations

from collections.abc import Collection

from aiogroup._core.changes import Change, Changes
from aiogroup._core.membership.facts import RecordsWanted
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.states import MemberState
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import repr_of
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup.listener import call_listener
from aiogroup.structs import TopicPartition

__all__ = ["Callbacks"]


class Callbacks:
    """Calls the listener that the subscription has at the moment at which a callback is due."""

    def __init__(
        self,
        changes: Changes[Signal],
        emit: Emit,
        inbox: Inbox,
        subscription: Subscription,
        coordinator: Coordinator,
        poll_clock: PollClock,
        runs: CallbackRuns,
    ) -> None:
        self._runs = runs
        self._changes = changes
        self._emit = emit
        self._inbox = inbox
        self._subscription = subscription
        self._coordinator = coordinator
        self._poll_clock = poll_clock
        self._revoked: frozenset[TopicPartition] = frozenset()
        self.announced: frozenset[TopicPartition] = frozenset()
        """Partitions that the assigned callback named and that are still owned: no other callback may name others."""
        self.is_running = False

    @property
    def unrevoked(self) -> frozenset[TopicPartition]:
        """Partitions that the assigned callback named, and that no revoked callback has named since."""
        return self.announced - self._revoked

    @property
    def has_listener(self) -> bool:
        return self._subscription.listener is not None

    async def revoked(self, tps: Collection[TopicPartition]) -> None:
        """Call the revoked callback, once for each end of an ownership. It may still commit offsets of `tps`."""
        new = frozenset(tps) - self._revoked
        if tps and not new:
            return  # stop() came between the callback and the end of the ownership
        self._revoked |= new
        await self._call("on_partitions_revoked", new)

    async def lost(self, tps: Collection[TopicPartition]) -> None:
        await self._call("on_partitions_lost", tps)

    async def assigned(self, tps: Collection[TopicPartition]) -> None:
        self.announced |= frozenset(tps)
        await self._call("on_partitions_assigned", tps)

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """The ownership is over: the next one of the same partitions gets its own callbacks."""
        self._revoked -= frozenset(tps)
        self.announced -= frozenset(tps)

    async def _call(self, callback: str, tps: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is None:
            return
        self.is_running = True
        self._poll_clock.on_callback(now_ms(), begins=True)
        try:
            with self._runs.in_callback():
                await call_listener(listener, callback, frozenset(tps))
        except Exception as error:  # noqa: BLE001 (it does not stop the rebalance; the next call raises it)
            self._emit(events.ListenerFailed(callback, repr_of(error)))
            self._inbox.put(error)
        finally:
            self._poll_clock.on_callback(now_ms(), begins=False)
            if self._poll_clock.is_asked and self._coordinator.membership.state is MemberState.PARKED:
                self._coordinator.handle(RecordsWanted())  # the callback took too long, and a request still waits
            self.is_running = False
            self._changes.tell(Change.CALLBACK)
