"""On whose behalf records are asked for: a request says that what its reader held is processed.

Mostly the reader is the task that runs. But a task may run nothing else than one request, as that of
`asyncio.create_task(consumer.getone())`: then the task that made it goes on with the record. Before Python 3.12
`asyncio.wait_for` makes such a task of every request that it is given.
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

__all__ = ["Readers", "is_request", "note_readers", "readers"]

Readers: TypeAlias = "tuple[asyncio.Task[Any], ...]"
F = TypeVar("F", bound=Callable[..., Any])

_requests: Final[set[CodeType]] = set()
_last_reader: Final[contextvars.ContextVar[weakref.ref[asyncio.Task[Any]] | None]] = contextvars.ContextVar(
    "aiogroup_last_reader", default=None
)
"""The task that last asked for records here. The tasks that it makes inherit this."""


def is_request(function: F) -> F:
    """Mark a coroutine function that is one request for records: a task that runs nothing else asks for its maker."""
    _requests.add(function.__code__)
    return function


def readers(last: Readers = ()) -> Readers:
    """The running task, and those that it asks for; empty outside of every task.

    `last` is given back where the same task made that request, too: what was found out about it holds on.
    """
    try:
        task: asyncio.Task[Any] | None = asyncio.current_task()
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
    if getattr(task.get_coro(), "cr_code", None) in _requests:
        asked = _last_reader.get()
        maker = asked() if asked is not None else None
        if maker is not None and maker not in found:
            found = (*found, maker)
    return found


def note_readers(who: Readers) -> None:
    """They ask for records."""
    if who:
        last = _last_reader.get()
        if last is None or last() is not who[-1]:
            _last_reader.set(weakref.ref(who[-1]))


def _waiting_for(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The task that waits for this one in `asyncio.wait_for`, which before Python 3.12 runs its argument in a task.

    Nothing public tells it. `wait_for` leaves a callback at the inner task that wakes the future it waits on, and that
    future has the waiting task's own wake-up as its callback. Where either looks different, nobody is found.
    """
    for callback, _ in getattr(task, "_callbacks", None) or ():
        if isinstance(callback, functools.partial) and callback.func is getattr(asyncio.tasks, "_release_waiter", None):
            for wake_up, _ in getattr(callback.args[0], "_callbacks", None) or ():
                if isinstance(found := getattr(wake_up, "__self__", None), asyncio.Task):
                    return found
    return None
