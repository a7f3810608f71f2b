"""How far a fetched piece reaches, read off its batch headers: where the next fetch goes on, before it is decoded."""

from __future__ import annotations

import struct
from typing import Final

from aiogroup.fetching.batches import BatchError, frame_bytes

__all__ = ["end_of"]

_MAGIC_AT: Final = 16
_LAST_OFFSET_DELTA_AT: Final = 23
_BASE_OFFSET: Final = struct.Struct(">q")
_DELTA: Final = struct.Struct(">i")
NO_LIMIT: Final = 2**31


def end_of(data: bytes | memoryview, from_offset: int) -> int | None:
    """The offset behind the last complete batch; `None` when the bytes are damaged and nothing can follow them."""
    view = memoryview(data)
    end, pos = from_offset, 0
    while len(view) - pos > _LAST_OFFSET_DELTA_AT + _DELTA.size:
        try:
            size = frame_bytes(view, pos, NO_LIMIT)
        except BatchError:
            return None
        if size > len(view) - pos:
            break
        (base_offset,) = _BASE_OFFSET.unpack_from(view, pos)
        delta = _DELTA.unpack_from(view, pos + _LAST_OFFSET_DELTA_AT)[0] if view[pos + _MAGIC_AT] >= 2 else 0
        if delta < 0:
            return None
        end = max(end, base_offset + delta + 1)
        pos += size
    return end
