"""Events as structlog entries. The application configures structlog; this never does."""

from __future__ import annotations

import structlog

from aiogroup.telemetry.events import Event

__all__ = ["Log"]


class Log:
    """An observer that writes each event with its fields, bound to the consumer's group and client id."""

    def __init__(self, group_id: str | None, client_id: str) -> None:
        self._log = structlog.stdlib.get_logger("aiogroup").bind(group=group_id, client_id=client_id)

    def on_event(self, event: Event) -> None:
        getattr(self._log, event.LEVEL)(event.name, **event.fields())
