"""The error for events that cannot be read, and Spark's reason for it."""

from __future__ import annotations

import re

from aiogroup.spark.errors import DrainError

__all__ = ["EventsError", "first_line"]


class EventsError(DrainError):
    """There are no events where they were looked for; the message says what is there instead, and what to do."""


def first_line(error: BaseException) -> str:
    """Spark's message for an error; for an error that Spark did not translate, Java's last cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    told = re.sub(r"^(?:[a-z]\w*\.)+\w+: ", "", causes[-1]) if causes else (lines or [type(error).__name__])[0]
    return told[:300]
