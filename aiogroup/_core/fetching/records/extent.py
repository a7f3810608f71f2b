"""What the batch headers of a fetched piece say before it is decoded: where the next fetch goes on, and the epochs."""

from __future__ import annotations

from typing import NamedTuple

from aiogroup._core import native

__all__ = ["Extent", "extent_of"]


class Extent(NamedTuple):
    """`end` is the offset after the last complete batch; `None` if the bytes are damaged, so that nothing can follow
    them.

    `epochs` lists (offset, epoch): from each offset on the batches carry that leader epoch (KIP-320).
    """

    end: int | None
    epochs: tuple[tuple[int, int], ...]


def extent_of(data: bytes | memoryview, from_offset: int) -> Extent:
    """Read the headers of all complete batches in `data`, which was fetched from `from_offset`."""
    return Extent(*native.extent(data, from_offset))
