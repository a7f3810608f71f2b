"""Tells observers which record the application handles, in the task and the context in which it does.

Without such an observer nothing of this is made: the application gets the iterator that it gets anyway.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from aiogroup.records import Record, Records
from aiogroup.runtime.loop.clock import steady_ns, wall_ns
from aiogroup.structs import TopicPartition
from aiogroup.telemetry import events
from aiogroup.telemetry.events import Emit
from aiogroup.telemetry.record_observer import NOT_PROCESSED, End, RecordObserver, Whose

__all__ = ["Handling"]

Task: TypeAlias = "asyncio.Task[Any]"


class _Begun:
    """A record in the hands of a task."""

    __slots__ = ("ends", "task")

    def __init__(self, task: Task | None) -> None:
        self.task = task
        self.ends: list[tuple[RecordObserver, End]] = []


class Handling:
    """The records that tasks of the application handle: one for each task, from the request that gives it to the task's
    next one.
    """

    def __init__(self, observers: tuple[RecordObserver, ...], emit: Emit, whose: Callable[[], Whose]) -> None:
        self._observers = observers
        self._emit = emit
        self._whose = whose
        self._begun: dict[Task | None, _Begun] = {}

    def over(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        """An iterator over the same records."""
        return _Handled(self, records)

    async def one(self, request: Awaitable[Record]) -> Record:
        """The record of this request; the calling task handles it from now on, and has handled the one before."""
        task = asyncio.current_task()
        self.end(task)
        record = await request
        self.begin(task, record)
        return record

    async def batch(self, request: Awaitable[Records]) -> Records:
        """As `one`, for many records: it learns only that they came."""
        self.end(asyncio.current_task())
        began = wall_ns(), steady_ns()
        try:
            records = await request
        except Exception as error:
            self._tell("on_poll", None, began, type(error).__qualname__)
            raise
        self._tell("on_poll", records, began, None)
        return records

    async def commit(self, request: Awaitable[None], offsets: object) -> None:
        """Await a commit of the offsets that the application gave, or of all that was delivered."""
        given = offsets if isinstance(offsets, Mapping) else ()
        topics = {each.topic for each in given if isinstance(each, TopicPartition)}
        began = wall_ns(), steady_ns()
        try:
            await request
        except Exception as error:
            self._tell("on_commit", topics, began, type(error).__qualname__)
            raise
        self._tell("on_commit", topics, began, None)

    def leave(self, begun: _Begun) -> None:
        """The loop that got this record was left, so it is not processed."""
        if self._begun.get(begun.task) is begun:
            del self._begun[begun.task]
            self._end(begun, NOT_PROCESSED)

    def close(self) -> None:
        """The consumer is closed: what is still in hand is not processed."""
        while self._begun:
            self._end(self._begun.popitem()[1], NOT_PROCESSED)

    def begin(self, task: Task | None, record: Record) -> _Begun:
        """The task handles this record from now on."""
        begun, whose = _Begun(task), self._whose()
        for each in self._observers:
            try:
                begun.ends.append((each, each.begin_record(record, whose)))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the observer's fault)
                self._leave_out(each, "begin_record", error)
        self._begun[task] = begun
        return begun

    def end(self, task: Task | None) -> None:
        """The task has handled its record."""
        begun = self._begun.pop(task, None)
        if begun is not None:
            self._end(begun, None)
        if self._begun:
            self._end_with_tasks()

    def _end_with_tasks(self) -> None:
        """A task that has ended asks for nothing more, and the next request of another one goes on after its record."""
        for task in [each for each in self._begun if each is not None and each.done()]:
            self._end(self._begun.pop(task), None)

    def _end(self, begun: _Begun, error: str | None) -> None:
        for observer, end in reversed(begun.ends):
            try:
                end(error)
            except Exception as raised:  # noqa: BLE001 (as above)
                self._leave_out(observer, "the end of begin_record", raised)

    def _tell(self, method: str, what: object, began: tuple[int, int], error: str | None) -> None:
        """The call began at these times of the wall clock, and of the one that nobody sets."""
        began_ns, steadily_ns = began
        duration_ns = steady_ns() - steadily_ns
        for each in self._observers:
            hook = getattr(each, method, None)
            if hook is None:
                continue
            try:
                hook(what, began_ns, duration_ns, error, self._whose())
            except Exception as raised:  # noqa: BLE001 (as above)
                self._leave_out(each, method, raised)

    def _leave_out(self, faulty: RecordObserver, method: str, error: Exception) -> None:
        if any(each is faulty for each in self._observers):
            self._observers = tuple(each for each in self._observers if each is not faulty)
            lines = "".join(traceback.format_exception(error))
            self._emit(events.ObserverFailed(type(faulty).__qualname__, method, repr(error), lines))


class _Handled:
    """The iterator of one loop. Where `break` or an exception leaves the loop, Python drops it at once, in the
    context of the loop.
    """

    def __init__(self, handling: Handling, records: AsyncIterator[Record]) -> None:
        self._handling = handling
        self._records = records
        self._begun: _Begun | None = None

    def __aiter__(self) -> _Handled:
        return self

    async def __anext__(self) -> Record:
        task = asyncio.current_task()
        self._handling.end(task)
        record = await anext(self._records)
        self._begun = self._handling.begin(task, record)
        return record

    def __del__(self) -> None:
        if self._begun is not None:
            self._handling.leave(self._begun)
