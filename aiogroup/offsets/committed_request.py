"""The request for a group's committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final
from uuid import UUID

from aiogroup.cluster import NO_ID
from aiogroup.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aiogroup.structs import TopicPartition

__all__ = ["BY_NAME", "committed_request"]

BY_NAME: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; for brokers and topics without topic ids."""


def committed_request(
    group_id: str, tps: Iterable[TopicPartition], topic_ids: Mapping[str, UUID | None] | None = None
) -> OffsetFetchRequest:
    """Ask for stable offsets: not while a transaction is about to commit others (KIP-447).

    Topics are named by their ids only from version 10 on, which the request must not have if an id is not known.
    """
    topics = tuple(
        OffsetFetchRequestTopic(
            name=topic,
            topic_id=(topic_ids or {}).get(topic) or NO_ID,
            partition_indexes=tuple(tp.partition for tp in of_topic),
        )
        for topic, of_topic in groupby(sorted(tps), key=lambda tp: tp.topic)
    )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=True)
