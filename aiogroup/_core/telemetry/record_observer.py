"""The type of an observer that follows each record that the application handles, and what such observers make current.

What they make current lies one inside of the other, in each context: a task may read a record of one consumer while it
handles that of another one. When the outer record ends, what its body has made current ends with it in this context. A
record may also end in another context, as where an async generator that holds the loop is dropped: then what it made
current here gives way to the next record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aiogroup._core.telemetry.event import Event
from aiogroup.records import Record, Records

__all__ = [
    "NOT_PROCESSED",
    "Current",
    "End",
    "Headers",
    "RecordObserver",
    "Whose",
    "drop_what_is_over",
    "record_observers",
]

NOT_PROCESSED: Final = "not_processed"

End: TypeAlias = Callable[[str | None], object]
"""Called when the handling of a record ends: with `None`, or with `NOT_PROCESSED` if its loop was left."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Whose(NamedTuple):
    """Whose record or request it is. `generation` is -1, and `cluster_id` `None`, where there is none."""

    group_id: str | None
    client_id: str
    generation: int
    cluster_id: str | None


class RecordObserver(Protocol):
    """An observer that also follows records and requests. Each method may be left out but `begin_record`.

    It is called in the application's task, so what it sets in the context is there in the body of the loop, and in
    tasks that the body starts. It must not block. If it raises it is not called again (event `observer_failed`).
    """

    def on_event(self, event: Event) -> None: ...

    def begin_record(self, record: Record[Any, Any], whose: Whose) -> End:
        """The application gets this record. What is returned is called once, when it asks for the next one or leaves
        its loop: mostly in the same context, which then is as it was here.
        """

    def on_poll(
        self, records: Records[Any, Any] | None, began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        """`getmany` or `poll`, which began at this time of the wall clock, ended: with records, or by an error.

        `duration_ns` is right also if that clock was set meanwhile.
        """

    def on_commit(
        self, topics: Collection[str], began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        """`commit` ended. `topics` are those of the given offsets; none are given for all that was delivered."""

    def begin_send(self, topic: str, headers: Headers, whose: Whose) -> tuple[Headers, End]:
        """A dead letter with these headers goes to this topic. What is returned goes in their place, and is called when
        the letter is durable, or with the class of the error.
        """


def record_observers(observers: Iterable[Any]) -> tuple[RecordObserver, ...]:
    return tuple(each for each in observers if callable(getattr(each, "begin_record", None)))


class Current:
    """What one observer makes current for one record, from now on. `end` is what its `begin_record` returns.

    Args:
        restore: called with `before` it makes current what was so before.
        before: what that is.
    """

    __slots__ = ("before", "is_over", "outer", "restore")

    def __init__(self, restore: Callable[[Any], object], before: object) -> None:
        self.outer = _innermost.get()
        self.restore = restore
        self.before = before
        self.is_over = False
        _innermost.set(self)

    def end(self, _error: str | None = None) -> None:
        """The record has ended. In this context, what was current before it is current again."""
        self.is_over = True
        if self is _innermost.get():
            _innermost.set(self.outer)
            self.restore(self.before)
        elif self in (here := list(_all_here())):
            for each in here[: here.index(self) + 1]:
                each.give_back()

    def give_back(self) -> None:
        _innermost.set(self.outer)
        self.restore(self.before)


_innermost: ContextVar[Current | None] = ContextVar("aiogroup_innermost", default=None)


def drop_what_is_over() -> None:
    """Make current what was so before records that ended in another context; for `begin_record`, before it looks."""
    while (innermost := _innermost.get()) is not None and innermost.is_over:
        innermost.give_back()


def _all_here() -> Iterator[Current]:
    """Those of this context, the innermost first."""
    current = _innermost.get()
    while current is not None:
        yield current
        current = current.outer
