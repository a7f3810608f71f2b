"""Functions that a test wants to run at critical moments of a group: when a generation begins, when its assignment is
handed in, when a member's session expires.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup.embedded.machine.observers import Observer
from aiogroup.embedded.machine.refusals import BrokerRefusal, Troubles, whole_number
from aiogroup.embedded.machine.timers import Timers

if TYPE_CHECKING:
    from aiogroup.embedded.machine.exchange import Exchange
    from aiogroup.embedded.machine.groups.group import Group

__all__ = ["Ambush", "Moment", "Moments"]

Moment = Literal["generation", "assignment", "expired"]
"""A generation begins, or the group is empty now; the leader's assignment was taken; a member's session has expired."""


class Ambush:
    """One function that waits for its moment."""

    def __init__(self, moment: Moment, act: Callable[[], object], group_id: str | None, times: int | None) -> None:
        if moment not in get_args(Moment):
            raise BrokerRefusal(f"there is no moment {moment!r}, but {', '.join(get_args(Moment))}")
        if not callable(act):
            raise BrokerRefusal(f"what happens is a function without arguments, not {act!r}")
        if inspect.iscoroutinefunction(act):
            raise BrokerRefusal("when() calls its function in the broker's thread: it cannot be a coroutine function")
        if times is not None and whole_number("times", times) < 1:
            raise BrokerRefusal(f"times={times}: it happens at least once; None: until it is removed")
        self.moment = moment
        self.act = act
        self.used_count = 0
        self._group_id = group_id
        self._times = times

    def fits(self, moment: Moment, group_id: str) -> bool:
        return moment == self.moment and self._group_id in (None, group_id)

    @property
    def is_used_up(self) -> bool:
        return self._times is not None and self.used_count >= self._times


class Moments(Observer):
    """All functions that wait. An observer must not change the machine, so functions that are due wait for `spring`."""

    def __init__(self, troubles: Troubles, timers: Timers) -> None:
        self._troubles = troubles
        self._timers = timers
        self._waiting: list[Ambush] = []
        self._due: deque[Ambush] = deque()

    def add(self, ambush: Ambush) -> Ambush:
        self._waiting.append(ambush)
        return ambush

    def remove(self, ambush: Ambush) -> None:
        self._waiting = [each for each in self._waiting if each is not ambush]

    def clear(self) -> None:
        self._waiting = []

    def on_answers(self, _exchange: Exchange | None, answered: Sequence[Exchange], _now_ms: int) -> None:
        if not self._waiting:
            return
        for each in answered:
            request, response = each.request, each.response
            if not isinstance(request, SyncGroupRequest) or not isinstance(response, SyncGroupResponse):
                continue
            if request.assignments and not response.error_code:
                self._has_come("assignment", request.group_id)

    def on_generation(self, group: Group, _now_ms: int) -> None:
        self._has_come("generation", group.group_id)

    def on_expired(self, group: Group, _member_id: str, _now_ms: int) -> None:
        self._has_come("expired", group.group_id)

    def _has_come(self, moment: Moment, group_id: str) -> None:
        for each in self._waiting:
            if each.fits(moment, group_id):
                each.used_count += 1
                self._due.append(each)
        self._waiting = [each for each in self._waiting if not each.is_used_up]

    def spring(self) -> None:
        """Run the functions that are due: outside of the machine, and before the answers of this moment are sent."""
        while self._due:
            ambush = self._due.popleft()
            try:
                ambush.act()
            except Exception as error:  # noqa: BLE001 (the test's own code)
                what = f"the function of when({ambush.moment!r}) raised {type(error).__name__}: {error}"
                self._troubles.note("rule", what, self._timers.now_ms)
