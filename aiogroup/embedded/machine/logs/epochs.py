"""Where the epochs of a partition's leaders begin in its log (Kafka: LeaderEpochFileCache)."""

from __future__ import annotations

from bisect import bisect_right

__all__ = ["LeaderEpochs"]

UNKNOWN = -1


class LeaderEpochs:
    """Epochs and their first offsets, both ascending."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def begin(self, epoch: int, start_offset: int) -> None:
        """Records from `start_offset` on are of `epoch`. An epoch that began at the same offset has no record, and is
        forgotten.
        """
        if self._epochs and self._epochs[-1] == epoch and start_offset >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._drop_last()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest epoch that is not greater than `epoch`, and where it ends; (-1, -1) if that is not known.

        Before the first known epoch Kafka answers with the epoch that was asked for and the first known offset.
        """
        if epoch == UNKNOWN:
            return UNKNOWN, UNKNOWN
        if self._epochs and self._epochs[-1] == epoch:
            return epoch, log_end_offset
        later = bisect_right(self._epochs, epoch)
        if later == len(self._epochs):
            return UNKNOWN, UNKNOWN
        return (self._epochs[later - 1] if later else epoch), self._starts[later]

    def at(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 if it is not known."""
        later = bisect_right(self._starts, offset)
        return self._epochs[later - 1] if later else UNKNOWN

    def truncate(self, end_offset: int) -> None:
        """Forget the epochs that began at `end_offset` or later."""
        while self._starts and self._starts[-1] >= end_offset:
            self._drop_last()

    def delete_before(self, start_offset: int) -> None:
        """Forget the epochs that ended before `start_offset`; the one that holds it begins there."""
        later = bisect_right(self._starts, start_offset)
        if later:
            self._starts[:later] = [start_offset]
            self._epochs[:later] = [self._epochs[later - 1]]

    def _drop_last(self) -> None:
        del self._epochs[-1], self._starts[-1]
