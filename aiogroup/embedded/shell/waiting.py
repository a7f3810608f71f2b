"""Waits for something that the machine or the test brings about: looks after each exchange, and every few ms."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.observers import Observer

if TYPE_CHECKING:
    from aiogroup.embedded.machine.exchange import Exchange

__all__ = ["Bell"]

LOOK_S = 0.005
"""Not everything that a test waits for is told by an exchange."""


class Bell(Observer):
    """Rings when a request has come and when answers go out, in the broker's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def before_request(self, _exchange: Exchange, _now_ms: int) -> None:
        self._ring()

    def on_answers(self, _exchange: Exchange | None, _answered: Sequence[Exchange], _now_ms: int) -> None:
        self._ring()

    def _ring(self) -> None:
        for listener in self._listeners:
            listener()

    @contextmanager
    def _heard_by(self, listener: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

    def wait(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Block this thread until it holds. Returns whether it does."""
        rung = threading.Event()
        ends_at_s = time.monotonic() + timeout_s
        with self._heard_by(rung.set):
            while True:
                rung.clear()
                if holds():
                    return True
                left_s = ends_at_s - time.monotonic()
                if left_s <= 0:
                    return False
                rung.wait(min(left_s, LOOK_S))

    async def until(self, holds: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
        """As `wait`, while the loop that runs goes on."""
        loop = asyncio.get_running_loop()
        thread_id = threading.get_ident()
        rung = asyncio.Event()
        is_telling = False

        def tell() -> None:
            nonlocal is_telling
            is_telling = False
            rung.set()

        def listen() -> None:
            nonlocal is_telling
            if threading.get_ident() == thread_id:
                rung.set()
            elif not is_telling:
                is_telling = True
                loop.call_soon_threadsafe(tell)

        ends_at_s = loop.time() + timeout_s
        with self._heard_by(listen):
            while True:
                rung.clear()
                if await holds():
                    return True
                left_s = ends_at_s - loop.time()
                if left_s <= 0:
                    return False
                timer = loop.call_later(min(left_s, LOOK_S), rung.set)
                try:
                    await rung.wait()
                finally:
                    timer.cancel()
