"""Adds up what partitions tell of their start: a person wants one line for an assignment, not one for each."""

from __future__ import annotations

from aiogroup.telemetry import events
from aiogroup.telemetry.event import Emit, Event

__all__ = ["Totals"]


class Totals:
    """Passes every event on to `emit`, and counts those of single partitions until `tell`."""

    def __init__(self, emit: Emit) -> None:
        self._pass_on = emit
        self._forget()

    def _forget(self) -> None:
        self._from_policy_count = self._new_count = self._catching_up_count = self._pending_count = 0
        self._recreated_count = 0
        self._recreated: set[str] = set()
        self._has_some = False

    def emit(self, event: Event) -> None:
        self._pass_on(event)
        match event:
            case events.PositionFromPolicy():
                self._from_policy_count += len(event.partitions)
            case events.NewPartitionFromEarliest():
                self._new_count += 1
            case events.CatchUpStarted():
                self._catching_up_count += 1
                self._pending_count += event.records_count
            case events.TopicRecreated():
                self._recreated_count += 1
                self._recreated.add(event.topic)
            case _:
                return
        self._has_some = True

    def tell(self) -> None:
        """Emit the totals, if there are some, and begin anew."""
        if not self._has_some:
            return
        totals = events.PartitionsStarted(
            self._from_policy_count,
            self._new_count,
            self._catching_up_count,
            self._pending_count,
            self._recreated_count,
            tuple(sorted(self._recreated)),
        )
        self._forget()
        self._pass_on(totals)
