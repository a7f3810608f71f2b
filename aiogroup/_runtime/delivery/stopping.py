"""How far a stop of the consumer has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Stopping"]


class Stopping:
    """Both are False until the application calls `stop`."""

    def __init__(self) -> None:
        self.is_stopped = False
        """The application has called `stop`: nothing new is begun, and requests get nothing more."""
        self.is_draining = False
        """A stop waits for what the application handles: it may still commit that."""

    def stop(self) -> None:
        """The application calls `stop`."""
        self.is_stopped = True

    @contextmanager
    def draining(self, *, waits: bool) -> Iterator[None]:
        """In this block the stop waits for what the application handles, if it `waits` for that at all."""
        self.is_draining = waits
        try:
            yield
        finally:
            self.is_draining = False
