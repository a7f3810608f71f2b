"""Shared by tests of recovery on real Kafka: a group that was left behind, and records by lane."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer

from tests.support.kafka import Ears

MODE: dict[str, Any] = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}
MANUAL: dict[str, Any] = {"enable_auto_commit": False}


def lanes_of(records):
    """Offsets by lane, in the order of their delivery."""
    found = {}
    for record in records.all():
        found.setdefault(record.lane, []).append(record.offset)
    return found


async def leave_at(place, committed, end):
    """Fill a fresh log with `end` records whose values are their offsets. The group has committed `committed`, and is
    gone.
    """
    await place.produce(range(end))
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): committed})


class Reading:
    """The records that consumers were given: offsets by partition, and by lane. The records of a call count as
    processed at the next call.
    """

    def __init__(self):
        self.offsets = {}
        self.lanes = {}

    def take(self, batch):
        for record in batch.all():
            self.offsets.setdefault(record.partition, []).append(record.offset)
            self.lanes.setdefault(record.lane, []).append(record.offset)

    def has(self, start, end, partition=0):
        return set(range(start, end)) <= set(self.offsets.get(partition, ()))

    async def until(self, consumer, condition, within_s=20):
        """Ask for records until the condition holds; what was given last stays in hand."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while not condition():
            assert loop.time() < until, f"not so within {within_s} s: {self.offsets}"
            self.take(await consumer.poll(200))


async def written(place, offset=None, metadata="", partition=0):
    """The group's commit as (offset, metadata). If `offset` is given, it is committed first, without a member.

    The group must have no members then.
    """
    tp = place.tp(partition)
    servers = place.cluster.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=place.group, enable_auto_commit=False) as other:
        other.assign([tp])
        if offset is not None:
            await other.commit({tp: (offset, metadata)})
    async with place.admin() as admin:
        found = (await admin.list_consumer_group_offsets(place.group))[tp]
    return found.offset, found.metadata


async def committed_with(place):
    """What the group has committed, as (offset, metadata); it may have members."""
    async with place.admin() as admin:
        found = (await admin.list_consumer_group_offsets(place.group))[place.tp()]
    return found.offset, found.metadata


async def pending_of(place, reading, **settings):
    """Where a member begins now, and everything that it then reads."""
    ears = Ears()
    async with place.consumer(**MODE, **settings, observers=[ears]) as consumer:
        ranges = consumer.lanes()[place.tp()].ranges
        end = await consumer.position(place.tp())
        await reading.until(consumer, lambda: reading.has(ranges[0][0] if ranges else end, end))
    return ranges, ears
