"""Which code runs inside of a rebalance callback, and what it may say of the records in hand."""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["CallbackRuns"]


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

_numbers: Final = itertools.count()


class CallbackRuns:
    """The runs of one consumer's callbacks."""

    def __init__(self) -> None:
        self.given_count = 0
        """How many requests for records were given some."""
        self._number = next(_numbers)

    @property
    def is_in_callback(self) -> bool:
        """Whether this code runs inside a rebalance callback of this consumer. A callback of another consumer may use
        this one freely.
        """
        runs = _callback_runs.get()
        return bool(runs) and any(run.number == self._number and not run.has_returned for run in runs)

    def speaks_of_what_is_in_hand(self) -> bool:
        """Whether code that says "all that was delivered" also means the records in hand.

        Not inside a callback: it runs beside the handler of a record that is still in hand, or after that handler has
        failed. Nor in a task that a callback has started; a callback that is not async can commit in no other way. Once
        records are given again such a task may be a worker, and they are its own.
        """
        runs = _callback_runs.get()
        return not runs or not any(
            run.number == self._number and (not run.has_returned or run.given_count == self.given_count) for run in runs
        )

    @contextmanager
    def in_callback(self) -> Iterator[None]:
        run = _CallbackRun(self._number, self.given_count)
        token = _callback_runs.set((*(each for each in _callback_runs.get() if not each.has_returned), run))
        try:
            yield
        finally:
            run.has_returned = True
            _callback_runs.reset(token)
