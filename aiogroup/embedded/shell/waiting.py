"""Waits for a condition: checks it after each exchange, and every few ms."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.observers import Observer

if TYPE_CHECKING:
    from aiogroup.embedded.machine.exchange import Exchange
    from aiogroup.embedded.machine.groups.group import Group

__all__ = ["LOOK_AT_BROKER_S", "LOOK_S", "Bell"]

LOOK_S = 0.005
"""How often a function is checked: its result may change without an exchange."""
LAST_LOOK_S = 1.0
"""How long a check may take that begins when the time is nearly over."""
LOOK_AT_BROKER_S = 0.05
"""How often a condition is checked. It depends on the broker's state, whose changes nearly always ring; and in virtual
time each further check costs real time.
"""


class Bell(Observer):
    """Rings when a request has come, when answers go out, and when a group changes by time, in the broker's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def before_request(self, _exchange: Exchange, _now_ms: int) -> None:
        self._ring()

    def on_answers(self, _exchange: Exchange | None, _answered: Sequence[Exchange], _now_ms: int) -> None:
        self._ring()

    def on_generation(self, _group: Group, _now_ms: int) -> None:
        self._ring()

    def on_expired(self, _group: Group, _member_id: str, _now_ms: int) -> None:
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

    def wait(self, holds: Callable[[], bool], timeout_s: float, look_s: float = LOOK_S) -> bool:
        """Block this thread until it holds, looking every `look_s` seconds too. Returns whether it does."""
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
                rung.wait(min(left_s, look_s))

    @staticmethod
    async def _asked(holds: Callable[[], Awaitable[bool]], left_s: float) -> bool:
        """Check once. A check that takes too long is cancelled."""
        try:
            async with asyncio.timeout(max(left_s, LAST_LOOK_S)) as limit:
                return await holds()
        except TimeoutError:
            if not limit.expired():
                raise  # the function itself raised it
            return False

    async def until(self, holds: Callable[[], Awaitable[bool]], timeout_s: float, look_s: float = LOOK_S) -> bool:
        """As `wait`, without blocking the running loop."""
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
                with suppress(RuntimeError):  # the loop was closed before this wait was ended
                    loop.call_soon_threadsafe(tell)

        ends_at_s = loop.time() + timeout_s
        with self._heard_by(listen):
            while True:
                rung.clear()
                if await self._asked(holds, ends_at_s - loop.time()):
                    return True
                left_s = ends_at_s - loop.time()
                if left_s <= 0:
                    return False
                timer = loop.call_later(min(left_s, look_s), rung.set)
                try:
                    await rung.wait()
                finally:
                    timer.cancel()
