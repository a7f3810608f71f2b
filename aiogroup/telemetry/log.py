"""Events as structlog entries. The application configures structlog; this never does."""

from __future__ import annotations

import logging

import structlog

from aiogroup.telemetry.events import Event

__all__ = ["Log"]


class Log:
    """An observer that writes each event with its fields, bound to the consumer's group and client id.

    Where the application has not configured structlog, events go to the stdlib logger `aiogroup`, whose own settings
    (warnings and worse to stderr) then hold; structlog's default would print every heartbeat to stdout.

    A processor or a logger that raises makes it a faulty observer, which `Observers` leaves out.
    """

    def __init__(self, group_id: str | None, client_id: str) -> None:
        if structlog.is_configured():
            logger = structlog.get_logger("aiogroup")
        else:
            logger = structlog.wrap_logger(
                logging.getLogger("aiogroup"),
                processors=[
                    structlog.stdlib.filter_by_level,
                    structlog.processors.KeyValueRenderer(key_order=["event"]),
                ],
                wrapper_class=structlog.stdlib.BoundLogger,
            )
        self._log = logger.bind(group=group_id, client_id=client_id)

    def on_event(self, event: Event) -> None:
        getattr(self._log, event.LEVEL)(event.name, **event.fields())
