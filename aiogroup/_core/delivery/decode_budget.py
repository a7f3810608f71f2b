"""How much may be decoded before the event loop runs again."""

from __future__ import annotations

from aiogroup._core.fetching.records.decode import SLICE_BYTES

__all__ = ["DecodeBudget"]


class DecodeBudget:
    """What is left to decode before the loop runs again: `records_count` records at most, and the bytes of one
    slice.
    """

    __slots__ = ("bytes_left", "records_left")

    def __init__(self, records_count: int) -> None:
        self.records_left = records_count
        self.bytes_left = SLICE_BYTES

    @property
    def is_spent(self) -> bool:
        return self.records_left <= 0 or self.bytes_left <= 0

    def spend(self, records_count: int, size_bytes: int) -> None:
        self.records_left -= records_count
        self.bytes_left -= size_bytes
