"""Events as log entries. The application configures logging, by structlog or the standard library; this never does."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Final

from aiogroup.telemetry.events import Event

__all__ = ["Log"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_logger: Final = logging.getLogger("aiogroup")


class Log:
    """An observer that writes each event with its fields, and with the consumer's group and client id.

    Where the application has configured structlog, events go there: those from INFO on, or from the level on that was
    set for the standard logger `aiogroup`. A structlog without a filter would write every heartbeat otherwise.
    Elsewhere events go to that logger itself. Its records have the fields as attributes (`extra`), for formatters that
    write JSON, and in their message as text. Which of the two it is is asked at each event: a consumer may be made
    before the application configures structlog.

    A processor or a logger that raises makes it a faulty observer, which `Observers` leaves out.
    """

    def __init__(self, group_id: str | None, client_id: str) -> None:
        self._whose: dict[str, object] = {"group": group_id, "client_id": client_id}

    def on_event(self, event: Event) -> None:
        level = _LEVELS[event.LEVEL]
        if (structlog := _configured_structlog()) is not None:
            if level >= (_logger.level or logging.INFO):
                getattr(structlog.get_logger("aiogroup"), event.LEVEL)(event.name, **self._whose, **event.fields())
        elif _logger.isEnabledFor(level):
            fields = {**event.fields(), **self._whose}
            template = f"{event.name} %s"  # one for each event: by it some services group what they are sent
            _logger.log(level, template, _Text(fields), extra={"event": event.name, **fields})


def _configured_structlog() -> ModuleType | None:
    """None as long as nobody imported it: then nobody configured it either."""
    if "structlog" not in sys.modules:
        return None
    import structlog  # noqa: PLC0415 (waits for a thread that is about to import it)

    return structlog if structlog.is_configured() else None


class _Text:
    """The fields as text, made when a formatter asks for it."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self._fields.items())
