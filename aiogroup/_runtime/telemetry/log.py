"""Writes events to the log. Only the application configures logging, with structlog or the standard library."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Final

from aiogroup._core.telemetry.counts import COORDINATOR_LOST, FAILURES, Cause, cause_of
from aiogroup._core.telemetry.event import Level
from aiogroup._core.telemetry.events import CoordinatorFound, Event, FailingEnded

__all__ = ["Log"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_JUDGED: Final = FAILURES | {CoordinatorFound, FailingEnded}
"""The events whose level depends on what was written before."""
_logger: Final = logging.getLogger("aiogroup")


class Log:
    """An observer that writes each event with its fields, and with the consumer's group and client id.

    If the application has configured structlog, events go there, with `logger="aiogroup"`: those at the level of the
    standard logger `aiogroup` or above, at INFO or above if that logger has no level. Without that limit a structlog
    without a filter would write every heartbeat. Without structlog, events go to the standard logger `aiogroup`.
    Its records have the fields as attributes (`extra`), for formatters that write JSON, and as text in their message.
    Whether structlog is configured is checked at each event: a consumer may be made before the application configures
    it.

    A failure that comes again and again is written once. Until its cause has ended, the next ones are written at
    DEBUG; `FailingStill` and `FailingEnded` say how many they were.

    If a processor or a logger raises, `Observers` treats this observer as faulty and does not call it again.
    """

    def __init__(self, group_id: str | None, client_id: str) -> None:
        self._whose: dict[str, object] = {"group": group_id, "client_id": client_id}
        self._written: set[Cause] = set()

    def on_event(self, event: Event) -> None:
        word = self._level_of(event) if type(event) in _JUDGED else event.level
        level = _LEVELS[word]
        if "structlog" in sys.modules and (structlog := _configured_structlog()) is not None:
            if level >= (_logger.level or logging.INFO):
                write = getattr(structlog.get_logger("aiogroup"), word)
                write(event.name, logger="aiogroup", **self._whose, **event.fields())
        elif _logger.isEnabledFor(level):
            fields = {**event.fields(), **self._whose}
            template = f"{event.name} %s"  # one for each event, as some log services group messages by their template
            _logger.log(level, template, _Text(fields), extra={"event": event.name, **fields})

    def _level_of(self, event: Event) -> Level:
        if isinstance(event, FailingEnded):
            self._written.discard(Cause(event.event_name, event.node_id, event.topic, event.why))
        elif isinstance(event, CoordinatorFound) and Cause(COORDINATOR_LOST, event.node_id) in self._written:
            return "debug"  # the brokers still name it, and it may still be away: `FailingEnded` tells when it answers
        elif (cause := cause_of(event)) in self._written:
            return "debug"
        elif cause is not None:
            self._written.add(cause)
        return event.level


def _configured_structlog() -> ModuleType | None:
    """structlog, which somebody has imported, if the application has configured it."""
    import structlog  # noqa: PLC0415 (waits if another thread is importing it)

    return structlog if structlog.is_configured() else None


class _Text:
    """The fields as text, made when a formatter asks for it."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self._fields.items())
