"""The stack of a loop's failure, without what a deserializer said: its text often shows the record."""

from __future__ import annotations

import traceback

from aiogroup.errors import RecordDeserializationError

__all__ = ["stack_of"]


def stack_of(failure: BaseException) -> str:
    """The failure and what led to it, as Python prints them; of a deserializer's error its class and lines of code."""
    whole = traceback.TracebackException.from_exception(failure)
    left: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(whole, failure)]
    while left:
        shown, error = left.pop()
        if shown is None or error is None:
            continue
        if isinstance(error, RecordDeserializationError) and error.__cause__ is not None:
            shown.__cause__ = traceback.TracebackException.from_exception(_unsaid(error.__cause__))
            continue
        left += [(shown.__cause__, error.__cause__), (shown.__context__, error.__context__)]
        if isinstance(error, BaseExceptionGroup):
            left += zip(shown.exceptions or (), error.exceptions, strict=False)
    return "".join(whole.format())


def _unsaid(error: BaseException) -> Exception:
    """An error of the same name with the same stack, which says nothing."""
    kind = type(error)
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    unsaid: Exception = type(kind.__name__, (Exception,), named)().with_traceback(error.__traceback__)
    return unsaid
