"""What a commit sends for each partition: its offset, bound to the ownership that delivered the records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["CommitEntry", "Committed", "LaneCommit", "entries_of"]


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
    the commit does not cover records that a later seek took back. `beside` holds the offsets of both lanes, where there
    are two (KIP-333).
    """

    offset: int
    metadata: str
    ownership: int
    leader_epoch: int = -1
    starts_count: int = 0
    beside: LaneCommit | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a partition. `leader_epoch` is -1 if the client that committed it knew no epochs."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class CommitsOf(Protocol):
    """The lanes of a partition, as a commit of all partitions sees them."""

    def entry(self, *, delivered: bool = False, unmoved: bool = False, again: bool = False) -> CommitEntry | None: ...


class Committing(Protocol):
    """An assigned partition, as a commit of all partitions sees it."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def lanes(self) -> CommitsOf: ...


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
    for each in partitions:
        entry = each.lanes.entry(delivered=delivered, unmoved=unmoved, again=again)
        if entry is not None:
            entries[each.tp] = entry
    return entries
