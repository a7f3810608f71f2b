"""What the tasks of one consumer share."""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import field
from types import TracebackType
from typing import Final

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.facts import Reason, Why
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Failures, Totals
from aiogroup._core.telemetry.event import repr_of
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._core.values import dataclass
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError

__all__ = ["Context", "CurrentRebalance", "Inbox"]


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


ERRORS_LIMIT: Final = 64
"""How many errors wait for an application that makes no call; beyond that the oldest is dropped and only reported as an
event.
"""


class Inbox:
    """Errors on their way to the application: a fatal one is raised by every call, the others once, in order."""

    def __init__(self, on_error: Callable[[], None], emit: Emit) -> None:
        self.fatal: BaseException | None = None
        self._trace: TracebackType | None = None
        self._on_error = on_error
        self._emit = emit
        self._once: deque[BaseException] = deque()

    def put(self, error: BaseException) -> None:
        if len(self._once) == ERRORS_LIMIT:
            self._emit(events.ErrorDropped(repr(self._once.popleft())))
        self._once.append(error)
        self._on_error()

    def fail(self, error: BaseException) -> None:
        if self.fatal is None:
            self.fatal = error
            self._trace = None if isinstance(error, AiogroupError) else error.__traceback__
        self._on_error()

    def raise_next(self) -> None:
        if self._once:
            raise self._once.popleft()
        if self.fatal is not None:
            self.raise_fatal()

    def take_rest(self) -> tuple[BaseException, ...]:
        """The errors that no call will raise any more."""
        rest = tuple(self._once)
        self._once.clear()
        return rest

    def raise_fatal(self) -> None:
        if self.fatal is not None:
            raise self.fatal.with_traceback(self._trace)  # otherwise the traceback would grow with every call


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
        self.inbox = Inbox(self.interrupt, self.emit)
        self.supervisor = Supervisor(self._on_task_failed)

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
        return not any(
            run.number == self.number and (not run.has_returned or run.given_count == self.given_count)
            for run in _callback_runs.get()
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

    def _on_task_failed(self, name: str, error: BaseException) -> None:
        self.emit(events.TaskFailed(name, repr_of(error)))
        self.inbox.fail(error)

    async def know(self, topics: Collection[str]) -> None:
        """Fetch the metadata of topics that are not known yet. A failure is emitted as an event, not raised."""
        cluster = self.link.cluster
        if unknown := [topic for topic in topics if topic not in cluster.topics]:
            try:
                await self.link.fetch_metadata({*cluster.topics, *unknown})
            except AiogroupError as error:
                self.emit(events.MetadataFailed(str(error)))

    def emit_rebalance_failed(self, why: str, *, is_expected: bool = False) -> None:
        self.emit(events.RebalanceFailed(why, now_ms() - self.rebalance.began_at_ms, is_expected))

    def interrupt(self) -> None:
        """Make the application's next request, and one that waits, check for pending work before it takes a record."""
        self.delivery.close_cursor()
        self.changes.tell(Change.INTERRUPTED)
