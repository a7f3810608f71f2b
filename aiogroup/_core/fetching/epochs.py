"""The leader epochs of the records around a position, by offset (KIP-320).

A record has the epoch of the leader that accepted it. Two logs that agree on the epoch of one offset agree on all
records before it. So a position is sent with the epoch of the record before it: in a commit as
`committed_leader_epoch`, and in the question to the next leader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

__all__ = ["NO_EPOCH", "Epochs"]

NO_EPOCH: Final = -1
MAX_RUNS: Final = 64
"""How many epochs are remembered. Leaders change rarely: every record in hand is newer than this many changes."""


class Epochs:
    """Runs of offsets with one epoch each, the newest `MAX_RUNS`."""

    __slots__ = ("_begins", "_epochs")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._epochs: list[int] = []

    def __len__(self) -> int:
        return len(self._begins)

    def start(self, offset: int, epoch: int) -> None:
        """Reading begins at `offset`; the record before it has this epoch, as far as is known."""
        self._begins = [offset - 1]
        self._epochs = [max(epoch, NO_EPOCH)]

    def learn(self, runs: Iterable[tuple[int, int]]) -> None:
        """Note runs of (offset, epoch): from each offset on the records have that epoch. What is known of lower offsets
        stays.
        """
        for offset, epoch in runs:
            if self._epochs and epoch == self._epochs[-1] and offset > self._begins[-1]:
                continue  # mostly: the leader is the same
            begin = max(offset, self._begins[0] + 1) if self._begins else offset
            self.forget_from(begin)
            if not self._epochs or max(epoch, NO_EPOCH) != self._epochs[-1]:
                self._begins.append(begin)
                self._epochs.append(max(epoch, NO_EPOCH))
                del self._begins[:-MAX_RUNS], self._epochs[:-MAX_RUNS]

    def before(self, offset: int) -> int:
        """The epoch of the last record below `offset`, `NO_EPOCH` when not known."""
        index = bisect_left(self._begins, offset) - 1
        return self._epochs[index] if index >= 0 else NO_EPOCH

    def first_above(self, epoch: int) -> int | None:
        """The first offset known to be of a newer epoch than this, `None` when there is none."""
        return next((begin for begin, each in zip(self._begins, self._epochs, strict=True) if each > epoch), None)

    def forget_from(self, offset: int) -> None:
        """The records from `offset` on were dropped: forget their epochs, since other records may stand there next
        time.
        """
        index = bisect_left(self._begins, offset)
        del self._begins[index:], self._epochs[index:]
