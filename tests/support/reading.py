"""Shared by tests of reading: fill a topic and read it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from aiogroup import Consumer, Record, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


@asynccontextmanager
async def producing(servers: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=servers, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def fill(servers: str, tp: TopicPartition, values: Iterable[bytes | None], **settings: Any) -> int:
    """Write the values in order. Returns the offset after the last one."""
    async with producing(servers, **settings) as producer:
        sent = [await producer.send(tp.topic, value, partition=tp.partition) for value in values]
        return (await asyncio.gather(*sent))[-1].offset + 1 if sent else 0


async def read(consumer: Consumer, count: int, within_s: float = 20) -> list[Record]:
    """Read exactly `count` records. More fail the test; fewer end in a time-out that shows what came."""
    records: list[Record] = []
    try:
        async with asyncio.timeout(within_s):
            while len(records) < count:
                records.extend((await consumer.getmany(timeout_ms=1_000)).all())
    except TimeoutError:
        raise AssertionError(f"only {len(records)} of {count} records in {within_s} s") from None
    assert len(records) == count, f"{len(records)} instead of {count}"
    return records


def alone(servers: str, **settings: Any) -> Consumer:
    """A consumer without a group, from the beginning, for `assign`."""
    return Consumer(bootstrap_servers=servers, **{"auto_offset_reset": "earliest", **settings})
