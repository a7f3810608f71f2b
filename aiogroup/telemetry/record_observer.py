"""The type of an observer that follows each record that the application handles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aiogroup.records import Record, Records
from aiogroup.telemetry.event import Event

__all__ = ["NOT_PROCESSED", "End", "RecordObserver", "Whose", "record_observers"]

NOT_PROCESSED: Final = "not_processed"

End: TypeAlias = Callable[[str | None], object]
"""Called when the handling of a record ends: with `None`, or with `NOT_PROCESSED` if its loop was left."""


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

    def begin_record(self, record: Record, whose: Whose) -> End:
        """The application gets this record. What is returned is called once, when it asks for the next one or leaves
        its loop: mostly in the same context, which then is as it was here.
        """

    def on_poll(
        self, records: Records | None, began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        """`getmany` or `poll`, which began at this time of the wall clock, ended: with records, or by an error.

        `duration_ns` is right also if that clock was set meanwhile.
        """

    def on_commit(
        self, topics: Collection[str], began_ns: int, duration_ns: int, error: str | None, whose: Whose
    ) -> None:
        """`commit` ended. `topics` are those of the given offsets; none are given for all that was delivered."""


def record_observers(observers: Iterable[Any]) -> tuple[RecordObserver, ...]:
    return tuple(each for each in observers if callable(getattr(each, "begin_record", None)))
