"""A partition that was added after the group began to read its topic is read from its beginning by whoever gets it
first, also by a member that joins later; a group that begins to read a topic begins where its policy says.
"""

from __future__ import annotations

import asyncio

import pytest

from aiogroup._core.telemetry import events
from tests.support.kafka import Ears, eventually, take

MANUAL = {"enable_auto_commit": False}
LANES = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}
LATEST = {"auto_offset_reset": "latest"}
WAYS = pytest.mark.parametrize("settings", [{}, MANUAL, LANES], ids=["auto-commit", "by hand", "two lanes"])


async def _read(place, **settings):
    """A member of the group reads and commits a record of the first partition, and leaves."""
    async with place.consumer(**{**LATEST, **settings}) as consumer:
        await place.produce(["read"])
        assert await take(consumer, 1) == ["read"]
        await consumer.commit({place.tp(): await consumer.position(place.tp())})


async def _values(consumer, count):
    return {record.value.decode() for record in [await consumer.getone() for _ in range(count)]}


@WAYS
async def test_partitions_that_are_added_while_nobody_reads_begin_with_their_first_record(make_place, settings):
    place, ears = make_place(2), Ears()
    await place.produce(["old"])
    await _read(place, **settings)
    await place.add_partitions(4)
    await place.produce(["third"], 2)
    await place.produce(["fourth"], 3)
    async with place.consumer(**LATEST, **settings, observers=[ears]) as consumer, asyncio.timeout(10):
        assert await _values(consumer, 2) == {"third", "fourth"}
    if settings is not LANES:
        assert {each.partition for each in ears.heard(events.NewPartitionFromEarliest)} >= {2, 3}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_so_do_those_of_a_member_that_joins_after_them(make_place, strategy):
    """The one that was there has committed nothing of them."""
    place, settings = make_place(2), {**MANUAL, **LATEST, "partition_assignment_strategy": [strategy]}
    await _read(place, **settings)
    async with place.consumer(**settings, metadata_max_age_ms=1_000) as there, asyncio.timeout(30):
        await place.add_partitions(4)
        for number in range(4):
            await place.produce([f"in {number}"], number)
        async with place.consumer(**settings, metadata_max_age_ms=1_000) as newcomer:
            seen: set[str] = set()

            async def read(consumer):
                async for record in consumer:
                    seen.add(record.value.decode())

            reading = [asyncio.create_task(read(each)) for each in (there, newcomer)]
            await eventually(lambda: seen >= {"in 0", "in 2", "in 3"}, 20)
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


@WAYS
@pytest.mark.parametrize("count", [1, 3])
async def test_a_group_that_begins_to_read_a_topic_begins_where_its_policy_says(make_place, settings, count):
    """Members that begin together commit where they begin, one a little before the other."""
    place = make_place(6)
    for number in range(6):
        await place.produce(["old"], number)
    members = [place.consumer(**LATEST, **settings) for _ in range(count)]
    try:
        await asyncio.gather(*(each.start() for each in members))
        await eventually(lambda: sum(len(each.assignment()) for each in members) == 6)
        for each in members:
            for tp in each.assignment():
                assert await each.position(tp) == 1, tp
    finally:
        await asyncio.gather(*(each.stop() for each in members))


async def test_where_such_partitions_begin_can_be_set(make_place):
    place, settings = make_place(), {**LATEST, "new_partition_reset": "latest"}
    await _read(place, **settings)
    await place.add_partitions(2)
    await place.produce(["before"], 1)
    async with place.consumer(**settings) as consumer:
        assert await consumer.position(place.tp(1)) == 1


async def test_another_topic_of_the_group_begins_where_its_policy_says(make_place):
    place, other = make_place(), make_place()
    await other.produce(["old"])
    await _read(place)
    async with place.consumer(place.topic, other.topic, **LATEST) as consumer:
        assert await consumer.position(other.tp()) == 1
