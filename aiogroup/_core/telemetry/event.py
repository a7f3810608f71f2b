"""The base class of events, two about other events, the type of an observer, and texts of what the application raised.

The class name in snake case is the log key, the fields are the log's fields, and `level` is the log level.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import ClassVar, Final, Literal, Protocol

from aiogroup._core.values import dataclass

__all__ = ["Emit", "Event", "FailingEnded", "FailingStill", "Level", "Observer", "name_and_text", "repr_of"]

Level = Literal["debug", "info", "warning", "error"]
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a consumer. Observers get it, and the log writes it."""

    LEVEL: ClassVar[Level] = "info"

    def __init_subclass__(cls) -> None:
        # Mostly the level is that of the class: then it is a value, for which no function is called.
        if cls.level is Event.level or not isinstance(cls.level, property):
            cls.level = cls.LEVEL  # type: ignore[assignment, method-assign]

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


@dataclass(frozen=True, slots=True)
class FailingStill(Event):
    """What `event_name` tells has failed for a minute more. `why` is that of the last failure."""

    LEVEL: ClassVar[Level] = "warning"
    event_name: str
    node_id: int | None
    topic: str | None
    why: str
    failures_count: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class FailingEnded(Event):
    """What `event_name` told has succeeded again, or is not needed any more. `duration_ms` lasts to the last failure.

    `why` says which failures have ended, where the node and the topic do not say it.
    """

    event_name: str
    node_id: int | None
    topic: str | None
    why: str
    failures_count: int
    duration_ms: int


class Observer(Protocol):
    """Gets every event at once, in the event loop, so it must not block. If it raises, it is not called again."""

    def on_event(self, event: Event) -> None: ...


Emit = Callable[[Event], None]


def name_and_text(error: BaseException) -> str:
    """The class of an error and what it says, also of one whose own `__str__` raises."""
    try:
        text = str(error)
    except Exception as raised:  # noqa: BLE001 (it is faulty as it is)
        text = f"<no text: str() raised {type(raised).__name__}>"
    return f"{type(error).__name__}: {text}"


def repr_of(value: object) -> str:
    """The `repr` of an object of the application; if that raises, the one that every object has."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 (it is faulty as it is)
        return object.__repr__(value)
