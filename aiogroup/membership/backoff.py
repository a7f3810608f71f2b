"""How long to wait before a request is tried again: twice as long after each failure, until one succeeds."""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self.failures_count = 0
        self.until_ms = 0

    def on_failure(self, now_ms: int, *, waits: bool) -> None:
        self.failures_count += 1
        if waits:
            self.until_ms = now_ms + min(self._first_ms * 2 ** min(self.failures_count - 1, 16), self._most_ms)

    def on_success(self) -> None:
        self.failures_count = 0
