"""The exit codes, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Exit", "NotDoneError", "RefusedError"]


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    NOT_DONE = 1
    ARGUMENTS = 2
    REFUSED = 3
    PASSED = 4
    INTERRUPTED = 130


class NotDoneError(Exception):
    """The command was not done; the message says what to do."""


class RefusedError(Exception):
    """The command would do harm; the message says what must change first."""
