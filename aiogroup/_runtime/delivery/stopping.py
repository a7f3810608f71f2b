"""How far a stop of the consumer has come."""

from __future__ import annotations

__all__ = ["Stopping"]


class Stopping:
    """A consumer that nobody stops is neither of both."""

    def __init__(self) -> None:
        self.is_stopped = False
        """The application has called `stop`: nothing new is begun, and requests get nothing more."""
        self.is_draining = False
        """A stop waits for what the application handles: it may still commit that."""
