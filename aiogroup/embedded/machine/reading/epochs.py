"""OffsetForLeaderEpoch: where an epoch ended. From that a reader learns whether the log still has its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiogroup._core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.reading.replicas import why_not

__all__ = ["Epochs"]


class Epochs:
    """Serves OffsetForLeaderEpoch at all nodes. Only the leader answers, whatever the replica id."""

    def __init__(self, topics: Topics, faults: Faults) -> None:
        self._topics = topics
        self._faults = faults

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {OffsetForLeaderEpochRequest: self.offset_for_leader_epoch}

    def offset_for_leader_epoch(self, exchange: Exchange, request: OffsetForLeaderEpochRequest, now_ms: int) -> None:
        topics = tuple(
            OffsetForLeaderTopicResult(
                topic.topic, tuple(self._partition(exchange, topic.topic, each) for each in topic.partitions)
            )
            for topic in request.topics
        )
        exchange.answer(OffsetForLeaderEpochResponse(topics=topics), now_ms)

    def _partition(
        self, exchange: Exchange, topic: str, ask: OffsetForLeaderPartition
    ) -> OffsetForLeaderPartitionResult:
        place = Place(topic=topic, partition=ask.partition)
        partition = self._topics.partition(topic, ask.partition)
        code = self._faults.refusal(exchange, place) or why_not(
            partition, exchange.node_id, ask.current_leader_epoch, only_leader=True
        )
        code = code or self._faults.denial(exchange, place)
        if code or partition is None:
            return OffsetForLeaderPartitionResult(code, ask.partition)
        epoch, end_offset = partition.log.end_of_epoch(ask.leader_epoch)
        return OffsetForLeaderPartitionResult(code, ask.partition, epoch, end_offset)
