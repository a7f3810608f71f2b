"""Reads and checks the offsets that the application names in `commit` and `seek`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from aiogroup.config import MAX_COMMIT_METADATA
from aiogroup.structs import OffsetAndMetadata, TopicPartition

__all__ = ["MAX_OFFSET", "Offsets", "read_offsets"]

Offsets: TypeAlias = Mapping[TopicPartition, "int | tuple[int, str] | OffsetAndMetadata"]
MAX_OFFSET: Final = 2**63 - 1


def read_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read the argument of `commit`: an offset, (offset, metadata) or `OffsetAndMetadata` for each partition.

    Raises:
        ValueError, TypeError: not of that shape, a negative offset, or metadata above 4096 bytes.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError("commit takes a non-empty mapping of TopicPartition to offset, or nothing at all")
    read = {}
    for tp, given in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"commit: Key should be TopicPartition instance, not {tp!r}")
        if isinstance(given, tuple) and len(given) != 2:
            raise ValueError(f"commit: {given!r} for {tp} is neither an offset nor (offset, metadata)")
        offset, metadata = given if isinstance(given, tuple) else (given, "")
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"commit: the offset of {tp} is {offset!r}; a whole number is needed")
        if not isinstance(metadata, str):
            raise TypeError(f"commit: Metadata should be a string, not {type(metadata).__name__} (for {tp})")
        if not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"commit: the offset of {tp} is {offset}; it must lie between 0 and {MAX_OFFSET}")
        if len(metadata.encode()) > MAX_COMMIT_METADATA:
            raise ValueError(f"commit: the metadata of {tp} has more than {MAX_COMMIT_METADATA} bytes")
        read[tp] = OffsetAndMetadata(offset, metadata)
    return read
