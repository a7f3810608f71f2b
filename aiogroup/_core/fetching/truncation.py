"""Decides by leader epochs whether the leader's log still holds the records that were read (KIP-320); the validator
asks.

An unclean leader election may cut off records that were already read. Other records then take their offsets, and a
consumer that went on by offset alone would miss them. So a position is checked before it is fetched from, whenever the
leader changed and when the position came from a commit: the leader says where the epoch of the last record before the
position ended. If that end is below the position, the record is gone, and the logs differ from that end on.

Several epochs of records may be gone, and the answer names the newest one that is left. The search goes on at the
offset where our epochs and that answer diverge, until the leader knows exactly the epoch before that offset (as
followers do, KIP-279). Java's consumer asks once, and may miss records.

A smaller epoch in the answer proves nothing by itself: compaction may have removed all records of an epoch, and a
replica that was filled afterwards never knew that epoch. For the same reason no fetch sends `last_fetched_epoch`: a
broker would report a divergence there. Java's consumer does the same in both respects.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from aiogroup._core.cluster import Cluster
from aiogroup._core.fetching.epochs import NO_EPOCH, Epochs
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = [
    "NO_LEADER",
    "Action",
    "Divergence",
    "EpochEnd",
    "EpochRemedy",
    "Leader",
    "Search",
    "act",
    "confirms",
    "epoch_remedy_for",
    "is_news",
    "leader_of",
    "must_check",
    "narrow",
]


class Leader(NamedTuple):
    """Who leads a partition, in which epoch; -1 where that is not known."""

    node_id: int = -1
    epoch: int = NO_EPOCH


NO_LEADER: Final = Leader()


class EpochEnd(NamedTuple):
    """A leader's answer: its largest epoch that is not above the one asked for, and the offset at which that epoch
    ended.
    """

    epoch: int
    end_offset: int


class EpochRemedy(Enum):
    """What an error code of OffsetForLeaderEpoch asks for."""

    PROCEED = auto()
    RETRY = auto()
    """Refresh the metadata and ask again: the leader moved, and the broker or we do not know that yet."""
    NOT_AUTHORIZED = auto()


class Action(Enum):
    """What to do with the position. The values are for the log."""

    GO_ON = "nothing"
    SEEK = "went to the diverging offset"
    RESET = "reset by the policy"
    FAIL = "raised LogTruncationError"


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the offset at which the log of `leader` diverges from the records read up to `position`: `offset` at
    most, unless the logs do not diverge at all.

    `leader_epoch` is the epoch of the record before `offset`: the leader is asked for this one.
    """

    position: int
    offset: int
    leader_epoch: int
    leader: Leader = NO_LEADER


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the logs diverge: the records read from `offset` on are gone, and the record before it has `leader_epoch`.

    `offset` is `None` if the leader does not know where.
    """

    offset: int | None
    leader_epoch: int = NO_EPOCH


def leader_of(cluster: Cluster, tp: TopicPartition) -> Leader:
    info = cluster.partition(tp)
    return NO_LEADER if info is None or info.leader < 0 else Leader(info.leader, info.leader_epoch)


def is_news(known: Leader, seen: Leader) -> bool:
    """Whether the metadata names another leader than the known one. An older epoch only means that the broker that sent
    the metadata lags behind.
    """
    return seen not in (known, NO_LEADER) and (seen.epoch >= known.epoch or seen.epoch == NO_EPOCH)


def must_check(leader_epoch: int, leader: Leader) -> bool:
    """Whether this leader can check a position whose preceding record has this epoch."""
    return leader_epoch >= 0 and leader.epoch >= 0


def epoch_remedy_for(code: int) -> EpochRemedy:
    """As in Java's consumer: whatever the error is, the position is not trusted until the leader has confirmed it."""
    match code:
        case ErrorCode.NONE:
            return EpochRemedy.PROCEED
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return EpochRemedy.NOT_AUTHORIZED
        case _:
            return EpochRemedy.RETRY


def narrow(search: Search, answer: EpochEnd, epochs: Epochs) -> Search | Divergence | None:
    """What the leader's answer means, given the epochs of the records read: a further search, a divergence, or `None`
    if the logs agree.

    The first answer is read as in SubscriptionState.maybeCompleteValidation, the others as a follower reads them
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
    return Search(search.position, offset, leader_epoch, search.leader)


def act(found: Divergence | None, *, has_policy: bool) -> Action:
    """As in Java: with any reset policy reading goes on where the log diverges. The policy itself applies only if
    nobody knows where that is.
    """
    if found is None:
        return Action.GO_ON
    if not has_policy:
        return Action.FAIL
    return Action.RESET if found.offset is None else Action.SEEK


def confirms(answer: EpochEnd, leader_epoch: int, offset: int) -> bool:
    """Whether the leader's log also holds the records fetched up to `offset`, the last of which has `leader_epoch`."""
    return answer.epoch == leader_epoch and answer.end_offset >= offset
