"""Informs every part that must know of a changed assignment, in the order in which the parts rely on each other."""

from __future__ import annotations

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.subscription import Subscription
from aiogroup._runtime.fetching.fetchers import Fetchers
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.recovery.optional import ParallelRecoveryOrNone

__all__ = ["AssignmentFollowers"]


class AssignmentFollowers:
    def __init__(
        self,
        assignment: Assignment,
        delivery: Delivery,
        subscription: Subscription,
        positions: Positions,
        fetchers: Fetchers,
        recovery: ParallelRecoveryOrNone,
        poll_clock: PollClock,
    ) -> None:
        self._assignment = assignment
        self._delivery = delivery
        self._subscription = subscription
        self._positions = positions
        self._fetchers = fetchers
        self._recovery = recovery
        self._poll_clock = poll_clock

    def tell(self) -> None:
        """Call this after every change of the assignment."""
        self._positions.follow_topics()  # positions may have been looked up before the topic was recreated
        holds = bool(self._assignment) and not self._subscription.is_manual
        self._poll_clock.on_assignment(holds, now_ms())
        self._recovery.follow()
        self._fetchers.note_assignment()
        self._delivery.interrupt()  # a merge must see the new partitions
