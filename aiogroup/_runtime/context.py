"""What the tasks of one consumer share."""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.facts import Reason, Why
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Failures, Totals
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._core.values import dataclass
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig

__all__ = ["Context", "CurrentRebalance"]


class _CallbackRun:
    """One run of a rebalance callback of the consumer with this number."""

    __slots__ = ("given_count", "has_returned", "number")

    def __init__(self, number: int, given_count: int) -> None:
        self.number = number
        self.given_count = given_count
        self.has_returned = False


_callback_runs: Final[contextvars.ContextVar[tuple[_CallbackRun, ...]]] = contextvars.ContextVar(
    "aiogroup_callback_runs", default=()
)
"""The callback runs that this code was started from.

Every task and timer that a callback starts gets a copy of this variable, and keeps it for as long as it lives. While
the callback runs it may be waiting for such a task, so the task is inside of the callback too. Once the callback has
returned the run says so, and the task is outside.
"""


NO_REBALANCE: Final = Why(Reason.OTHER, "")


@dataclass(frozen=True, slots=True)
class CurrentRebalance:
    """The rebalance under way, or the last one: why, since when, and whether the member has completed none before."""

    why: Why = NO_REBALANCE
    began_at_ms: int = 0
    is_first: bool = False


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Context:
    """What all parts of a consumer share."""

    config: ConsumerConfig
    link: Link
    changes: Changes[Signal]
    """What tasks tell of and wait for; the assignment and the delivery tell of their changes here, too."""
    assignment: Assignment
    delivery: Delivery
    emit: Emit
    supervisor: Supervisor = field(init=False)
    threads: Threads = field(default_factory=Threads)
    inbox: Inbox = field(init=False)
    is_stopped: bool = False
    """The application has called `stop`: nothing new is begun, and requests get nothing more."""
    is_draining: bool = False
    """A stop waits for what the application handles: it may still commit that."""
    rebalance: CurrentRebalance = CurrentRebalance()  # noqa: RUF009 (frozen)
    answered_until_ms: int = FOREVER_MS
    """No record is handed out from this instant on: no heartbeat was answered for a whole session
    (`Heartbeat.counts_until_ms`).
    """
    given_count: int = 0
    """How many requests for records were given some."""
    meters: tuple[Meter, ...] = ()
    number: int = field(default_factory=itertools.count().__next__, init=False)

    totals: Totals = field(init=False)
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        self.failures = Failures(self.emit, now_ms)
        self.totals = Totals(self.failures.emit)
        self.emit = self.totals.emit
        self.inbox = Inbox(self.delivery.interrupt, self.emit)
        self.supervisor = Supervisor(self.inbox.fail_by_task)

    @property
    def is_in_callback(self) -> bool:
        """Whether this code runs inside a rebalance callback of this consumer. A callback of another consumer may use
        this one freely.
        """
        runs = _callback_runs.get()
        return bool(runs) and any(run.number == self.number and not run.has_returned for run in runs)

    @property
    def speaks_of_what_is_in_hand(self) -> bool:
        """Whether code that says "all that was delivered" also means the records in hand.

        Not inside a callback: it runs beside the handler of a record that is still in hand, or after that handler has
        failed. Nor in a task that a callback has started, as one that is not async must to commit, until records are
        given again: then the task may be a worker, and they are its own.
        """
        runs = _callback_runs.get()
        return not runs or not any(
            run.number == self.number and (not run.has_returned or run.given_count == self.given_count) for run in runs
        )

    @contextmanager
    def in_callback(self) -> Iterator[None]:
        run = _CallbackRun(self.number, self.given_count)
        token = _callback_runs.set((*(each for each in _callback_runs.get() if not each.has_returned), run))
        try:
            yield
        finally:
            run.has_returned = True
            _callback_runs.reset(token)

    def emit_rebalance_failed(self, why: str, *, is_expected: bool = False) -> None:
        self.emit(events.RebalanceFailed(why, now_ms() - self.rebalance.began_at_ms, is_expected))
