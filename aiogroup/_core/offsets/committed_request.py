"""The request for a group's committed offsets, and what its answer says of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from aiogroup.structs import TopicPartition

__all__ = ["BY_NAME", "CommittedAnswer", "committed_in", "committed_request"]

BY_NAME: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; for brokers and topics without topic ids."""


def committed_request(
    group_id: str, tps: Iterable[TopicPartition] | None, topic_ids: Mapping[str, UUID | None] | None = None
) -> OffsetFetchRequest:
    """Ask for stable offsets: not while a transaction is about to commit others (KIP-447). Without `tps` the request is
    for all offsets of the group, as they are now.

    Topics are named by their ids only from version 10 on, which the request must not have if an id is not known.
    """
    if tps is None:
        return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),))
    topics = tuple(
        OffsetFetchRequestTopic(
            name=topic,
            topic_id=(topic_ids or {}).get(topic) or ZERO_UUID,
            partition_indexes=tuple(tp.partition for tp in of_topic),
        )
        for topic, of_topic in groupby(sorted(tps), key=lambda tp: tp.topic)
    )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=True)


class CommittedAnswer(NamedTuple):
    """`error_code` is about the group, the codes in `refused` are about partitions. `found` has `None` where nothing is
    committed.
    """

    error_code: int
    found: dict[TopicPartition, Committed | None]
    refused: dict[TopicPartition, int]

    @property
    def codes(self) -> tuple[int, ...]:
        return self.error_code, *self.refused.values()


def committed_in(response: OffsetFetchResponse, topic_ids: Mapping[str, UUID | None] | None = None) -> CommittedAnswer:
    """What the answer says. Since version 10 it names topics by their ids."""
    names = {topic_id: topic for topic, topic_id in (topic_ids or {}).items()}
    found: dict[TopicPartition, Committed | None] = {}
    refused: dict[TopicPartition, int] = {}
    for topic in (each for group in response.groups for each in group.topics):
        for each in topic.partitions:
            tp = TopicPartition(topic.name or names.get(topic.topic_id, ""), each.partition_index)
            if each.error_code:
                refused[tp] = each.error_code
            else:
                offset, epoch = each.committed_offset, each.committed_leader_epoch
                found[tp] = Committed(offset, each.metadata or "", epoch) if offset >= 0 else None
    error_code = next((each.error_code for each in response.groups if each.error_code), 0)
    return CommittedAnswer(error_code, found, refused)
