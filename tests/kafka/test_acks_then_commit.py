"""Acknowledged, and committed at once: a rebalance that waited for that takes the commit, too (delivery.md, rule 6)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from aiogroup._core.telemetry import events
from tests.support.kafka import Ears, eventually, take_batch, turns

COUNT = 5
BY_HAND = {"auto_ack": False, "enable_auto_commit": False}
EAGER, COOPERATIVE = "range", "cooperative-sticky"


async def all_at_once(consumer, batch):
    batch.ack()
    await consumer.commit()


async def by_name(consumer, batch):
    batch.ack()
    await consumer.commit({tp: records[-1].offset + 1 for tp, records in batch.items()})


async def one_by_one(consumer, batch):
    for record in batch.all():
        record.ack()
        await consumer.commit()


async def by_tasks(consumer, batch):
    async def work(record):
        await asyncio.sleep(0)
        record.ack()

    await asyncio.gather(*(work(record) for record in batch.all()))
    await consumer.commit()


async def by_a_pool(consumer, batch):
    queue = asyncio.Queue()

    async def work():
        while True:
            record = await queue.get()
            record.ack()
            queue.task_done()

    workers = [asyncio.create_task(work()) for _ in range(3)]
    for record in batch.all():
        queue.put_nowait(record)
    await queue.join()
    await consumer.commit()
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)


async def by_threads(consumer, batch):
    """In debug mode the loop refuses to be woken from another thread in a way that is not safe."""
    asyncio.get_running_loop().set_debug(True)
    await asyncio.gather(*(asyncio.to_thread(record.ack) for record in batch.all()))
    await consumer.commit()


async def by_hand_without_acks(consumer, batch):
    """With `auto_ack` the commit itself is what says that the batch is processed."""
    assert batch.count
    await consumer.commit()


WAYS = (all_at_once, by_name, one_by_one, by_tasks, by_a_pool, by_threads, by_hand_without_acks)


@asynccontextmanager
async def a_rebalance_that_waits_for(place, batch_count, **settings):
    """A member with a batch in hand, and a newcomer for whom it is to give partitions up."""
    ears = Ears()
    consumer = place.consumer(observers=[ears], **settings)
    other = place.consumer(**settings)
    async with consumer:
        batch = await take_batch(consumer, batch_count)
        joining = asyncio.create_task(other.start())
        if settings["partition_assignment_strategy"] == EAGER:
            await eventually(lambda: len(ears.heard(events.RebalanceStarted)) == 2)
        else:
            await eventually(lambda: "adopting" in consumer.health().why)
        await turns()
        try:
            yield consumer, batch, ears
        finally:
            asking = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
            await joining
            asking.cancel()
            await asyncio.wait([asking])
            await other.stop()


@pytest.mark.parametrize("partitions_count", [2, 4])
@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("way", WAYS)
async def test_the_commit_is_taken(make_place, way, strategy, partitions_count):
    place = make_place(partitions_count)
    for partition in range(partitions_count):
        await place.produce(range(COUNT), partition)
    settings = {**BY_HAND, "partition_assignment_strategy": strategy, "auto_ack": way is by_hand_without_acks}
    async with a_rebalance_that_waits_for(place, partitions_count * COUNT, **settings) as (consumer, batch, ears):
        await way(consumer, batch)
        assert [await place.committed(each) for each in range(partitions_count)] == [COUNT] * partitions_count
    assert not ears.heard(events.UncommittedAtRevoke)


@pytest.mark.parametrize("way", [each for each in WAYS if each is not by_hand_without_acks])
async def test_so_is_one_for_which_a_stop_waits(make_place, way):
    place, is_stopping, has_batch = make_place(2), asyncio.Event(), asyncio.Event()
    for partition in range(2):
        await place.produce(range(COUNT), partition)

    async def handling():
        batch = await take_batch(consumer, 2 * COUNT)
        has_batch.set()
        await is_stopping.wait()
        await way(consumer, batch)

    consumer = place.consumer(**BY_HAND)
    await consumer.start()
    handler = asyncio.create_task(handling())
    await has_batch.wait()
    stopping = asyncio.create_task(consumer.stop())
    await turns()
    is_stopping.set()
    await handler
    assert (await stopping).is_clean
    assert [await place.committed(each) for each in range(2)] == [COUNT] * 2
