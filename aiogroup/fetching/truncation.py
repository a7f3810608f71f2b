"""Whether the leader's log still holds what was read, by leader epochs (KIP-320): decided here, done by the validator.

An unclean leader election may cut records off that were read already. Other records then take their offsets, and a
reader that went on by offset alone would pass over them. So a position is checked before it is fetched from whenever
the leader changed, and when it came from a commit: the leader says where the epoch of the last record before the
position ended. An end below the position means that this record is gone, and the log differs from there on.

The record may be one of several epochs that are gone, and the answer tells of the newest that is left: the search goes
on from where ours and that one part, until the leader has the very epoch before it (as followers do, KIP-279). Java's
consumer asks once, and may pass records over.

A smaller epoch in the answer proves nothing by itself: compaction may have removed all records of an epoch, and a
replica that was filled afterwards never heard of it. For the same reason no fetch says `last_fetched_epoch`: a broker
calls that divergence. Java's consumer does neither.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from aiogroup.cluster import Cluster
from aiogroup.fetching.epochs import NO_EPOCH, Epochs
from aiogroup.protocol.errors import ErrorCode
from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = [
    "NOBODY",
    "Action",
    "Divergence",
    "EpochEnd",
    "Leader",
    "Remedy",
    "Search",
    "act",
    "confirms",
    "is_news",
    "leader_of",
    "must_check",
    "narrow",
    "remedy_for",
]


class Leader(NamedTuple):
    """Who leads a partition, in which epoch; -1 where that is not known."""

    node_id: int = -1
    epoch: int = NO_EPOCH


NOBODY: Final = Leader()


class EpochEnd(NamedTuple):
    """What a leader answers: the largest epoch it has that is not above the one asked for, and where that ended."""

    epoch: int
    end_offset: int


class Remedy(Enum):
    """What an error code of OffsetForLeaderEpoch asks for."""

    PROCEED = auto()
    RETRY = auto()
    """Refresh the metadata and ask again: the leader moved, or it or we do not know of it yet."""
    NOT_AUTHORIZED = auto()


class Action(Enum):
    """What to do with the position. The values are for the log."""

    GO_ON = "nothing"
    SEEK = "went to the diverging offset"
    RESET = "reset by the policy"
    FAIL = "raised LogTruncationError"


@dataclass(frozen=True, slots=True)
class Search:
    """The leader's log parts from what was read up to `position` nowhere, or at `offset`, or before.

    `leader_epoch` is that of the record before `offset`: the one to ask for.
    """

    position: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the logs part: what was read from `offset` on is gone, the record before it is of `leader_epoch`.

    `None`: somewhere, the leader does not know.
    """

    offset: int | None
    leader_epoch: int = NO_EPOCH


def leader_of(cluster: Cluster, tp: TopicPartition) -> Leader:
    info = cluster.partition(tp)
    return NOBODY if info is None or info.leader < 0 else Leader(info.leader, info.leader_epoch)


def is_news(known: Leader, seen: Leader) -> bool:
    """Whether metadata names another leader than is known. An older epoch is a broker that lags behind."""
    return seen not in (known, NOBODY) and (seen.epoch >= known.epoch or seen.epoch == NO_EPOCH)


def must_check(leader_epoch: int, leader: Leader) -> bool:
    """Whether a position with the epoch of the record before it can be checked by a leader."""
    return leader_epoch >= 0 and leader.epoch >= 0


def remedy_for(code: int) -> Remedy:
    """As Java's consumer: whatever it is, the position is not trusted before the leader confirmed it."""
    match code:
        case ErrorCode.NONE:
            return Remedy.PROCEED
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return Remedy.NOT_AUTHORIZED
        case _:
            return Remedy.RETRY


def narrow(search: Search, answer: EpochEnd, epochs: Epochs) -> Search | Divergence | None:
    """What the leader's answer means, given the epochs of what was read: ask further, it parts there, or (`None`) not.

    The first answer is read as SubscriptionState.maybeCompleteValidation does, the others as a follower reads them
    (AbstractFetcherThread.getOffsetTruncationState). Each `offset` is below the one before, so the search ends.
    """
    if answer.epoch < 0 or answer.end_offset < 0:
        return Divergence(None)
    is_first = search.offset == search.position
    if answer.end_offset >= search.offset and (is_first or answer.epoch >= search.leader_epoch):
        return None if is_first else Divergence(search.offset, search.leader_epoch)
    newer_at = epochs.first_above(answer.epoch)
    offset = min(search.offset, answer.end_offset, search.offset if newer_at is None else newer_at)
    leader_epoch = epochs.before(offset)
    if leader_epoch in (NO_EPOCH, answer.epoch):
        return Divergence(offset, answer.epoch)
    return Search(search.position, offset, leader_epoch)


def act(found: Divergence | None, *, has_policy: bool) -> Action:
    """As Java: with any policy reading goes on where the log diverges; the policy itself is for what nobody knows."""
    if found is None:
        return Action.GO_ON
    if not has_policy:
        return Action.FAIL
    return Action.RESET if found.offset is None else Action.SEEK


def confirms(answer: EpochEnd, leader_epoch: int, offset: int) -> bool:
    """Whether what was fetched up to `offset`, the last of it under `leader_epoch`, is in the leader's log as well."""
    return answer.epoch == leader_epoch and answer.end_offset >= offset
