"""A seek holds nobody up: what is buffered behind the new position stays, and no long poll is waited for."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import RecordDeserializationError
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup.testing import Proxy
from tests.support.kafka import eventually
from tests.support.reading import read

LONG_POLL = {"fetch_max_wait_ms": 20_000, "request_timeout_ms": 40_000}
"""A test that waits for one of these at the end of the log does not end in time."""
IN_TIME_S = 15


def refuse_fifths(value: bytes) -> int:
    number = int(value)
    if number % 5 == 0:
        raise ValueError("a fifth")
    return number


async def read_past_poison(consumer, call, way, count):
    """The loop as it is written for aiokafka; what came, and how often it was poison."""
    seen, poison_count = [], 0
    while len(seen) < count:
        try:
            if call == "async for":
                async for record in consumer:
                    seen.append(record.value)
                    if len(seen) == count:
                        break
            elif call == "getone":
                seen.append((await consumer.getone()).value)
            else:
                seen += [record.value for record in (await consumer.getmany(timeout_ms=1_000)).all()]
        except RecordDeserializationError as error:
            poison_count += 1
            if way == "seek":
                consumer.seek(error.tp, error.offset + 1)
            else:
                await consumer.skip()
    return seen, poison_count


@pytest.mark.parametrize("way", ["seek", "skip"])
@pytest.mark.parametrize("call", ["async for", "getone", "getmany"])
async def test_twenty_poison_records_in_a_hundred_cost_no_fetch(make_place, call, way):
    place = make_place()
    await place.produce(range(100))
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(
            bootstrap_servers=proxy.bootstrap_servers, value_deserializer=refuse_fifths, **LONG_POLL
        ) as consumer,
        asyncio.timeout(IN_TIME_S),
    ):
        seen, poison_count = await read_past_poison(consumer, call, way, 80)
        assert seen == [number for number in range(100) if number % 5]
        assert poison_count == 20
        assert proxy.count(FetchRequest) <= 3  # the first, and those that wait for what comes behind
        consumer.seek(place.tp(), 96)
        assert (await consumer.getone()).value == 96
    assert await place.committed() == 96  # which is in hand


async def test_a_seek_back_does_not_wait_for_the_long_poll(make_place):
    place = make_place(2)
    await place.produce(range(100))
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(bootstrap_servers=proxy.bootstrap_servers, **LONG_POLL) as consumer,
        asyncio.timeout(IN_TIME_S),
    ):
        assert [int(record.value) for record in await read(consumer, 100)] == list(range(100))
        await eventually(lambda: proxy.count(FetchRequest) >= 2)  # one waits at the broker now
        for failed in range(10):  # the idiom of a retry
            consumer.seek(place.tp(), failed)
            assert [int(record.value) for record in await read(consumer, 100 - failed)] == list(range(failed, 100))
        assert proxy.count(FetchRequest) <= 60
        # The partitions that were not moved are read as before, and so is the one that was, from then on.
        for number in range(3):
            await place.produce([number], partition=1)
            assert (await consumer.getone(place.tp(1))).value == str(number).encode()
        await place.produce(["behind"])
        assert (await consumer.getone(place.tp(0))).value == b"behind"


async def test_seek_to_committed_fetches_again_what_was_buffered(make_place):
    """As with aiokafka, whose users count on one answer at a time after it."""
    place = make_place()
    for size in (10, 50_000, 50):
        await place.produce(["x" * size])
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(
            bootstrap_servers=proxy.bootstrap_servers, max_partition_fetch_bytes=4_000, **LONG_POLL
        ) as consumer,
        asyncio.timeout(IN_TIME_S),
    ):
        await eventually(lambda: proxy.count(FetchRequest) >= 2)  # the first two batches are buffered, or will be
        await consumer.commit({place.tp(): 0})
        assert await consumer.seek_to_committed() == {place.tp(): 0}
        batches = [await consumer.getmany(timeout_ms=10_000) for _ in range(3)]
    assert [[len(record.value) for record in batch.all()] for batch in batches] == [[10], [50_000], [50]]
