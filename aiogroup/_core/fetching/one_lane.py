"""The lanes of a partition that is read in one lane, as all are without KIP-333; and what everybody asks of any lanes.

`PartitionLanes` (`_core/recovery/partition_lanes.py`) answers the same questions of a live lane and ranges beside it.
Whoever asks a partition for its lanes need not know which of the two it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from aiogroup._core.fetching.lane import Lane
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.records import CatchUpProgress
from aiogroup.structs import TopicPartition

__all__ = ["DeliveredBefore", "LiveLane", "OneLane"]


class DeliveredBefore(Protocol):
    """A range whose records come before those of the live lane."""

    @property
    def is_delivered(self) -> bool:
        """Whether all records of this range and of those before it are handed out."""
        ...


class LiveLane(Protocol):
    """The partition, as its lanes see it."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def position(self) -> int | None: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def committed(self) -> Committed | None: ...
    @property
    def was_reset(self) -> bool: ...
    @property
    def ownership(self) -> int: ...
    @property
    def starts_count(self) -> int: ...
    def epoch_before(self, offset: int) -> int: ...
    def truncate(self, offset: int, leader_epoch: int) -> None: ...


class OneLane:
    """The partition is its only lane."""

    __slots__ = ("_live",)

    waits_for: DeliveredBefore | None = None
    """The range that the live lane waits for, in ordered mode."""

    def __init__(self, live: LiveLane) -> None:
        self._live = live

    @property
    def cursors(self) -> Sequence[Lane]:
        """The lanes of the ranges, in ascending order."""
        return ()

    @property
    def left_count(self) -> int | None:
        """Offsets between the positions of the catch-up lane and the ends of its ranges; `None` without such a lane."""
        return None

    @property
    def is_overdue(self) -> bool:
        """A job should have read some of what is pending, and did not."""
        return False

    def progress(self) -> CatchUpProgress | None:
        """The progress of the catch-up lane. The caller has settled the delivery."""
        return None

    # Commits. The caller has settled the delivery.

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were delivered whose offsets are not committed."""
        position, committed = self._live.position, self._live.committed
        is_ahead = position is not None and committed is not None and position > committed.offset
        return self._live.ledger.has_unprocessed or is_ahead

    def begun(self) -> CommitEntry | None:
        """The commit of what is pending as the ownership begins, so that jobs see it. It moves no committed offset.

        `None` when it is durable already, or when the application has committed or sought meanwhile.
        """
        return None

    def folded(self) -> CommitEntry | None:
        """The commit of what jobs have done. It repeats what each lane has committed before, so it moves none of them.

        `None` when it is durable already, or when jobs have done nothing.
        """
        return None

    def entry(self, *, delivered: bool = False, unmoved: bool = False, again: bool = False) -> CommitEntry | None:
        """The commit of what is processed, or with `delivered` of all that was handed out; see `entries_of`."""
        live = self._live
        if live.position is None:
            return None
        offset, committed = live.ledger.position if delivered else live.ledger.committable, live.committed
        text = ""
        if committed is not None and committed.offset == offset:
            if not again:
                return None
            text = committed.metadata
        elif committed is None and not (unmoved or live.was_reset or offset > 0):
            return None
        return self.named(offset, text, live.ownership)

    def check(self, offset: int, metadata: str) -> None:
        """Check that `commit({tp: offset})` names an offset of a lane. Changes nothing.

        Raises:
            ValueError: no lane was delivered up to there, or the metadata leaves no space for a token.
        """

    def named(self, offset: int, metadata: str, ownership: int) -> CommitEntry:
        """The commit of `commit({tp: offset})`, called in this ownership.

        Raises:
            ValueError: as `check`.
        """
        live = self._live
        return CommitEntry(offset, metadata, ownership, live.epoch_before(offset), live.starts_count)

    def shorter(self, entry: CommitEntry) -> CommitEntry | None:
        """The same commit in half the characters, or without a token: the broker refused its length (error 12). `None`:
        it has no token.
        """
        return None

    def note_durable(self, entry: CommitEntry) -> None:
        """The commit is durable. It does not cover what a seek after it took back."""
        if self._live.starts_count == entry.starts_count:
            self._live.ledger.process_below(entry.offset)

    # Moves.

    def seek(
        self,
        offset: int,
        lane: Literal["live", "catch-up"] | None = None,
        *,
        move: Callable[[int], None],
        drop_pending: bool = False,
        why: str = "seek",
    ) -> None:
        """Go on at `offset`, in the named lane or in the one that `offset` lies in. `move` moves what has only one.

        Raises:
            ValueError: the named lane cannot go there.
        """
        move(offset)

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """The log was truncated at `offset`, after a record of `leader_epoch`."""
        self._live.truncate(offset, leader_epoch)

    def return_to_durable(self, committed: Committed | None, *, move: Callable[[int, int], None]) -> None:
        """Each lane goes back to its committed offset, or without one to the first offset it has not processed.

        `move` moves what has only one lane, to an offset after a record of a leader epoch.
        """
        if committed is not None:
            move(committed.offset, committed.leader_epoch)
        elif self._live.ledger.has_unprocessed:
            move(self._live.ledger.committable, -1)

    def return_to(self, offset: int) -> None:
        """The reset policy says where the live lane goes on.

        It must neither enter a range nor skip unprocessed offsets.
        """

    def abandon(self, why: str) -> None:
        """The pending ranges mean nothing any more; from now on the partition is read in one lane."""
