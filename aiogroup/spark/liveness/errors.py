"""The error of events that cannot be read, and what Spark says of the reason."""

from __future__ import annotations

import re

from aiogroup.spark.errors import DrainError

__all__ = ["EventsError", "first_line"]


class EventsError(DrainError):
    """There are no events where they were looked for; the message says what is there instead, and what to do."""


def first_line(error: BaseException) -> str:
    """What Spark says of an error; of one that it did not translate, the last cause that Java names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    told = re.sub(r"^(?:[a-z]\w*\.)+\w+: ", "", causes[-1]) if causes else (lines or [type(error).__name__])[0]
    return told[:300]
