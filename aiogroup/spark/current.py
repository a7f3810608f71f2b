"""The round in which `process` is called: what a sink needs to know besides the DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from aiogroup._core.recovery.ranges import Ranges
from aiogroup._core.recovery.token import LogId

__all__ = ["Current", "at_work", "current"]


@dataclass(frozen=True, slots=True)
class Current:
    """The group, the offsets of the DataFrame, and the storage level that Spark keeps it at.

    `tables` has the tables to which this call of `process` has written. Each function in `undo` is called if this call
    turns out not to have read all of the DataFrame.
    """

    group_id: str
    offsets: Mapping[LogId, Ranges]
    keep: str | None = None
    tables: set[str] = field(default_factory=set)
    undo: list[Callable[[], object]] = field(default_factory=list)


_CURRENT: Final[ContextVar[Current | None]] = ContextVar("aiogroup.spark.current", default=None)


def current() -> Current | None:
    """The round of this thread; `None` outside of `process`, and in threads that it has started."""
    return _CURRENT.get()


@contextmanager
def at_work(on: Current) -> Iterator[None]:
    """While `process` is called."""
    before = _CURRENT.set(on)
    try:
        yield
    finally:
        _CURRENT.reset(before)
