"""The log of one partition: record batches as bytes, offsets, epochs, and the bounds of what can be read."""

from __future__ import annotations

__all__ = ["Log"]


class Log:
    """Batches of format 2, kept as the bytes that came. It does not check them: `append.py` does, before."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        """The offset behind the last record; the high watermark too, as replicas do not lag."""
        self.size_bytes = 0

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest transaction under way, or the end."""
        raise NotImplementedError

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Keep one checked batch. Writes its base offset and epoch in place, which its checksum does not cover.

        Returns:
            the batch's base offset.
        """
        raise NotImplementedError

    def read(self, offset: int, max_bytes: int, *, until_offset: int | None = None) -> list[memoryview]:
        """Whole batches, beginning with the one that holds `offset`: as many as fit into `max_bytes`, but at least one,
        however large (KIP-74); only such as begin before `until_offset`.
        """
        raise NotImplementedError

    def readable_bytes(self, offset: int, at_most: int, *, until_offset: int | None = None) -> int:
        """How many bytes `read` would return, counted no further than `at_most`."""
        raise NotImplementedError

    def begin_epoch(self, leader_epoch: int) -> None:
        """The records from here on are of this epoch."""
        raise NotImplementedError

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the latest epoch that is not later than `leader_epoch`, as LeaderEpochFileCache does;
        (-1, -1) if it is not known.
        """
        raise NotImplementedError

    def offset_by_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that is not older, to the exact record."""
        raise NotImplementedError

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the greatest timestamp."""
        raise NotImplementedError

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        raise NotImplementedError

    def truncate(self, to_offset: int) -> None:
        """Forget everything from `to_offset` on, as an unclean election does."""
        raise NotImplementedError

    def delete_before(self, offset: int) -> None:
        """Move the start; batches that lie wholly before it are forgotten (DeleteRecords)."""
        raise NotImplementedError
