"""Explains gaps, which are offsets at which Spark read no record, by what Kafka's batches hold there.

A gap is correct if aiogroup's own consumer, under the same isolation level, finds no record in it either. The headers
of the batches give the reason: a control batch, an aborted transaction, or no batch at all (compaction).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from operator import add
from typing import Final, NamedTuple

from aiogroup._core.fetching.records.batches import Batch, LegacyBatch, frame_bytes, read_batch
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._runtime.loop.clock import within_ms
from aiogroup._runtime.net.link import FETCH, Link
from aiogroup.config import ConsumerConfig
from aiogroup.consumer import Consumer
from aiogroup.errors import BrokerError
from aiogroup.spark.access import Access
from aiogroup.spark.errors import IncompleteError
from aiogroup.structs import TopicPartition

__all__ = ["Gap", "Missing", "explain"]

FETCH_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 1 << 30
BY_NAME: Final = 12
"""The last version of Fetch that names topics."""


class Gap(NamedTuple):
    """The offsets from `start` up to `end`, without `end` itself."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Missing:
    """Counts of offsets that hold no record for the application, by the reason.

    `expired_count`: deleted by retention. `control_count`: markers of transactions. `aborted_count`: records of aborted
    transactions. `compacted_count`: removed by compaction. `unchecked_count`: in gaps that were not looked at, because
    only the longest are.
    """

    expired_count: int = 0
    control_count: int = 0
    aborted_count: int = 0
    compacted_count: int = 0
    unchecked_count: int = 0

    def __add__(self, other: Missing) -> Missing:
        return Missing(*map(add, astuple(self), astuple(other)))

    @property
    def total_count(self) -> int:
        """The sum of all counts."""
        return sum(astuple(self))


async def explain(access: Access, gaps: Iterable[tuple[TopicPartition, Gap]]) -> Missing:
    """Count what Kafka has in these gaps.

    Raises:
        IncompleteError: there is a record that Spark did not read.
        KafkaTimeoutError: a leader did not answer in time.
        AiogroupError: a broker refused.
    """
    config = access.config()
    missing = Missing()
    async with Link(config) as link, Consumer(**{**access.settings(), "max_poll_records": 1}) as reader:
        for tp, gap in gaps:
            await _check_empty(reader, tp, gap, config.default_api_timeout_ms)
            missing += await _classify(config, link, tp, gap)
    return missing


async def _check_empty(reader: Consumer, tp: TopicPartition, gap: Gap, limit_ms: int) -> None:
    """Read through the gap with aiogroup's own consumer, which must find no record in it."""
    if reader.assignment() != {tp}:
        reader.assign([tp])
    reader.seek(tp, gap.start)
    where = f"{tp.topic}-{tp.partition}: offsets {gap.start} to {gap.end}"
    async with within_ms(limit_ms, f"{where} could not be looked at within {limit_ms} ms"):
        while True:
            for record in (await reader.getmany(timeout_ms=100)).all():
                if record.offset < gap.end:
                    raise IncompleteError(
                        f"{tp.topic}-{tp.partition}: Kafka has a record at offset {record.offset}, and Spark read none "
                        f"between {gap.start} and {gap.end}. Run the job again"
                    )
                return
            if await reader.position(tp) >= gap.end:
                return


async def _classify(config: ConsumerConfig, link: Link, tp: TopicPartition, gap: Gap) -> Missing:
    control_count = aborted_count = 0
    position = gap.start
    while position < gap.end:
        data = await _fetch(config, link, tp, position)
        began_at = position
        for batch_end, is_control, offsets in batches_in(data):
            position = max(position, batch_end)
            within_count = sum(gap.start <= offset < gap.end for offset in offsets)
            control_count += within_count if is_control else 0
            aborted_count += 0 if is_control else within_count
        if position == began_at:
            break  # no batch is stored at or after the position
    compacted_count = len(gap) - control_count - aborted_count
    return Missing(control_count=control_count, aborted_count=aborted_count, compacted_count=compacted_count)


def batches_in(data: memoryview) -> Iterator[tuple[int, bool, list[int]]]:
    """For each whole batch the offset after it, whether it is a control batch, and the offsets of its records."""
    pos = 0
    while pos < len(data):
        try:
            size = frame_bytes(data, pos, MOST_BYTES)
            if pos + size > len(data):
                return
            batch = read_batch(data[pos : pos + size])
            offsets = [] if batch.is_empty else _offsets(batch)
        except ValueError as error:
            raise IncompleteError(f"a batch is damaged: {error}") from error
        yield batch.next_offset or 0, batch.is_control, offsets
        pos += size


def _offsets(batch: Batch | LegacyBatch) -> list[int]:
    """The offsets of the batch's records, all of which must be intact.

    Raises:
        ValueError: a record is damaged, or there are more or fewer records than the header says.
    """
    batch.inflate(MOST_BYTES)
    reader = batch.reader((TopicPartition("", 0), 0, "", None), check=False, committed=False)
    offsets: list[int] = []
    while reader.left > 0:
        offsets += [record.offset for record in reader.read(reader.left, 0)]
    reader.finish()
    return offsets


async def _fetch(config: ConsumerConfig, link: Link, tp: TopicPartition, offset: int) -> memoryview:
    if link.cluster.leader(tp) < 0:
        await link.fetch_metadata([tp.topic])
    wanted = FetchPartition(tp.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, topics=(FetchTopic(topic=tp.topic, partitions=(wanted,)),)
    )
    answer = await link.send(link.cluster.leader(tp), request, FETCH, config.request_timeout_ms, at_most=BY_NAME)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                row = lookup(each.error_code)
                raise BrokerError(
                    each.error_code, row.name, f"{tp.topic}-{tp.partition}: {row.message}", retriable=row.retriable
                )
            return memoryview(each.records or b"")
    return memoryview(b"")
