"""The rebalance under way, or the last one, for all that is said about it."""

from __future__ import annotations

from typing import Final

from aiogroup._core.membership.facts import Reason, Why
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.loop.clock import now_ms

__all__ = ["CurrentRebalance"]

NO_REBALANCE: Final = Why(Reason.OTHER, "")


class CurrentRebalance:
    """Why it began, when, and whether the member has completed none before."""

    def __init__(self, emit: Emit) -> None:
        self.why = NO_REBALANCE
        self.began_at_ms = 0
        self.is_first = False
        self._emit = emit

    def begin(self, why: Why, *, is_first: bool) -> None:
        self.why, self.began_at_ms, self.is_first = why, now_ms(), is_first

    def emit_failed(self, why: str, *, is_expected: bool = False) -> None:
        self._emit(events.RebalanceFailed(why, now_ms() - self.began_at_ms, is_expected))
