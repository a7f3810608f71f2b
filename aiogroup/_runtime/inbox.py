"""Errors on their way from the tasks to the application's calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import repr_of
from aiogroup._core.telemetry.events import Emit
from aiogroup.errors import AiogroupError

__all__ = ["Inbox"]

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
        """Have a call raise it, unless the same error of ours waits for that already."""
        if isinstance(error, AiogroupError) and (type(error), str(error)) in [(type(e), str(e)) for e in self._once]:
            return
        if len(self._once) == ERRORS_LIMIT:
            self._emit(events.ErrorDropped(repr(self._once.popleft())))
        self._once.append(error)
        self._on_error()

    def fail(self, error: BaseException) -> None:
        if self.fatal is None:
            self.fatal = error
            self._trace = None if isinstance(error, AiogroupError) else error.__traceback__
        self._on_error()

    def fail_by_task(self, name: str, error: BaseException) -> None:
        """A task of the consumer died of this error."""
        self._emit(events.TaskFailed(name, repr_of(error)))
        self.fail(error)

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
