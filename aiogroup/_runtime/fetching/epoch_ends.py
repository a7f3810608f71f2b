"""Asks a leader where epochs ended in its log (OffsetForLeaderEpoch, KIP-320), for the validator and for recoveries."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final, NamedTuple

from aiogroup._core.fetching.truncation import EpochEnd, EpochRemedy, Leader, epoch_remedy_for
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiogroup._runtime.net.link import METADATA, Link
from aiogroup.structs import TopicPartition

__all__ = ["ANSWER_MS", "EpochAnswer", "ask_epoch_ends"]

ANSWER_MS: Final = 5_000
"""How long to wait for a leader, which normally answers at once. One that does not may be frozen, and may have lost its
leadership.
"""


class EpochAnswer(NamedTuple):
    """The answer about one partition: `end` counts only with the remedy PROCEED; otherwise `error` names the code."""

    remedy: EpochRemedy
    error: str
    end: EpochEnd


async def ask_epoch_ends(
    link: Link, node_id: int, asked: Mapping[TopicPartition, tuple[Leader, int]], limit_ms: int
) -> dict[TopicPartition, EpochAnswer]:
    """Ask this broker where epochs ended: for each partition its leader as we know it, and the epoch.

    An answer may lack partitions.

    Raises:
        UnsupportedVersionError: the broker is older than Kafka 2.3, and cannot say it.
        AiogroupError: it did not answer in time.
    """
    request = OffsetForLeaderEpochRequest(
        topics=tuple(
            OffsetForLeaderTopic(
                topic=topic,
                partitions=tuple(
                    OffsetForLeaderPartition(
                        partition=tp.partition, current_leader_epoch=asked[tp][0].epoch, leader_epoch=asked[tp][1]
                    )
                    for tp in of_topic
                ),
            )
            for topic, of_topic in groupby(sorted(asked), key=lambda tp: tp.topic)
        )
    )
    answer = await link.send(node_id, request, METADATA, limit_ms)
    return {
        TopicPartition(topic.topic, each.partition): EpochAnswer(
            epoch_remedy_for(each.error_code),
            lookup(each.error_code).name,
            EpochEnd(each.leader_epoch, each.end_offset),
        )
        for topic in answer.topics
        for each in topic.partitions
    }
