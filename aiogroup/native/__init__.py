"""What is done once per record: compiled from C, or in Python where that could not be; the same names either way.

`AIOGROUP_PURE_PYTHON=1` in the environment takes the Python ones, to compare.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from aiogroup.native import frames, pure

__all__ = ["IS_COMPILED", "Cursor", "Heads", "Reader", "Record", "blank", "extent", "next_records", "read_times"]


IS_COMPILED: Final = not os.environ.get("AIOGROUP_PURE_PYTHON") and find_spec("aiogroup.native._native") is not None
"""Whether the C is used. Where it is not, `Consumer.start` says so by the event `slow_decoder`."""

if TYPE_CHECKING or not IS_COMPILED:
    Cursor = pure.Cursor
    Heads = pure.Heads
    Reader = pure.Reader
    Record = pure.Record
    blank = pure.blank
    extent = pure.extent
    next_records = frames.next_records
    read_times = pure.read_times
else:
    from aiogroup.native._native import Cursor, Heads, Reader, Record, blank, extent, next_records, read_times
