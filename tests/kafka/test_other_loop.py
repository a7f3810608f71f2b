"""A consumer belongs to the event loop that started it: from another one each call says so at once."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import IllegalStateError

CALLS = {
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=1_000),
    "async for": lambda consumer: anext(aiter(consumer)),
    "anext": anext,
    "commit": lambda consumer: consumer.commit(),
    "lag": lambda consumer: consumer.lag(),
    "stop": lambda consumer: consumer.stop(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_from_another_loop_names_both(make_place, call):
    place = make_place()
    await place.produce(range(1))

    async def elsewhere():
        async with asyncio.timeout(5):
            await CALLS[call](consumer)

    async with place.consumer() as consumer:
        with pytest.raises(IllegalStateError, match="in another event loop") as refused:
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert repr(asyncio.get_running_loop())[:30] in str(refused.value)
        assert (await consumer.getone()).offset == 0
