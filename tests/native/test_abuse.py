"""What only C can get wrong: the stack, references, the collector, and a coroutine that is none."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core import native
from tests.fetching import wire_batches as w
from tests.native.test_native import HEADER, KINDS, opened

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)

LONG_CHAIN = """
from functools import partial
from aiogroup._core.native import Record
linked = partial(Record, ("orders", 3), 7, 1_700, 1, b"k", headers=())
record = None
for _ in range(300_000):
    record = linked(value=record)
del record
"""


def test_a_long_chain_of_records_is_freed():
    subprocess.run([sys.executable, "-c", LONG_CHAIN], check=True, timeout=60)


@kinds
def test_a_reader_in_a_cycle_is_collected_with_what_it_reads(kind):
    class Holder:
        pass

    holder = Holder()
    sent = bytearray(w.built(3))
    view = memoryview(sent)
    holder.reader = kind.Reader(view[:HEADER], view[HEADER:], (TopicPartition("a", 0), 0, "live", holder))
    assert len(holder.reader.read(1, 0)) == 1
    gone = weakref.ref(holder)
    del holder, view
    gc.collect()
    assert gone() is None
    sent.append(0)  # BufferError while anything holds the bytes


# Next.


@kinds
@pytest.mark.parametrize("error", [LookupError, LookupError("x")], ids=["class", "instance"])
async def test_what_is_thrown_into_an_unstarted_step_comes_out(kind, error):
    cursor, records = opened(kind)
    with pytest.raises(LookupError):
        anext(cursor).throw(error)
    assert await anext(cursor) is records[0]


@kinds
async def test_what_is_no_exception_cannot_be_thrown(kind):
    cursor, _ = opened(kind)
    step = anext(cursor)
    with pytest.raises(TypeError):
        step.throw(5)
    step.close()


@pytest.mark.skipif(not native.IS_COMPILED, reason="Python's coroutines say that they are running")
def test_a_wait_that_steps_its_own_step_leaks_nothing():
    cursor, _ = opened(native, turn_ns=0)
    made_here = []

    async def waiting():
        await asyncio.sleep(0)

    def wait():
        if not made_here:
            made_here.append(None)
            steps[0].send(None)
        coroutine = waiting()
        made_here.append(weakref.ref(coroutine))
        return coroutine

    cursor.wait = wait
    steps = [anext(cursor)]
    steps[0].send(None)
    steps.clear()
    del cursor
    gc.collect()
    assert [each() for each in made_here[1:]] == [None, None]


async def slow_end():
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    raise StopAsyncIteration


async def raise_in_loop(cursor):
    async for record in cursor:
        raise LookupError(record)


async def every_way(kind):
    """What may be done with what `__anext__` returns, and what is left then."""
    cursor, records = opened(kind, 9)
    cursor.wait = slow_end
    assert await asyncio.ensure_future(anext(cursor)) is records[0]
    assert await asyncio.wait_for(anext(cursor), 5) is records[1]
    assert await asyncio.gather(anext(cursor), anext(cursor)) == records[2:4]
    async for record in cursor:
        assert record is records[4]
        break
    with pytest.raises(LookupError):
        await raise_in_loop(cursor)
    assert [each async for each in cursor] == records[6:]
    assert await anext(cursor, "none") == "none"


@kinds
async def test_a_step_is_as_good_as_a_coroutine(kind):
    await every_way(kind)


@kinds
def test_a_step_is_as_good_as_a_coroutine_in_debug_mode(kind):
    asyncio.run(every_way(kind), debug=True)


@kinds
@pytest.mark.parametrize("switch", [sys.settrace, sys.setprofile])
def test_a_step_is_as_good_as_a_coroutine_while_each_step_is_traced(kind, switch):
    before = sys.gettrace() if switch is sys.settrace else sys.getprofile()
    switch(lambda *_: None)
    try:
        asyncio.run(every_way(kind))
    finally:
        switch(before)


@kinds
@pytest.mark.parametrize("steps", range(4))
async def test_cancelling_at_any_step_loses_nothing(kind, steps):
    cursor, _ = opened(kind, turn_ns=0)
    cursor.wait = slow_end
    task = asyncio.ensure_future(anext(cursor))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, StopAsyncIteration)):
        await task
    assert cursor.index == 1
