"""What an event is, and who is told.

The class name in snake case is the log key, the fields are the log's fields. `LEVEL` is how loud it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import ClassVar, Final, Literal, Protocol

from aiogroup.values import dataclass

__all__ = ["Event", "Observer", "Tell"]

Level = Literal["debug", "info", "warning", "error"]
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a consumer: what an `Observer` is told, and what the log writes."""

    LEVEL: ClassVar[Level] = "info"

    @property
    def name(self) -> str:
        """The event's key in logs and metrics."""
        return _WORD.sub("_", type(self).__name__).lower()

    def fields(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}


class Observer(Protocol):
    """Is told every event, in the loop, at once: it must not block. One that raises is left out from then on."""

    def on_event(self, event: Event) -> None: ...


Tell = Callable[[Event], None]
