"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65),
ListTransactions (66), as KafkaApis serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.transactions.states import STATE_NAMES, Expected, TransactionalId
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from aiogroup.embedded.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
    TransactionTopic,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.transactions.coordinator import TransactionCoordinator

__all__ = ["TransactionRequests"]

NO_ID = NO_EPOCH = -1
INIT_KNOWS_FENCED = 4
OTHERS_KNOW_FENCED = 2
"""Before these versions a producer gets INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED (KIP-588)."""


class TransactionRequests:
    """Serves transactional producers at all nodes, and gives ids to those that are only idempotent.

    Args:
        coordinator: of the transactions.
        topics: the partitions that may be added.
        faults: the codes that a test asked for. One with a topic hits partitions of AddPartitionsToTxn.
        new_id: draws producer ids.
    """

    def __init__(
        self, coordinator: TransactionCoordinator, topics: Topics, faults: Faults, new_id: Callable[[], int]
    ) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._faults = faults
        self._new_id = new_id

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            InitProducerIdRequest: self.init_producer_id,
            AddPartitionsToTxnRequest: self.add_partitions,
            AddOffsetsToTxnRequest: self.add_offsets,
            EndTxnRequest: self.end,
            DescribeTransactionsRequest: self.describe,
            ListTransactionsRequest: self.list,
        }

    # Ids.

    def init_producer_id(self, exchange: Exchange, request: InitProducerIdRequest, now_ms: int) -> None:
        found = self._faults.refusal(exchange) or self._init(exchange, request, now_ms)
        found = self._faults.denial(exchange) or found
        if isinstance(found, ErrorCode):
            code = _told(found, exchange, INIT_KNOWS_FENCED)
            response = InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
        else:
            response = InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        exchange.answer(response, now_ms)

    def _init(self, exchange: Exchange, request: InitProducerIdRequest, now_ms: int) -> Expected | ErrorCode:
        expected = Expected(request.producer_id, request.producer_epoch)
        if (expected.producer_id == NO_ID) != (expected.epoch == NO_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is None:
            # A producer that asks again without a transactional id always gets another producer id.
            return Expected(self._new_id(), 0)
        known = expected if expected.producer_id != NO_ID else None
        found = self._coordinator.init(
            exchange.node_id, request.transactional_id, request.transaction_timeout_ms, known, now_ms
        )
        return found if isinstance(found, ErrorCode) else Expected(found.producer_id, found.epoch)

    # What belongs to a transaction.

    def add_partitions(self, exchange: Exchange, request: AddPartitionsToTxnRequest, now_ms: int) -> None:
        asked = {(topic.name, index): None for topic in request.topics for index in topic.partitions}
        codes = {each: code for each in asked if (code := self._refusal(exchange, *each))}
        if codes:
            # If one partition is refused, none is added.
            codes = {each: codes.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in asked}
        else:
            code = self._faults.refusal(exchange) or self._coordinator.add(
                exchange.node_id, request.transactional_id, _producer(request), asked, now_ms
            )
            code = self._faults.denial(exchange) or _told(code, exchange, OTHERS_KNOW_FENCED)
            codes = dict.fromkeys(asked, code)
        exchange.answer(AddPartitionsToTxnResponse(results_by_topic=_by_topic(codes)), now_ms)

    def _refusal(self, exchange: Exchange, topic: str, index: int) -> ErrorCode:
        if self._faults.is_set and (code := self._faults.refusal(exchange, Place(topic, index))):
            return code
        is_there = self._topics.partition(topic, index) is not None
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def add_offsets(self, exchange: Exchange, request: AddOffsetsToTxnRequest, now_ms: int) -> None:
        place = Place(group=request.group_id)
        code = self._faults.refusal(exchange, place)
        if not code:
            partition = self._coordinator.offsets_of(request.group_id)
            code = self._coordinator.add(
                exchange.node_id, request.transactional_id, _producer(request), {partition: None}, now_ms
            )
        code = self._faults.denial(exchange, place) or _told(code, exchange, OTHERS_KNOW_FENCED)
        exchange.answer(AddOffsetsToTxnResponse(error_code=code), now_ms)

    # The end.

    def end(self, exchange: Exchange, request: EndTxnRequest, now_ms: int) -> None:
        code = self._faults.refusal(exchange) or self._coordinator.end(
            exchange.node_id,
            request.transactional_id,
            _producer(request),
            is_committed=request.committed,
            now_ms=now_ms,
        )
        code = self._faults.denial(exchange) or _told(code, exchange, OTHERS_KNOW_FENCED)
        exchange.answer(EndTxnResponse(error_code=code), now_ms)

    # What administrators ask.

    def describe(self, exchange: Exchange, request: DescribeTransactionsRequest, now_ms: int) -> None:
        states = tuple(self._described(exchange, each, now_ms) for each in request.transactional_ids)
        exchange.answer(DescribeTransactionsResponse(transaction_states=states), now_ms)

    def _described(self, exchange: Exchange, name: str, now_ms: int) -> TransactionState:
        code = self._faults.refusal(exchange)
        if not code and not name:
            code = ErrorCode.INVALID_REQUEST
        seat = code or self._coordinator.seats.at(exchange.node_id, name)
        if isinstance(seat, ErrorCode):
            return TransactionState(error_code=seat, transactional_id=name)
        found = self._coordinator.find(seat, name, now_ms)
        if found is None:
            return TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=name)
        if code := self._faults.denial(exchange):
            return TransactionState(error_code=code, transactional_id=name)
        indexes: dict[str, list[int]] = {}
        for topic, index in found.partitions:
            indexes.setdefault(topic, []).append(index)
        return TransactionState(
            transactional_id=name,
            transaction_state=found.state.value,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_at_ms,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=tuple(TransactionTopic(topic, tuple(each)) for topic, each in indexes.items()),
        )

    def list(self, exchange: Exchange, request: ListTransactionsRequest, now_ms: int) -> None:
        found = self._faults.refusal(exchange) or self._coordinator.at_node(exchange.node_id, now_ms)
        found = self._faults.denial(exchange) or found
        if isinstance(found, ErrorCode):
            response = ListTransactionsResponse(error_code=found)
        else:
            response = ListTransactionsResponse(
                unknown_state_filters=tuple(each for each in request.state_filters if each not in STATE_NAMES),
                transaction_states=_listed(found, request, now_ms),
            )
        exchange.answer(response, now_ms)


def _producer(request: AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | EndTxnRequest) -> Expected:
    return Expected(request.producer_id, request.producer_epoch)


def _told(code: ErrorCode, exchange: Exchange, knows_fenced: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and exchange.version < knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _by_topic(codes: Mapping[tuple[str, int], ErrorCode]) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    results: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        results.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, code))
    return tuple(AddPartitionsToTxnTopicResult(topic, tuple(each)) for topic, each in results.items())


def _listed(
    ids: Iterable[TransactionalId], request: ListTransactionsRequest, now_ms: int
) -> tuple[ListedTransaction, ...]:
    """TransactionStateManager.listTransactionStates."""
    states, producers, longer_ms = request.state_filters, request.producer_id_filters, request.duration_filter
    return tuple(
        ListedTransaction(each.name, each.producer_id, each.state.value)
        for each in ids
        if (not states or each.state.value in states)
        and (not producers or each.producer_id in producers)
        # An id that never began a transaction has a start of -1, which Kafka takes for a time in 1969.
        and (longer_ms < 0 or now_ms - each.started_at_ms > longer_ms)
    )
