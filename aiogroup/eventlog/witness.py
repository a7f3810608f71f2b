"""Tells a process that stood still from an event loop that was blocked: only the first makes a waiting thread late."""

from __future__ import annotations

import threading
from typing import Final

from aiogroup._runtime.loop.clock import processor_ms, thread_ms

__all__ = ["Witness"]

BEAT_MS: Final = 250
"""The longest wait. A standstill is told as shorter by up to that much."""


class Witness:
    """Knows by the waits of one thread whether the whole process stood still.

    A call that blocks the event loop either lets other threads run, so that a wait ends in time, or uses the processor
    meanwhile. What the thread does between its waits does not count: a disk may hold it up.
    """

    def __init__(self) -> None:
        self._waits_since: tuple[int, int] | None = None
        self._last = (0, 0)  # when the last standstill was over, and how long it lasted

    def wait(self, wake: threading.Event) -> None:
        """Wait for this event, at most for a beat; the thread calls it again and again."""
        self._waits_since = since = (thread_ms(), processor_ms())
        wake.wait(BEAT_MS / 1_000)
        now, stood_ms = thread_ms(), _stood_ms(since)
        if stood_ms > 0:
            self._last = (now, stood_ms)
        self._waits_since = None

    def stood_still_ms(self, within_ms: int) -> int:
        """How long the process stood still at least, if that was over in the last `within_ms`; in any thread.

        The thread may not have run since, and is then late still.
        """
        over_at, stood_ms = self._last
        since = self._waits_since
        so_far = 0 if since is None else _stood_ms(since)
        return max(so_far, stood_ms if thread_ms() - over_at <= within_ms else 0, 0)


def _stood_ms(since: tuple[int, int]) -> int:
    began_ms, used_ms = since
    return thread_ms() - began_ms - BEAT_MS - (processor_ms() - used_ms)
