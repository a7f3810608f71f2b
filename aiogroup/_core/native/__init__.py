"""The work that is done once per record or per answer: compiled from C or, where the C is not compiled, in Python under
the same names.

`AIOGROUP_PURE_PYTHON=1` in the environment chooses the Python, for comparisons.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

__all__ = [
    "IMPORT_ERROR", "IS_COMPILED", "Cursor", "Heads", "Maker", "Reader", "Record", "blank", "columns", "extent",
    "next_records", "read_fetch", "read_plain", "read_times", "write_fetch",
]  # fmt: skip

_error: ImportError | None = None
if not TYPE_CHECKING and not os.environ.get("AIOGROUP_PURE_PYTHON"):
    try:
        from aiogroup._core.native._native import (
            Cursor,
            Heads,
            Maker,
            Reader,
            Record,
            blank,
            columns,
            extent,
            next_records,
            read_fetch,
            read_plain,
            read_times,
            write_fetch,
        )
    except ImportError as error:
        _error = error.with_traceback(None)

IMPORT_ERROR: Final = _error
"""The error of importing the C, if that failed; `aiogroup._core.native.diagnosis` says what to do about it."""
IS_COMPILED: Final = "write_fetch" in globals()  # the last name of the import: an older build lacks some of them
"""Whether the C is used. If it is not, `Consumer.start` emits the event `slow_decoder`."""

if TYPE_CHECKING or not IS_COMPILED:
    from aiogroup._core.native import fetch, frames, pure

    Cursor = pure.Cursor
    Heads = pure.Heads
    Maker = fetch.Maker
    Reader = pure.Reader
    Record = pure.Record
    Record.__module__ = "aiogroup.records"  # as the compiled one: each kind of process reads pickles of the other
    blank = pure.blank
    columns = pure.columns
    extent = pure.extent
    next_records = frames.next_records
    read_fetch = fetch.read_fetch
    read_plain = pure.read_plain
    read_times = pure.read_times
    write_fetch = fetch.write_fetch
