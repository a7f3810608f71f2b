"""stop() from another task waits for the record in hand, and what was finished meanwhile is committed."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, ConsumerStoppedError
from tests.support.kafka import eventually


async def read(consumer: Consumer, call: str, has_one: asyncio.Event, finish: asyncio.Event) -> None:
    if call == "async for":
        async for _ in consumer:
            has_one.set()
            await finish.wait()
        return
    try:
        while True:
            if call == "getone":
                await consumer.getone()
            else:
                await consumer.getmany(timeout_ms=5_000, max_records=1)
            has_one.set()
            await finish.wait()
    except ConsumerStoppedError:
        return


@pytest.mark.parametrize("call", ["async for", "getone", "getmany"])
async def test_a_record_that_is_finished_while_stop_waits_is_committed(make_place, call):
    place = make_place()
    await place.produce(range(4))
    consumer = place.consumer()
    await consumer.start()
    has_one, finish = asyncio.Event(), asyncio.Event()
    work = asyncio.create_task(read(consumer, call, has_one, finish))
    await asyncio.wait_for(has_one.wait(), 10)
    stopping = asyncio.create_task(consumer.stop(timeout_ms=20_000))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(stopping), 0.2)
    finish.set()
    report = await asyncio.wait_for(stopping, 5)
    assert report.is_clean
    assert not report.in_hand
    await eventually(work.done)
    work.result()
    assert await place.committed() == 1
