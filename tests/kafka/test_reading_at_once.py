"""Two tasks read one consumer: whoever reads on while the other holds a record is refused (delivery.md, rule 10)."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import ConcurrentConsumptionError


async def by_getone(consumer):
    return (await consumer.getone()).offset


async def by_getmany(consumer):
    return next((await consumer.getmany(timeout_ms=10_000, max_records=1)).all()).offset


async def by_poll(consumer):
    return next((await consumer.poll(max_records=1)).all()).offset


async def by_anext(consumer):
    return (await anext(consumer)).offset


async def by_wait_for(consumer):
    """Before Python 3.12 it runs its argument in a task of its own."""
    return (await asyncio.wait_for(consumer.getone(), 10)).offset


async def by_wait_for_anext(consumer):
    return (await asyncio.wait_for(anext(consumer), 10)).offset


async def by_task(consumer):
    return (await asyncio.create_task(consumer.getone())).offset


async def by_loop(consumer):
    async for record in consumer:
        return record.offset
    raise AssertionError("the loop ended")


async def by_merge(consumer):
    async for record in consumer.merged():
        return record.offset
    raise AssertionError("the merge ended")


WAYS = (by_getone, by_getmany, by_poll, by_anext, by_wait_for, by_wait_for_anext, by_loop, by_merge)


class Holder:
    """A task that takes records one way, holds the last of them until it is released, and then takes one more."""

    def __init__(self, consumer, way, count=1):
        self.is_holding = asyncio.Event()
        self.release = asyncio.Event()
        self.offsets = []
        self.task = asyncio.create_task(self._hold(consumer, way, count))

    async def _hold(self, consumer, way, count):
        self.offsets += [await way(consumer) for _ in range(count)]
        self.is_holding.set()
        await self.release.wait()
        self.offsets.append(await way(consumer))


async def started(consumer, way, count=1):
    holder = Holder(consumer, way, count)
    await asyncio.wait_for(holder.is_holding.wait(), 20)
    return holder


@pytest.mark.parametrize("second", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("first", WAYS, ids=lambda way: way.__name__)
async def test_reading_on_is_refused_while_another_task_holds_a_record(make_place, first, second):
    place = make_place()
    await place.produce(range(20))
    async with place.consumer(auto_commit_interval_ms=50) as consumer:
        count = 1 if first in (by_loop, by_merge) else 3  # a new loop begins with what the last one left in hand
        holder = await started(consumer, first, count)
        for _ in range(3):
            with pytest.raises(ConcurrentConsumptionError, match="still holds a record"):
                await asyncio.create_task(second(consumer))
        assert await consumer.position(place.tp()) == count  # nothing moved
        holder.release.set()
        await asyncio.wait_for(holder.task, 10)
        again = count - 1 if first in (by_loop, by_merge) else count
        assert holder.offsets == [*range(count), again]
        await consumer.stop()
    assert await place.committed() == again  # but for what was in hand


async def test_one_iterator_that_two_tasks_step_gives_the_second_nothing(make_place):
    """The iterator has its records at hand: it must look who steps it, record by record."""
    place = make_place()
    await place.produce(range(20))
    async with place.consumer() as consumer:
        iterator = aiter(consumer)
        assert (await anext(iterator)).offset == 0
        assert (await anext(iterator)).offset == 1

        async def step():
            return await anext(iterator)

        for _ in range(3):
            with pytest.raises(ConcurrentConsumptionError):
                await asyncio.create_task(step())
        assert (await anext(iterator)).offset == 2
        await consumer.stop()
    assert await place.committed() == 2


async def test_a_second_loop_beside_the_first_is_refused_and_takes_nothing_back(make_place):
    place = make_place()
    await place.produce(range(10))
    async with place.consumer() as consumer:
        seen = []
        is_holding, release = asyncio.Event(), asyncio.Event()

        async def loop():
            async for record in consumer:
                seen.append(record.offset)
                is_holding.set()
                await release.wait()
                if record.offset == 9:
                    return

        task = asyncio.create_task(loop())
        await asyncio.wait_for(is_holding.wait(), 20)
        with pytest.raises(ConcurrentConsumptionError):
            await asyncio.create_task(by_loop(consumer))
        release.set()
        await asyncio.wait_for(task, 20)
        assert seen == list(range(10))


async def test_tasks_may_read_one_after_the_other(make_place):
    """The one before has ended, or has committed what it held; or the same task asks, however it waits."""
    place = make_place()
    await place.produce(range(30))
    async with place.consumer() as consumer:
        for index in range(5):
            assert await asyncio.create_task(by_getone(consumer)) == index
        held = [
            await way(consumer) for way in (by_getone, by_wait_for, by_task, by_anext, by_wait_for_anext, by_getmany)
        ]
        assert held == list(range(5, 11))
        await consumer.commit()
        holder = await started(consumer, by_getone)
        await consumer.commit()
        assert await asyncio.create_task(by_getmany(consumer)) == 12
        await consumer.skip()
        holder.release.set()
        await asyncio.wait_for(holder.task, 10)
        assert holder.offsets == [11, 13]


async def test_what_was_read_is_asked_for_in_the_background(make_place):
    """aiokafka's tests do so: a task that is nothing but a request belongs to whoever made it."""
    place = make_place()
    await place.produce(range(1))
    async with place.consumer() as consumer:
        assert await by_getmany(consumer) == 0
        asking = asyncio.create_task(consumer.getmany(timeout_ms=20_000))
        await asyncio.sleep(0)
        await place.produce(["next"])
        assert next((await asking).all()).offset == 1


async def test_workers_that_name_their_partitions_do_not_meet(make_place):
    place = make_place(2)
    for number in (0, 1):
        await place.produce(range(5), number)
    async with place.consumer() as consumer:

        async def worker(number):
            return [(await consumer.getone(place.tp(number))).offset for _ in range(5)]

        assert await asyncio.gather(worker(0), worker(1)) == [list(range(5))] * 2


async def test_without_auto_ack_anybody_may_read(make_place):
    place = make_place()
    await place.produce(range(20))
    async with place.consumer(auto_ack=False) as consumer:
        holder = await started(consumer, by_getone)
        assert await asyncio.create_task(by_getone(consumer)) == 1
        iterator = aiter(consumer)

        async def step():
            return (await anext(iterator)).offset

        assert [await asyncio.create_task(step()) for _ in range(3)] == [2, 3, 4]
        holder.release.set()
        await holder.task
        await consumer.stop()
    assert await place.committed() == 0


async def test_a_request_after_stop_does_not_speak_for_another_task(make_place):
    """`stop` waits for what the holder has in hand; somebody else's request must not call it processed."""
    place = make_place()
    await place.produce(range(5))
    consumer = place.consumer()
    await consumer.start()
    holder = await started(consumer, by_getone)
    stopping = asyncio.create_task(consumer.stop(timeout_ms=2_000))
    await asyncio.sleep(0)
    with pytest.raises(Exception, match="stopped"):
        await asyncio.create_task(by_getone(consumer))
    await stopping
    holder.task.cancel()
    assert await place.committed() in (None, 0)
