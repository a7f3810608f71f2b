"""A record as FastStream's handlers get it, and what the acknowledgement of a message means for its records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from faststream.kafka.message import KafkaRawMessage

from aiogroup._runtime.loop.clock import Signal
from aiogroup.consumer import Consumer
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["Acknowledging", "RawMessage", "UnderWay", "is_cancelled"]


class UnderWay:
    """The tasks whose handlers are at a consumer's messages."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._ended = Signal()

    def begins(self) -> None:
        self._tasks.add(asyncio.current_task())

    def ends(self) -> None:
        self._tasks.discard(asyncio.current_task())
        self._ended.pulse()

    async def wait(self, until_ms: int) -> None:
        """Wait for the handlers of other tasks to end; the caller's own cannot."""
        while self._tasks - {asyncio.current_task()} and await self._ended.wait(until_ms):
            pass


class RawMessage(KafkaRawMessage):
    """aiokafka's record, which FastStream's users know, made of aiogroup's, which refuses FastStream's attribute."""

    def __init__(
        self,
        record: Record[Any, Any],
        deliverer: Consumer[Any, Any],
        under_way: UnderWay,
        end: Callable[[RawMessage], None] | None,
    ) -> None:
        tp = record.tp
        super().__init__(
            topic=tp.topic,
            partition=tp.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            timestamp_type=record.timestamp_type,
            key=record.key,
            value=record.value,
            checksum=None,
            serialized_key_size=record.serialized_key_size,
            serialized_value_size=record.serialized_value_size,
            headers=record.headers,  # type: ignore[arg-type]  # a value may be None in aiokafka's, too
        )
        self.deliverer = deliverer
        self.under_way = under_way
        self._record = record
        self._end = end

    @property
    def consumer(self) -> Any:  # noqa: ANN401 (FastStream takes it for aiokafka's)
        """Whom FastStream asks to commit this message."""
        return Acknowledging(self.deliverer, [self])

    @consumer.setter
    def consumer(self, consumer: Any) -> None:  # noqa: ANN401
        """FastStream's subscriber of several consumers sets the one that delivered it, which is known here."""

    def end(self) -> None:
        """The record is processed: it may be committed once all before it are."""
        if self._end is not None:
            self._record.ack()
            self._end(self)


def is_cancelled() -> bool:
    """Whether a cancellation is on its way through the caller, also where a middleware has replaced the exception."""
    return isinstance(sys.exc_info()[1], asyncio.CancelledError)


class Acknowledging:
    """The consumer as one message has it: `ack()` commits the message's own records, `nack()` goes back to them.

    FastStream calls `commit()` without offsets. That of aiokafka's consumer commits all that was delivered, also what
    another handler failed at.
    """

    def __init__(self, deliverer: Consumer[Any, Any], messages: Iterable[RawMessage]) -> None:
        self._deliverer = deliverer
        self._first: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        for each in messages:
            tp = TopicPartition(each.topic, each.partition)
            self._first.setdefault(tp, each.offset)
            self._next[tp] = each.offset + 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the consumer's)
        return getattr(self._deliverer, name)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the message's records. While its handler is cancelled nothing is: the records come again."""
        if offsets is not None:
            await self._deliverer.commit(offsets)
        elif not is_cancelled():
            await self._deliverer.commit(self._next)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go back to the message, in all of its partitions: FastStream 0.7.4 names only the first one of a batch."""
        tp = TopicPartition(*partition)
        back = self._first if self._first.get(tp) == offset else {tp: offset}
        for each, first in back.items():
            self._deliverer.seek(each, first)
