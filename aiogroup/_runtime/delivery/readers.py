"""Finds out on whose behalf records are asked for: a request marks as processed the records that its reader held.

The reader is usually the running task. But a task may run just one request and nothing else, as in
`asyncio.create_task(consumer.getone())`: then the task that created it goes on with the record. Before Python 3.12
`asyncio.wait_for` wraps every coroutine that it is given in such a task.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, TypeAlias, TypeVar

from aiogroup._runtime.loop.clock import running_loop

__all__ = ["Readers", "is_request", "note_readers", "readers"]

Readers: TypeAlias = "tuple[asyncio.Task[Any], ...]"
F = TypeVar("F", bound=Callable[..., Any])

_requests: Final[set[CodeType]] = set()
_last_reader: Final[contextvars.ContextVar[weakref.ref[asyncio.Task[Any]] | None]] = contextvars.ContextVar(
    "aiogroup_last_reader", default=None
)
"""The task that last asked for records in this context. Tasks that it creates inherit the value."""


def is_request(function: F) -> F:
    """Mark a coroutine function that is one request for records: a task that runs nothing else asks on behalf of the
    task that created it.
    """
    _requests.add(function.__code__)
    return function


def readers(last: Readers = (), *, inherits: bool = False) -> Readers:
    """The running task and the tasks on whose behalf it asks; empty outside of any task.

    If the running task also made the last request, `last` is returned, since it is still right. With `inherits` a task
    that has made no request itself also speaks for the reader that created it, whatever it runs.
    """
    try:
        task: asyncio.Task[Any] | None = asyncio.current_task(running_loop())
    except RuntimeError:  # no loop runs here: `aiter(consumer)` may be called from anywhere
        return ()
    if task is None:
        return ()
    if last and last[0] is task:
        return last
    found: Readers = (task,)
    if sys.version_info < (3, 12):
        while (waiting := _waiting_for(found[-1])) is not None and waiting not in found:
            found = (*found, waiting)
    if inherits or getattr(task.get_coro(), "cr_code", None) in _requests:
        asked = _last_reader.get()
        maker = asked() if asked is not None else None
        if maker is not None and maker not in found:
            found = (*found, maker)
    return found


def note_readers(who: Readers) -> None:
    """Note in the context that these readers ask for records."""
    if who:
        last = _last_reader.get()
        if last is None or last() is not who[-1]:
            _last_reader.set(weakref.ref(who[-1]))


def _waiting_for(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The task that waits for `task` in `asyncio.wait_for`, which before Python 3.12 runs its argument in a task of its
    own.

    No public interface tells this. `wait_for` adds a callback to the inner task, which wakes the future that it waits
    on, and that future has the waiting task's own wake-up as its callback. If either looks different, the result is
    `None`.
    """
    for callback, _ in getattr(task, "_callbacks", None) or ():
        if isinstance(callback, functools.partial) and callback.func is getattr(asyncio.tasks, "_release_waiter", None):
            for wake_up, _ in getattr(callback.args[0], "_callbacks", None) or ():
                if isinstance(found := getattr(wake_up, "__self__", None), asyncio.Task):
                    return found
    return None
