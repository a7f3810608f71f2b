"""How far a stop of the consumer has come."""

from __future__ import annotations

__all__ = ["Stopping"]


class Stopping:
    """Both are False until the application calls `stop`."""

    def __init__(self) -> None:
        self.is_stopped = False
        """The application has called `stop`: nothing new is begun, and requests get nothing more."""
        self.is_draining = False
        """A stop waits for what the application handles: it may still commit that."""
