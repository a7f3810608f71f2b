"""What a partition remembers of idempotent producers (Kafka: ProducerStateManager, ProducerAppendInfo)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiogroup.embedded.machine.logs.batches import Header, header_of
from aiogroup.protocol.errors import ErrorCode

__all__ = ["KeptBatch", "Producer", "Producers", "last_sequence"]

NO_EPOCH = -1
NO_SEQUENCE = -1
BATCHES_KEPT = 5
"""As many requests as a producer with idempotence may have under way."""
GREATEST_SEQUENCE = 0x7FFF_FFFF


def last_sequence(header: Header) -> int:
    """The sequence number of a batch's last record: behind the greatest one comes 0."""
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


@dataclass(slots=True, eq=False)
class Producer:
    """One producer as a partition knows it."""

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[KeptBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        return self.batches[-1].max_timestamp if self.batches else -1


class Producers:
    """The producers of one partition, by id."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}

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
        """Why a batch that is no repetition cannot follow, or NONE.

        A producer that the partition does not know may begin with any sequence number: its records may have been
        deleted.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return ErrorCode.NONE
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > producer.epoch:
            follows = header.base_sequence == 0
        else:
            follows = header.base_sequence == (producer.last_sequence + 1) & GREATEST_SEQUENCE
        return ErrorCode.NONE if follows else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(self, header: Header) -> None:
        """Remember a batch that is in the log."""
        if header.is_control:
            return
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = Producer(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.batches.append(
            KeptBatch(
                header.base_sequence,
                last_sequence(header),
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )

    @classmethod
    def of(cls, batches: Iterable[memoryview]) -> Producers:
        """What a log says of its producers: what is left of them after a truncation."""
        producers = cls()
        for each in batches:
            header = header_of(each)
            if header.producer_id >= 0:
                producers.note(header)
        return producers
