"""Tells observers which record the application handles, in the task and the context in which it does."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import repr_of
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.record_observer import NOT_PROCESSED, End, Headers, RecordObserver, Whose
from aiogroup._runtime.loop.clock import running_loop, steady_ns, wall_ns
from aiogroup.records import Record, Records
from aiogroup.structs import TopicPartition

__all__ = ["Handling", "HandlingOrNone", "NoHandling"]

Task: TypeAlias = "asyncio.Task[Any]"


Held: TypeAlias = "list[tuple[RecordObserver, End]]"
"""A record in the hands of a task: what each observer wants called at the end."""


class Handling:
    """The records that tasks of the application handle: one for each task, from the request that gives it to the task's
    next one.
    """

    def __init__(self, observers: tuple[RecordObserver, ...], emit: Emit, whose: Callable[[], Whose]) -> None:
        self._observers = observers
        self._emit = emit
        self._whose = whose
        self._held: dict[Task | None, Held] = {}

    def over(self, records: AsyncIterator[Record[Any, Any]]) -> AsyncIterator[Record[Any, Any]]:
        """An iterator over the same records."""
        return _Handled(self, records)

    async def one(self, request: Awaitable[Record[Any, Any]]) -> Record[Any, Any]:
        """The record of this request; the calling task handles it from now on, and has handled the one before."""
        task = _current_task()
        self.end(task)
        record = await request
        self.begin(task, record)
        return record

    async def batch(self, request: Awaitable[Records[Any, Any]]) -> Records[Any, Any]:
        """As `one`, for many records: it learns only that they came."""
        self.end(_current_task())
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

    def begin_send(self, topic: str, headers: Headers) -> tuple[Headers, End]:
        """The headers that a dead letter goes with, and what is to be called at its end."""
        whose = self._whose()
        begun: Held = []
        for each in self._observers:
            hook = getattr(each, "begin_send", None)
            if hook is None:
                continue
            try:
                headers, end = hook(topic, headers, whose)
            except Exception as error:  # noqa: BLE001 (as above)
                self._leave_out(each, "begin_send", error)
            else:
                begun.append((each, end))
        return headers, lambda error: self._end(begun, error)

    def leave(self, task: Task | None, held: Held) -> None:
        """The loop that got this record for this task was left, so it is not processed."""
        if self._held.get(task) is held:
            del self._held[task]
            self._end(held, NOT_PROCESSED)

    def close(self) -> None:
        """The consumer is closed: what is still in hand is not processed."""
        while self._held:
            self._end(self._held.popitem()[1], NOT_PROCESSED)

    def begin(self, task: Task | None, record: Record[Any, Any]) -> Held:
        """The task handles this record from now on."""
        held: Held = []
        whose = self._whose()
        for each in self._observers:
            try:
                held.append((each, each.begin_record(record, whose)))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the observer's fault)
                self._leave_out(each, "begin_record", error)
        self._held[task] = held
        return held

    def end(self, task: Task | None) -> None:
        """The task has handled its record."""
        held = self._held.pop(task, None)
        if held is not None:
            self._end(held, None)
        if self._held:
            self._end_with_tasks()

    def _end_with_tasks(self) -> None:
        """A task that has ended asks for nothing more, and the next request of another one goes on after its record."""
        for task in [each for each in self._held if each is not None and each.done()]:
            self._end(self._held.pop(task), None)

    def _end(self, held: Held, error: str | None) -> None:
        for observer, end in reversed(held):
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
            self._emit(events.ObserverFailed(type(faulty).__qualname__, method, repr_of(error), lines))


class NoHandling:
    """Nobody observes records: the application gets what it gets anyway."""

    def over(self, records: AsyncIterator[Record[Any, Any]]) -> AsyncIterator[Record[Any, Any]]:
        return records

    def one(self, request: Awaitable[Record[Any, Any]]) -> Awaitable[Record[Any, Any]]:
        return request

    def batch(self, request: Awaitable[Records[Any, Any]]) -> Awaitable[Records[Any, Any]]:
        return request

    def commit(self, request: Awaitable[None], _offsets: object) -> Awaitable[None]:
        return request

    def begin_send(self, _topic: str, headers: Headers) -> tuple[Headers, End]:
        return headers, _nothing

    def close(self) -> None:
        pass


HandlingOrNone: TypeAlias = Handling | NoHandling


def _nothing(_error: str | None) -> None:
    """No observer follows the letter."""


class _Handled:
    """The iterator of one loop. Where `break` or an exception leaves the loop, Python drops it at once, in the
    context of the loop.
    """

    __slots__ = ("_handling", "_held", "_loop", "_records", "_task")

    def __init__(self, handling: Handling, records: AsyncIterator[Record[Any, Any]]) -> None:
        self._handling = handling
        self._records = records
        self._loop: asyncio.AbstractEventLoop | None = None  # of the consumer: it is looked up once
        self._task: Task | None = None
        self._held: Held | None = None

    def __aiter__(self) -> _Handled:
        return self

    async def __anext__(self) -> Record[Any, Any]:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        self._handling.end(task)
        record = await anext(self._records)
        self._held = self._handling.begin(task, record)
        self._task = task
        return record

    def __del__(self) -> None:
        if self._held is not None:
            self._handling.leave(self._task, self._held)


def _current_task() -> Task | None:
    return asyncio.current_task(running_loop())  # which asks the system for nothing, unlike the task's own search
