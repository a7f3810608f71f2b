"""The request of a commit, and what becomes of each of its partitions by the answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup._core.offsets.commit_order import Commit
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from aiogroup._core.values import dataclass
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    CommitFailedError,
    GroupAuthorizationError,
    RebalanceInProgressError,
    StaticMemberInfoMissing,
    TopicAuthorizationError,
)
from aiogroup.structs import TopicPartition

__all__ = [
    "AboutMembership",
    "Again",
    "Refused",
    "Verdict",
    "codes_of",
    "commit_request",
    "refusal_of",
    "verdict_of",
]


def commit_request(commit: Commit, who: Identity) -> OffsetCommitRequest:
    """The request for `commit.sent`: under the member's generation, or without a membership under none."""
    if not commit.is_member:
        who = Identity(who.group_id)
    ids = {}
    for tp, topic_id in commit.topic_ids.items():
        ids[tp.topic] = topic_id
    partitions: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp in sorted(commit.sent):
        entry = commit.sent[tp]
        partitions.setdefault(tp.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=entry.offset,
                committed_leader_epoch=entry.leader_epoch,
                committed_metadata=entry.metadata,
            )
        )
    topics = []
    for topic, of_topic in partitions.items():
        topics.append(OffsetCommitRequestTopic(topic, ids.get(topic, ZERO_UUID), tuple(of_topic)))
    return OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=tuple(topics),
    )


def codes_of(response: OffsetCommitResponse, commit: Commit) -> dict[TopicPartition, int]:
    """The error codes by partition; since version 10 the answer names topics by their ids."""
    names, codes = {}, {}
    for tp, topic_id in commit.topic_ids.items():
        names[topic_id] = tp.topic
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for each in topic.partitions:
            codes[TopicPartition(name, each.partition_index)] = each.error_code
    return codes


# What an error code says about one partition.


@dataclass(frozen=True, slots=True)
class Again:
    """The same offset, after a backoff; `error` if there is no time left for that."""

    error: AiogroupError
    coordinator_moved: bool = False
    metadata_is_stale: bool = False


@dataclass(frozen=True, slots=True)
class AboutMembership:
    """The membership must learn of the code. Then the same offset is sent again if its partition is still owned.

    `is_past`: never again under the generation under which it was sent.
    """

    error: AiogroupError
    is_past: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Trying again cannot help: the caller gets the error, and the other partitions stand."""

    error: AiogroupError


Verdict: TypeAlias = Again | AboutMembership | Refused


def verdict_of(code: int, tp: TopicPartition, group_id: str, *, is_member: bool, is_gone: bool) -> Verdict:
    """The verdict on a partition with this error code in the answer.

    `is_member`: the request was sent under a generation. `is_gone`: our metadata lacks the topic too, so it is deleted.
    Otherwise perhaps only the coordinator's metadata is old.
    """
    row = lookup(code)
    match remedy_for(Rpc.OFFSET_COMMIT, code):
        case Remedy.REFRESH if is_gone:
            return Refused(BrokerError(code, row.name, f"commit of {tp}: the topic is deleted"))
        case Remedy.RETRY | Remedy.REFRESH | Remedy.REDISCOVER as remedy:
            error = BrokerError(code, row.name, row.message, retriable=True)
            is_moved, is_stale = remedy is Remedy.REDISCOVER, remedy is Remedy.REFRESH
            return Again(error, coordinator_moved=is_moved, metadata_is_stale=is_stale)
        case Remedy.REJOIN | Remedy.NEXT_GENERATION | Remedy.FORGET_MEMBER | Remedy.FENCED as remedy:
            if is_member:
                is_past = remedy in (Remedy.NEXT_GENERATION, Remedy.FORGET_MEMBER)
                return AboutMembership(RebalanceInProgressError(f"the group is rebalancing ({row.name})"), is_past)
            why = f"the group has members that commit for it ({row.name}): use subscribe, or another group_id"
            return Refused(CommitFailedError(why, not_owned=[tp]))
        case Remedy.NOT_AUTHORIZED:
            why = f"not authorized to commit for group {group_id!r}: grant READ on the group"
            return Refused(GroupAuthorizationError(why))
        case _ if code == ErrorCode.NO_STATIC_MEMBER_INFO_SET:
            why = f"the members of group {group_id!r} are static ones now: give this process a member_name too"
            return Refused(StaticMemberInfoMissing(why))
        case _ if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return Refused(TopicAuthorizationError([tp.topic]))
        case _:
            return Refused(BrokerError(code, row.name, f"commit of {tp}: {row.message}"))


def refusal_of(refused: Collection[AiogroupError]) -> AiogroupError | None:
    """The one error for all refused partitions of an answer: all the topics that may not be read, or else the last."""
    topics = {topic for each in refused if isinstance(each, TopicAuthorizationError) for topic in each.topics}
    return TopicAuthorizationError(topics) if topics else next(reversed([*refused]), None)
