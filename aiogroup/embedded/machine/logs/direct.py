"""Reads and writes records without a client, for tests that fill a broker, look into it, or damage its logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.logs.append import AppendRules, append
from aiogroup.embedded.machine.logs.batches import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    OVERHEAD_BYTES,
    Record,
    UnreadableBatchError,
    build,
    header_of,
    records_of,
    seal,
)
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Partition, Topic, Topics
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["DirectLogs", "Headers", "StoredRecord", "damaged"]

Headers = Iterable[tuple[str, bytes | None]]

BATCH_BYTES = 16_384
"""The default batch size of producers."""
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, COUNT_AT = 8, 17, 22, 57
UNKNOWN_CODEC = 5


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as it lies in a partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    is_append_time: bool
    """Whether the timestamp is the broker's (LogAppendTime)."""
    leader_epoch: int
    producer_id: int
    """-1: the producer is not idempotent."""
    producer_epoch: int
    sequence: int
    is_control: bool
    """Whether it is the marker at the end of a transaction; no client shows markers."""


class DirectLogs:
    """Appends and reads without the protocol, but by the rules of the topics."""

    def __init__(self, topics: Topics, settings: Settings) -> None:
        self._topics = topics
        self._settings = settings
        self._turns: dict[str, int] = {}

    def produce(
        self,
        topic: str,
        value: bytes | None,
        now_ms: int,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append one record.

        Returns:
            its offset.

        Raises:
            BrokerRefusal: there is no such partition, or the topic does not take the record; the message says why.
        """
        at_ms = now_ms if timestamp_ms is None else timestamp_ms
        record = Record(0, at_ms, key, value, tuple(headers))
        return self._append(self._writable(topic, partition), [record], now_ms)

    def produce_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        now_ms: int,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> list[tuple[int, int]]:
        """Append many records, in batches of 16 KiB.

        Args:
            topic: the topic.
            values: the values, one for each record.
            now_ms: now.
            key: the key of all.
            partition: their partition. By default they go to the topic's partitions in turn, from where the previous
                call left off.
            headers: the headers of all.
            timestamp_ms: the timestamp of all; by default now.

        Returns:
            (partition, offset) of each, in the order of `values`.

        Raises:
            BrokerRefusal: as for `produce`. What was appended before stays.
        """
        partitions_count = len(self._topic(topic).partitions)
        chosen = None if partition is None else self._writable(topic, partition)
        at_ms, all_headers = now_ms if timestamp_ms is None else timestamp_ms, tuple(headers)
        places: list[tuple[int, int]] = []
        batches: dict[int, _Filling] = {}
        turn = self._turns.get(topic, 0) % partitions_count  # a topic that was created again may have fewer
        for value in values:
            index = turn if chosen is None else chosen.index
            turn = turn if chosen is not None else (turn + 1) % partitions_count
            filling = batches.get(index)
            if filling is None:
                partition_of = self._writable(topic, index)
                filling = batches[index] = _Filling(partition_of, partition_of.log.end_offset)
            elif filling.size_bytes >= BATCH_BYTES:
                self._append(filling.partition, filling.records, now_ms)
                filling.empty()
            places.append((index, filling.next_offset))
            filling.add(Record(len(filling.records), at_ms, key, value, all_headers))
        self._turns[topic] = turn
        for filling in batches.values():
            if filling.records:
                self._append(filling.partition, filling.records, now_ms)
        return places

    def append(self, topic: str, partition: int, batch: bytes | bytearray, now_ms: int) -> int:
        """Store the bytes of a batch as they are. Only the fields that are needed for offsets are checked: after a
        fault of a disk or a network a log may hold bytes that no broker would accept. `damaged` makes such bytes.

        Returns:
            the batch's base offset.

        Raises:
            BrokerRefusal: the batch is shorter than a header, would take no offset, or does not fit into max_bytes.
        """
        kept = self._writable(topic, partition)
        if len(batch) < HEADER_BYTES:
            raise BrokerRefusal(f"{len(batch)} bytes are no record batch: its header alone has {HEADER_BYTES}")
        if header_of(batch).last_offset_delta < 0:
            raise BrokerRefusal("the batch's last offset lies before its first one")
        if not kept.log.budget.has_room(len(batch)):
            raise BrokerRefusal(f"the batch does not fit into max_bytes ({kept.log.budget.max_bytes})")
        base = kept.log.append(bytearray(batch), kept.leader_epoch)
        kept.appended(len(batch), now_ms)
        return base

    def records(self, topic: str, partition: int | None = None) -> Iterator[StoredRecord]:
        """The records of a topic or of one partition, by partition and offset. Unreadable batches are skipped."""
        partitions = self._topic(topic).partitions if partition is None else [self._partition(topic, partition)]
        for each in partitions:
            for batch in each.log.batches():
                yield from _stored(each, batch)

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerRefusal(f"there is no topic {name}: create_topic makes it")
        return topic

    def _partition(self, name: str, index: int) -> Partition:
        partitions = self._topic(name).partitions
        if not 0 <= whole_number("partition", index) < len(partitions):
            raise BrokerRefusal(f"{name} has {len(partitions)} partitions, and none with the number {index}")
        return partitions[index]

    def _writable(self, name: str, index: int) -> Partition:
        found = self._partition(name, index)
        if found.topic.is_internal:
            raise BrokerRefusal(f"only the group coordinators write to {name}: what it says follows from the members")
        return found

    def _append(self, partition: Partition, records: list[Record], now_ms: int) -> int:
        topic = partition.topic
        rules = AppendRules.of(self._settings, topic)
        appended = append(partition.log, build(records), partition.leader_epoch, rules, now_ms)
        if appended.error is not ErrorCode.NONE:
            why = [appended.message or appended.error.name, *(message for _, message in appended.record_errors)]
            raise BrokerRefusal(f"{topic.name}-{partition.index} does not take the records: {'; '.join(why)}")
        partition.appended(appended.size_bytes, now_ms)
        return appended.base_offset


class _Filling:
    """The batch of a partition that is being filled."""

    __slots__ = ("next_offset", "partition", "records", "size_bytes")

    def __init__(self, partition: Partition, next_offset: int) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self.records: list[Record] = []
        self.size_bytes = 0

    def add(self, record: Record) -> None:
        self.records.append(record)
        self.next_offset += 1
        self.size_bytes += 10 + len(record.key or b"") + len(record.value or b"")

    def empty(self) -> None:
        self.records, self.size_bytes = [], 0


def _stored(partition: Partition, batch: memoryview) -> Iterator[StoredRecord]:
    header = header_of(batch)
    try:
        records = list(records_of(batch))
    except UnreadableBatchError:
        return
    for each in records:
        if each.offset < partition.log.start_offset:
            continue
        yield StoredRecord(
            partition.topic.name,
            partition.index,
            each.offset,
            each.timestamp_ms,
            each.key,
            each.value,
            each.headers,
            bool(header.attributes & LOG_APPEND_TIME),
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            -1 if header.producer_id < 0 else (header.base_sequence + each.offset - header.base_offset) & 0x7FFFFFFF,
            header.is_control,
        )


def damaged(
    *,
    crc: bool = False,
    length: bool = False,
    count: bool = False,
    codec: bool = False,
    values: Iterable[bytes | None] = (b"damaged",),
    timestamp_ms: int = 0,
) -> bytes:
    """The bytes of a batch that no client can read, for `append`.

    Args:
        crc: the checksum is wrong; with all other damage it is right.
        length: the length field is too great.
        count: the record count is one too high.
        codec: the codec is one that nobody knows.
        values: the values of its records.
        timestamp_ms: the time of all records.
    """
    batch = build(Record(place, timestamp_ms, None, value) for place, value in enumerate(values))
    if count:
        batch[COUNT_AT : COUNT_AT + 4] = (header_of(batch).records_count + 1).to_bytes(4)
    if codec:
        batch[ATTRIBUTES_AT] = batch[ATTRIBUTES_AT] & ~CODEC_MASK | UNKNOWN_CODEC
    if length:
        batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - OVERHEAD_BYTES + 7).to_bytes(4)
    seal(batch)
    if crc:
        batch[CRC_AT] ^= 0xFF
    return bytes(batch)
