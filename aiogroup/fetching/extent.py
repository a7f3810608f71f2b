"""What the batch headers of a fetched piece say before it is decoded: where the next fetch goes on, and the epochs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aiogroup.fetching.batches import BatchError, frame_bytes
from aiogroup.fetching.epochs import NO_EPOCH

__all__ = ["Extent", "extent_of"]

_HEAD: Final = struct.Struct(">q4xib4x2xi")  # base offset, leader epoch, magic, last offset delta
NO_LIMIT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Extent:
    """`end` is the offset behind the last complete batch; `None`: the bytes are damaged and nothing can follow them.

    `epochs` says, as (offset, epoch), from where on which leader's epoch stands on the batches (KIP-320).
    """

    end: int | None
    epochs: tuple[tuple[int, int], ...]


def extent_of(data: bytes | memoryview, from_offset: int) -> Extent:
    """Read the headers of all complete batches in `data`, which was fetched from `from_offset`."""
    view = memoryview(data)
    end, pos = from_offset, 0
    epochs: list[tuple[int, int]] = []
    last_epoch: int | None = None
    while len(view) - pos >= _HEAD.size:
        try:
            size = frame_bytes(view, pos, NO_LIMIT)
        except BatchError:
            return Extent(None, tuple(epochs))
        if size > len(view) - pos:
            break
        base_offset, epoch, magic, delta = _HEAD.unpack_from(view, pos)
        if magic < 2:
            epoch, delta = NO_EPOCH, 0  # older formats have other fields there
        if delta < 0:
            return Extent(None, tuple(epochs))
        if epoch != last_epoch:
            epochs.append((base_offset, epoch))
            last_epoch = epoch
        end = max(end, base_offset + delta + 1)
        pos += size
    return Extent(end, tuple(epochs))
