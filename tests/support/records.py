"""Records, partitions and decoders as the fetcher would make them, without a broker."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.config import ResetPolicy
from tests.fetching import wire_batches

LATEST = ResetPolicy("latest")


def tp(number, topic="orders"):
    return TopicPartition(topic, number)


def fetched(partition, count, base=0, *, data=b"", acknowledge=lambda record: None, **settings):
    """The decoder of a fetch answer with `count` records from `base` on, followed by `data`."""
    sent = wire_batches.built(count, base, value=b"v") if count else b""
    return PartitionDecoder(partition.tp, sent + data, base, (), DecodeSettings(**settings), acknowledge)


def assigned(*numbers, start_at=0, topic="orders", changes=None):
    """An assignment with these partitions, each at `start_at`, and the partitions. `changes` hears of both."""
    assignment = Assignment(changes)
    partitions = assignment.add({tp(number, topic): LATEST for number in numbers})
    for partition in partitions:
        partition.start_at(start_at)
    return assignment, partitions


def offsets(records):
    return [record.offset for record in records]


def rest(delivery):
    """The records that the cursor has without another request."""
    return list(iter(delivery.cursor.take, None))


def read_all(delivery):
    """Every record that `async for` would get now, as (partition, offset)."""
    given = []
    while (first := delivery.open_cursor()) is not None:
        given += [(record.partition, record.offset) for record in (first, *rest(delivery))]
        delivery.process_all()
    return given
