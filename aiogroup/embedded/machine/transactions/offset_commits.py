"""TxnOffsetCommit (28): offsets that become visible with their transaction (KafkaApis.handleTxnOffsetCommitRequest)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.transactions.states import Expected
from aiogroup.embedded.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.groups.coordinators import Coordinators
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.transactions.coordinator import TransactionCoordinator

__all__ = ["TransactionalOffsets"]

KNOWS_LOADING = 2
"""Before this version a producer gets COORDINATOR_NOT_AVAILABLE."""
KNOWS_ABORTABLE = 4
"""Before this version INVALID_TXN_STATE is sent in place of TRANSACTION_ABORTABLE (KIP-890)."""

Codes = dict[tuple[str, int], ErrorCode]


class TransactionalOffsets:
    """Takes the offsets of transactions at all nodes. The groups keep them, pending until the transaction ends."""

    def __init__(
        self, groups: Coordinators, transactions: TransactionCoordinator, topics: Topics, faults: Faults
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._topics = topics
        self._faults = faults

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {TxnOffsetCommitRequest: self.commit}

    def commit(self, exchange: Exchange, request: TxnOffsetCommitRequest, now_ms: int) -> None:
        """Partitions that are refused because of their topic come first. If no others remain, the coordinator is not
        asked.
        """
        place = Place(group=request.group_id, member=request.member_id)
        code = self._faults.refusal(exchange, place)
        codes = dict.fromkeys(_asked(request), code)
        if not code:
            codes = {each: self._refusal(exchange, request, *each) for each in codes}
            left = _only(request, codes)
            if left.topics:
                codes.update(self._commit(exchange, left, now_ms))
            if self._faults.is_set:
                codes = {each: code or self._denial(exchange, request, *each) for each, code in codes.items()}
                if code := self._faults.denial(exchange, place):
                    codes = dict.fromkeys(codes, code)
        topics = tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(
                        each.partition_index, _told(codes[topic.name, each.partition_index], exchange.version)
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        exchange.answer(TxnOffsetCommitResponse(topics=topics), now_ms)

    def _refusal(self, exchange: Exchange, request: TxnOffsetCommitRequest, topic: str, index: int) -> ErrorCode:
        if self._topics.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self._faults.is_set:
            return ErrorCode.NONE
        return self._faults.refusal(exchange, Place(topic, index, request.group_id, request.member_id))

    def _denial(self, exchange: Exchange, request: TxnOffsetCommitRequest, topic: str, index: int) -> ErrorCode:
        return self._faults.denial(exchange, Place(topic, index, request.group_id, request.member_id))

    def _commit(self, exchange: Exchange, request: TxnOffsetCommitRequest, now_ms: int) -> Codes:
        group_id, producer = request.group_id, Expected(request.producer_id, request.producer_epoch)
        if not group_id:
            return dict.fromkeys(_asked(request), ErrorCode.INVALID_GROUP_ID)
        coordinator = self._groups.at(exchange.node_id, group_id)
        code = ErrorCode.NONE
        if coordinator is ErrorCode.NOT_COORDINATOR:
            code = coordinator
        elif not self._groups.is_in_transaction(group_id, *producer):
            partition = self._transactions.offsets_of(group_id)
            code = self._transactions.verify(request.transactional_id, producer, partition, now_ms)
        if code:
            return dict.fromkeys(_asked(request), code)
        if isinstance(coordinator, ErrorCode):
            return dict.fromkeys(_asked(request), coordinator)
        codes = coordinator.commit_pending(request)
        self._groups.begin_transaction(group_id, *producer)
        return codes


def _asked(request: TxnOffsetCommitRequest) -> list[tuple[str, int]]:
    return [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]


def _only(request: TxnOffsetCommitRequest, codes: Codes) -> TxnOffsetCommitRequest:
    """The request without the refused partitions."""
    topics: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        partitions = tuple(each for each in topic.partitions if not codes[topic.name, each.partition_index])
        if partitions:
            topics.append(replace(topic, partitions=partitions))
    return replace(request, topics=tuple(topics))


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code
