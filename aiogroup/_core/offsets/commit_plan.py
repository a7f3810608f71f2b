"""What a commit sends for each partition: its offset, bound to the ownership that delivered the records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["CommitEntry", "Committed", "LaneCommit", "LaneCommits", "entries_of"]


@dataclass(frozen=True, slots=True)
class LaneCommit:
    """One commit of a partition with two lanes (KIP-333): offset, metadata, and the processed offset of each lane.

    `seeks_count` is that of the book when it was made: the commit does not cover records that a later seek took back.
    """

    offset: int
    metadata: str
    leader_epoch: int
    id: str
    live: int
    ranges: tuple[tuple[int, int], ...]
    seeks_count: int
    user: str


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One partition of a commit. `ownership` is the number of the ownership that it is about, -1 without a group.

    `leader_epoch` is the epoch of the record before `offset`, -1 when it is not known: by it the next owner finds
    out whether the log still holds that record (KIP-320). `starts_count` is the partition's when the commit was made:
    the commit does not cover records that a later seek took back. `lanes` holds the offsets of both lanes, where there
    are two (KIP-333).
    """

    offset: int
    metadata: str
    ownership: int
    leader_epoch: int = -1
    starts_count: int = 0
    lanes: LaneCommit | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a partition. `leader_epoch` is -1 if the client that committed it knew no epochs."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class LaneCommits(Protocol):
    """The commits of a partition with two lanes (KIP-333). The caller has settled the delivery."""

    @property
    def has_uncommitted(self) -> bool:
        """Some delivered offset is not durable."""
        ...

    def begun(self) -> CommitEntry | None:
        """The commit of what is pending as the ownership begins, so that jobs see it. It moves no committed offset.

        `None` when it is durable already, or when the application has committed or sought meanwhile.
        """
        ...

    def folded(self) -> CommitEntry | None:
        """The commit of what jobs have done. Of each lane it says what was committed before, so that it moves none.

        `None` when it is durable already, or when jobs have done nothing.
        """
        ...

    def processed(self, *, again: bool = False) -> CommitEntry | None:
        """The commit of each lane's processed offset, for auto-commit; `None` when it is durable already."""
        ...

    def delivered(self) -> CommitEntry | None:
        """The commit of all that was delivered, for `commit()` with `auto_ack`; `None` when it is durable already."""
        ...

    def check(self, offset: int, metadata: str) -> None:
        """Check that `commit({tp: offset})` names an offset of a lane. Changes nothing.

        Raises:
            ValueError: no lane was delivered up to there, or the metadata leaves no space for a token.
        """
        ...

    def named(self, offset: int, metadata: str) -> CommitEntry:
        """The commit of `commit({tp: offset})`.

        Raises:
            ValueError: as `check`.
        """
        ...

    def shorter(self, commit: LaneCommit) -> CommitEntry:
        """The same commit in half the characters, or without a token: the broker refused its length (error 12)."""
        ...

    def note_durable(self, commit: LaneCommit) -> bool:
        """The commit is durable. Returns False if a seek after it took back records that it covers."""
        ...


class Committing(Protocol):
    """What a commit must know of an assigned partition."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def position(self) -> int | None: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def lanes(self) -> LaneCommits | None: ...
    @property
    def committed(self) -> Committed | None: ...
    @property
    def was_reset(self) -> bool: ...
    @property
    def ownership(self) -> int: ...
    @property
    def starts_count(self) -> int: ...
    def epoch_before(self, offset: int) -> int: ...


def entries_of(
    partitions: Iterable[Committing], *, delivered: bool = False, unmoved: bool = False, again: bool = False
) -> dict[TopicPartition, CommitEntry]:
    """The entries of a commit of these partitions. The caller has settled the delivery.

    For each partition the processed offset is sent, or with `delivered` the offset after all that was handed out. An
    offset that is durable already is sent only with `again`. A position that the reset policy gave is always committed,
    because a restart would find another one. Any other position from which no record came yet, and which was never
    committed, is sent only with `unmoved`.
    """
    entries = {}
    for partition in partitions:
        lanes = partition.lanes
        if lanes is not None:
            entry = lanes.delivered() if delivered else lanes.processed(again=again)
        else:
            entry = _entry_of(partition, delivered=delivered, unmoved=unmoved, again=again)
        if entry is not None:
            entries[partition.tp] = entry
    return entries


def _entry_of(partition: Committing, *, delivered: bool, unmoved: bool, again: bool) -> CommitEntry | None:
    if partition.position is None:
        return None
    offset, committed = partition.ledger.position if delivered else partition.ledger.committable, partition.committed
    text = ""
    if committed is not None and committed.offset == offset:
        if not again:
            return None
        text = committed.metadata
    elif committed is None and not (unmoved or partition.was_reset or offset > 0):
        return None
    return CommitEntry(offset, text, partition.ownership, partition.epoch_before(offset), partition.starts_count)
