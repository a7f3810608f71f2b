"""Gives events to the log and to observers, in order, and stops calling an observer that raises."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event, Observer, repr_of
from aiogroup.errors import ConfigError

__all__ = ["CAUSED_LIMIT", "Observers", "checked_observers"]

CAUSED_LIMIT: Final = 1_000
"""How many events observers may cause, by calls of their own, while one event is emitted: more would never end."""


class Observers:
    """Gives each event to the log and to every observer.

    Events are emitted in delicate places: under the coordinator's lock, in the middle of a change of state, in
    callbacks of the loop. So an observer that raises is not called again, as trio does with an instrument, and the code
    that emitted the event goes on. `KeyboardInterrupt` and `SystemExit` are raised on, as everywhere in asyncio: they
    are meant for the process. A `CancelledError` is not, since a task is never cancelled in the middle of a plain
    function.
    """

    def __init__(self, log: Observer, observers: Iterable[Observer]) -> None:
        self._log = log
        self._observers = [log, *observers]
        self._waiting: deque[Event] = deque()
        self._is_emitting = False
        self._caused_count = 0

    def add(self, observer: Observer) -> None:
        """Give each event from now on to this observer, too."""
        self._observers = [*self._observers, observer]

    def emit(self, event: Event) -> None:
        """Emit an event. If an observer causes another one by its own call, that is emitted after this one."""
        self._waiting.append(event)
        if self._is_emitting:
            return
        self._is_emitting, self._caused_count = True, 0
        try:
            while self._waiting:
                event = self._waiting.popleft()
                for observer in self._observers:
                    waiting_count = len(self._waiting)
                    try:
                        observer.on_event(event)
                        self._caused_count += len(self._waiting) - waiting_count
                        if self._caused_count > CAUSED_LIMIT:
                            self._caused_count = 0
                            raise RuntimeError("each event that it gets makes it cause another one, without end")  # noqa: TRY301
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the observer's fault)
                        self._leave_out(observer, event, error)
        finally:
            self._is_emitting = False

    def _leave_out(self, faulty: Observer, event: Event, error: BaseException) -> None:
        if not any(each is faulty for each in self._observers):
            return  # the same observer was given twice, and is left out already
        self._observers = [each for each in self._observers if each is not faulty]
        lines = "".join(traceback.format_exception(error))
        failed = events.ObserverFailed(repr_of(faulty), event.name, repr_of(error), lines)
        self._waiting.append(failed)
        if not any(each is self._log for each in self._observers):
            _write_to_stderr(failed)


def checked_observers(observers: object) -> tuple[Observer, ...]:
    """What an application gives as its observers.

    Raises:
        ConfigError: one of them has no `on_event(event)`, or one that is async.
    """
    if not isinstance(observers, Iterable):
        raise ConfigError(f"observers={observers!r}: a list of objects with on_event(event) is needed")
    given = tuple(observers)
    for each in given:
        if isinstance(each, type) or not callable(getattr(each, "on_event", None)):
            raise ConfigError(f"observers: {each!r} has no on_event(event); give objects that have")
        if inspect.iscoroutinefunction(each.on_event):
            raise ConfigError(f"observers: on_event of {each!r} is async, and is not awaited; make it a plain function")
    return given


def _write_to_stderr(failed: events.ObserverFailed) -> None:
    """Write that the log itself failed to where `logging` writes when it is not configured."""
    message = "aiogroup: the observer %s raised at the event %s and gets no more events\n%s"
    arguments = (failed.observer, failed.event_name, failed.traceback.rstrip())
    record = logging.LogRecord("aiogroup", logging.ERROR, __file__, 0, message, arguments, None)
    with suppress(Exception):
        if logging.lastResort is not None:
            logging.lastResort.handle(record)
