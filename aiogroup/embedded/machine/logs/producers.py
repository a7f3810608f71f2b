"""What a partition remembers of idempotent producers and of their transactions (Kafka: ProducerStateManager,
ProducerAppendInfo, TransactionIndex).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.logs.batches import Header, end_of_transaction, header_of

__all__ = ["Aborted", "KeptBatch", "Producer", "Producers", "last_sequence"]

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
BATCHES_KEPT = 5
"""The greatest number of requests that an idempotent producer may have under way."""
GREATEST_SEQUENCE = 0x7FFF_FFFF


def last_sequence(header: Header) -> int:
    """The sequence number of a batch's last record. Sequence numbers wrap to 0."""
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + header.last_offset_delta) & GREATEST_SEQUENCE


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """One of a producer's last batches."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The part of an aborted transaction that lies in one partition."""

    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass(slots=True, eq=False)
class Producer:
    """One producer as a partition knows it."""

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[KeptBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    last_timestamp: int = -1
    coordinator_epoch: int = NO_EPOCH
    """The coordinator epoch of the last marker."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def begin_epoch(self, epoch: int) -> None:
        """Start a new epoch, in which sequence numbers begin again."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    """The producers of one partition, by id."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """The first offsets of transactions under way, by producer, in rising order."""
        self._aborted: list[Aborted] = []
        """In the order of the markers."""
        self._verified: dict[int, tuple[int, int]] = {}
        """By producer: the epoch and the lowest sequence number for which the coordinator was asked about a
        transaction's first batch, until that batch is in the log (Kafka: VerificationStateEntry).
        """

    @property
    def first_open_offset(self) -> int | None:
        """Where the earliest transaction under way begins; `None`: there is none."""
        return next(iter(self._open.values()), None)

    def open_offset(self, producer_id: int) -> int:
        """Where the producer's transaction begins, -1 if none is under way."""
        return self._open.get(producer_id, NO_OFFSET)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the partition has records of the producer's transaction under way. Then the coordinator need not be
        asked about further records (KIP-890).
        """
        return producer_id in self._open and self.by_id[producer_id].epoch == epoch

    def aborted(self, from_offset: int, until_offset: int) -> list[Aborted]:
        """The aborted transactions that overlap these records."""
        # Markers are in the order of their offsets, so bisection skips the transactions that ended before the first
        # record.
        first = bisect_left(self._aborted, from_offset, key=lambda each: each.marker_offset)
        return [each for each in self._aborted[first:] if each.first_offset < until_offset]

    def repeated(self, header: Header) -> KeptBatch | None:
        """The batch that this one repeats, if it is one of its producer's last five."""
        producer = self.by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        last = last_sequence(header)
        for each in producer.batches:
            if each.base_sequence == header.base_sequence and each.last_sequence == last:
                return each
        return None

    def refusal(self, header: Header) -> ErrorCode:
        """Why a batch that is no repetition cannot be appended, or NONE.

        A producer that the partition does not know may begin with any sequence number: its records may have been
        deleted.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (asked := self._verified.get(header.producer_id)) is not None and header.base_sequence > asked[1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer is None:
            return ErrorCode.NONE
        if header.producer_epoch > producer.epoch:
            follows = header.base_sequence == 0
        else:
            follows = header.base_sequence == (producer.last_sequence + 1) & GREATEST_SEQUENCE
        if not follows:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not header.is_transactional and header.producer_id in self._open:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def verifying(self, header: Header) -> None:
        """Note that the coordinator is asked about the first batch of a transaction. Until that batch is appended,
        later ones are refused. A batch of a fenced producer does not hold up its successor's transaction.
        """
        if header.producer_id in self._open:
            return
        epoch, lowest = self._verified.get(header.producer_id, (header.producer_epoch, header.base_sequence))
        if header.producer_epoch > epoch:
            epoch, lowest = header.producer_epoch, header.base_sequence
        elif header.producer_epoch == epoch:
            lowest = min(lowest, header.base_sequence)
        self._verified[header.producer_id] = epoch, lowest

    def note(self, header: Header, batch: bytearray | memoryview) -> None:
        """Remember a batch that is in the log."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = Producer(header.producer_id)
        producer.begin_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        if header.is_transactional:
            self._verified.pop(header.producer_id, None)
        if header.is_control:
            self._end(producer, header, batch)
            return
        if header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)
        producer.batches.append(
            KeptBatch(
                header.base_sequence,
                last_sequence(header),
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )

    def _end(self, producer: Producer, header: Header, batch: bytearray | memoryview) -> None:
        end = end_of_transaction(batch)
        if end is None:
            return
        producer.coordinator_epoch = end.coordinator_epoch
        first_offset = self._open.pop(producer.producer_id, None)
        if first_offset is not None and not end.is_committed:
            self._aborted.append(Aborted(producer.producer_id, first_offset, header.base_offset))

    def forget_silent(self, since_ms: int) -> None:
        """Forget producers that have written nothing since then and have no transaction under way
        (removeExpiredProducers).
        """
        for each in list(self.by_id.values()):
            if each.last_timestamp <= since_ms and each.producer_id not in self._open:
                del self.by_id[each.producer_id]

    @classmethod
    def of(cls, batches: Iterable[memoryview]) -> Producers:
        """Rebuild the producers' state from a log's batches, after a truncation."""
        producers = cls()
        for each in batches:
            header = header_of(each)
            if header.producer_id >= 0:
                producers.note(header, each)
        return producers
