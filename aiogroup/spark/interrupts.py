"""Ctrl-C while Python waits for Spark's Java."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

__all__ = ["noticing_interrupts", "putting_off_interrupts"]


@contextmanager
def putting_off_interrupts() -> Iterator[None]:
    """Handle SIGINT and SIGTERM at the end of the block, as they would have been handled within it. A second one is
    handled at once: the block may hang.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []

    def put_off(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if came and callable(handler):
            handler(number, frame)
        came.append(number)

    taken = [number for number, handler in handlers.items() if callable(handler)]
    for number in taken:
        signal.signal(number, put_off)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, handlers[number])
    if came:
        signal.raise_signal(came[0])


@contextmanager
def noticing_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the block with `KeyboardInterrupt`, even if other code turns it into another error.

    PySpark's handler calls Java in the middle of another call, and Py4J raises an ordinary error, which would look like
    an error of the application's function.

    Raises:
        KeyboardInterrupt: SIGINT came.
    """
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    came: list[int] = []

    def notice(number: int, frame: FrameType | None) -> None:
        came.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, notice)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        if signal.getsignal(signal.SIGINT) is notice:
            signal.signal(signal.SIGINT, before)
