"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit (28), DescribeTransactions (65),
ListTransactions (66).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class AddPartitionsToTxnPartitionResult(Structure):
    """The results for each partition."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@structure
class AddPartitionsToTxnTopicResult(Structure):
    """The results for each topic."""

    name: str = wire(STRING)
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(array(AddPartitionsToTxnPartitionResult))


@structure
class AddPartitionsToTxnResponse(Response):
    """The answer to `AddPartitionsToTxnRequest`."""

    throttle_time_ms: int = wire(INT32)
    results_by_topic: tuple[AddPartitionsToTxnTopicResult, ...] = wire(array(AddPartitionsToTxnTopicResult))


@structure
class AddPartitionsToTxnTopic(Structure):
    """The partitions to add to the transaction."""

    name: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Names the partitions to which a transaction is about to write."""

    API_KEY = 24
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 3
    RESPONSE = AddPartitionsToTxnResponse

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(array(AddPartitionsToTxnTopic))


@structure
class AddOffsetsToTxnResponse(Response):
    """The answer to `AddOffsetsToTxnRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Names the group for which a transaction is about to commit."""

    API_KEY = 25
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3
    RESPONSE = AddOffsetsToTxnResponse

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@structure
class EndTxnResponse(Response):
    """The answer to `EndTxnRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class EndTxnRequest(Request[EndTxnResponse]):
    """Commits or aborts a transaction."""

    API_KEY = 26
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3
    RESPONSE = EndTxnResponse

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOLEAN)


@structure
class TxnOffsetCommitResponsePartition(Structure):
    """The responses for each partition in the topic."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class TxnOffsetCommitResponseTopic(Structure):
    """The responses for each topic."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(array(TxnOffsetCommitResponsePartition))


@structure
class TxnOffsetCommitResponse(Response):
    """The answer to `TxnOffsetCommitRequest`."""

    throttle_time_ms: int = wire(INT32)
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(array(TxnOffsetCommitResponseTopic))


@structure
class TxnOffsetCommitRequestPartition(Structure):
    """The partitions inside the topic that we want to commit offsets for."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable=0)


@structure
class TxnOffsetCommitRequestTopic(Structure):
    """Each topic that we want to commit offsets for."""

    name: str = wire(STRING)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(array(TxnOffsetCommitRequestPartition))


@structure
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Commits offsets that become visible with the transaction; since version 3 as a member (KIP-447)."""

    API_KEY = 28
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3
    RESPONSE = TxnOffsetCommitResponse

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(array(TxnOffsetCommitRequestTopic))


@structure
class TransactionTopic(Structure):
    """The set of partitions included in the current transaction (if active). When a transaction is preparing to commit
    or abort, this will include only partitions which do not have markers.
    """

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class TransactionState(Structure):
    """The current state of the transaction."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: tuple[TransactionTopic, ...] = wire(array(TransactionTopic))


@structure
class DescribeTransactionsResponse(Response):
    """The answer to `DescribeTransactionsRequest`."""

    throttle_time_ms: int = wire(INT32)
    transaction_states: tuple[TransactionState, ...] = wire(array(TransactionState))


@structure
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Asks for the state of transactional ids (KIP-664); the start is -1 while nothing is under way."""

    API_KEY = 65
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RESPONSE = DescribeTransactionsResponse

    transactional_ids: tuple[str, ...] = wire(array(STRING))


@structure
class ListedTransaction(Structure):
    """The current state of the transaction for the transactional id."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@structure
class ListTransactionsResponse(Response):
    """The answer to `ListTransactionsRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: tuple[str, ...] = wire(array(STRING))
    transaction_states: tuple[ListedTransaction, ...] = wire(array(ListedTransaction))


@structure
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """Asks one node for transactional ids (KIP-664); empty filters let all pass."""

    API_KEY = 66
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RESPONSE = ListTransactionsResponse

    state_filters: tuple[str, ...] = wire(array(STRING))
    producer_id_filters: tuple[int, ...] = wire(array(INT64))
    duration_filter: int = wire(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = wire(STRING, since=2, nullable=2, default=None)
