"""The base class of events, and the type of an observer that gets them.

The class name in snake case is the log key, the fields are the log's fields, and `level` is the log level.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import ClassVar, Final, Literal, Protocol

from aiogroup.values import dataclass

__all__ = ["Emit", "Event", "Observer"]

Level = Literal["debug", "info", "warning", "error"]
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a consumer. Observers get it, and the log writes it."""

    LEVEL: ClassVar[Level] = "info"

    @property
    def level(self) -> Level:
        """The event's level in the log: `LEVEL`, except for an error that was to be expected."""
        return self.LEVEL

    @property
    def name(self) -> str:
        """The event's key in logs and metrics."""
        return _WORD.sub("_", type(self).__name__).lower()

    def fields(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}


class Observer(Protocol):
    """Gets every event at once, in the event loop, so it must not block. If it raises, it is not called again."""

    def on_event(self, event: Event) -> None: ...


Emit = Callable[[Event], None]
