"""The error of events that cannot be read."""

from __future__ import annotations

from aiogroup.spark.errors import DrainError

__all__ = ["EventsError"]


class EventsError(DrainError):
    """There are no events where they were looked for; the message says what is there instead, and what to do."""
