"""SIGTERM, which belongs to the server: whether a server handles it, sending it to this process, noticing it first."""

from __future__ import annotations

import contextvars
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from aiogroup._runtime.loop.clock import running_loop

__all__ = ["hearing_sigterm", "is_sigterm_taken", "send_sigterm"]


def is_sigterm_taken() -> bool:
    """Whether SIGTERM ends this process in order: a server has a handler for it."""
    return signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)


def send_sigterm() -> None:
    """Have the server end this process in order."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def hearing_sigterm(hear: Callable[[], None]) -> Iterator[None]:
    """Call `hear` in the running loop when SIGTERM comes, and then the handler that was found.

    It does nothing where no server has taken SIGTERM, and outside of the main thread, where no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread() or not is_sigterm_taken():
        yield
        return
    loop, found = running_loop(), signal.getsignal(signal.SIGTERM)
    # The signal may interrupt a rebalance callback: what is begun then is no part of that callback, and must not be
    # taken for one, as a consumer cannot be stopped inside of its own.
    outside = contextvars.copy_context()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():  # another handler may have been put before this one, and calls it for ever
            loop.call_soon_threadsafe(hear, context=outside)
        if callable(found):
            found(number, frame)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is on_signal:
            signal.signal(signal.SIGTERM, found)
