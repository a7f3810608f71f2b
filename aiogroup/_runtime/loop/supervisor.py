"""The only place where tasks are born. If a task dies they all end, and the application gets the error."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import anyio

from aiogroup._runtime.loop.clock import are_done, running_loop
from aiogroup.errors import AiogroupError, ConsumerStoppedError

__all__ = ["Supervisor", "load_anyio", "start_task"]

T = TypeVar("T")


class Supervisor:
    """A group of tasks inside one owner task, so that `start` and `close` may be called from different tasks.

    `on_failure(name, error)` is called once, for the first task that ended by an exception or was cancelled by other
    code than ours.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._owner: asyncio.Task[None] | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._ended = asyncio.Event()
        self._results: set[asyncio.Future[Any]] = set()  # one per call under way

    @property
    def is_running(self) -> bool:
        """Whether new work will be carried out: not after `close`, or after all tasks were cancelled from outside."""
        return self._group is not None and not self._group.cancel_scope.cancel_called

    async def start(self) -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(started), name="aiogroup")  # noqa: TID251 (its one home)
        await started

    async def _own(self, started: asyncio.Future[None]) -> None:
        try:
            async with anyio.create_task_group() as group:  # noqa: TID251 (its one home)
                self._group = group
                if not started.done():
                    started.set_result(None)
                await self._ended.wait()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            if self.failure is None:
                self.failure = errors
        except asyncio.CancelledError:
            self._fail("owner", _cancelled("owner"))
            raise
        finally:
            self._group = None
            for result in self._results:
                _abandon(result)
            self._results.clear()

    def spawn(self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> anyio.CancelScope:
        """Start a task for whose result nobody waits: an error that it raises ends all tasks. Cancel the returned scope
        to end it alone. While the other tasks end, it ends before its first step.
        """
        if self._group is None:
            raise RuntimeError(f"cannot start {name}: the supervisor is not running")
        return _known_to_anyio().run(self._begin_task, self._group, name, work, *args)

    def _begin_task(
        self,
        group: anyio.abc.TaskGroup,
        name: str,
        work: Callable[..., Coroutine[Any, Any, None]],
        *args: object,
    ) -> anyio.CancelScope:
        scope = anyio.CancelScope()
        group.start_soon(self._run, name, scope, work, *args, name=f"aiogroup {name}")
        return scope

    async def _run(
        self,
        name: str,
        scope: anyio.CancelScope,
        work: Callable[..., Coroutine[Any, Any, None]],
        *args: object,
    ) -> None:
        # anyio does not cancel a task that begins after its group's cancellation: it would spin in its first lock.
        if not self.is_running:
            return
        try:
            with scope:
                await work(*args)
        except asyncio.CancelledError:
            # We did not cancel it: an application cancelled all tasks, or raised in code of its own that we awaited.
            # The task group takes that for an ordinary end, and whoever waits for this task's work would wait for ever.
            if self._group is not None and not self._group.cancel_scope.cancel_called:
                self._fail(name, _cancelled(name))
                self._group.cancel_scope.cancel()
            raise
        except BaseException as error:
            self._fail(name, error)
            raise

    def _fail(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._on_failure(name, error)

    async def finish(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in a task of its own and return its result; cancelling the caller leaves it running.

        Raises:
            ConsumerStoppedError: the supervisor ended first.
        """
        return await self.begin(name, work)  # cancelling the caller cancels only this future, not the task

    def begin(self, name: str, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Run `work` in a task of its own. The future has its result or error, or `ConsumerStoppedError` if the
        supervisor ends first. Whoever drops the future drops the error with it: then `spawn` the work.
        """
        result: asyncio.Future[T] = self.promise()
        self.keep(result, name, work)
        return result

    def promise(self) -> asyncio.Future[Any]:
        """A future for the result of work that may not need a task. It gets `ConsumerStoppedError` if the supervisor
        ends first.
        """
        result: asyncio.Future[Any] = running_loop().create_future()
        result.add_done_callback(self._on_result)
        self._results.add(result)
        if not self.is_running:
            _abandon(result)
        return result

    def keep(self, result: asyncio.Future[T], name: str, work: Callable[[], Awaitable[T]]) -> None:
        """Run `work` in a task of its own for a future that `promise` made."""

        async def run() -> None:
            try:
                value = await work()
            except Exception as error:  # noqa: BLE001 (handed to whoever waits)
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)
            finally:
                _abandon(result)

        if self.is_running:
            self.spawn(name, run)
        else:
            _abandon(result)

    def _on_result(self, result: asyncio.Future[Any]) -> None:
        """Mark an error as seen: a cancelled caller never reads it, and asyncio would log it as never retrieved."""
        self._results.discard(result)
        if not result.cancelled():
            result.exception()

    async def close(self, timeout_ms: int | None = None) -> bool:
        """Cancel every task and wait for them.

        Returns whether all tasks have ended in that time; those that have not are left behind.
        """
        self._ended.set()
        if self._owner is not None:
            self._owner = None if await are_done({self._owner}, timeout_ms) else self._owner
        return self._owner is None


def load_anyio() -> None:
    """Load anyio's part for asyncio, which otherwise the first task group of the process loads, in 25 ms.

    Consumers are often made before a loop runs, and always before one is connected: there it holds up nobody.
    """
    with suppress(ImportError):  # its name is anyio's own affair: then the task group loads it
        importlib.import_module("anyio._backends._asyncio")


def start_task(name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
    """Run `work` in a task that belongs to no consumer; the caller keeps it."""
    return running_loop().create_task(work(), name=f"aiogroup {name}")


def _known_to_anyio() -> contextvars.Context:
    """A copy of the current context in which anyio knows that asyncio runs.

    Where sniffio is installed anyio asks it, and sniffio knows it of tasks alone: in a callback of the loop, as where a
    commit's answer is taken, it says that nothing runs.
    """
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


def _cancelled(name: str) -> AiogroupError:
    return AiogroupError(f"the task {name!r} was cancelled from outside; only stop() ends a consumer: make a new one")


def _abandon(result: asyncio.Future[Any]) -> None:
    if not result.done():
        result.set_exception(ConsumerStoppedError("the consumer was stopped before the call ended"))
