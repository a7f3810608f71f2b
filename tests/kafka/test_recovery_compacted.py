"""A compacted topic under two lanes (KIP-333, point 8): the last offsets of a range hold no record, and it ends."""

from __future__ import annotations

import asyncio

from confluent_kafka import admin

from tests.support.brokers import clean
from tests.support.kafka import eventually
from tests.support.recovery import MANUAL, MODE, Reading

CLEANED_AT_ONCE = {
    "segment.ms": "100", "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.0001", "max.compaction.lag.ms": "1",
}  # fmt: skip


async def test_8_a_range_of_a_compacted_topic_ends(make_place):
    place, reading = make_place(**CLEANED_AT_ONCE), Reading()
    async with place.producer() as producer:
        for at in range(60):
            await producer.send_and_wait(place.topic, str(at).encode(), key=b"same", partition=0)
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 10})
    async with place.consumer(**MODE, **MANUAL) as consumer:
        assert consumer.lanes()[place.tp()].ranges == ((10, 60),)
        reading.take(await consumer.poll(5_000, 1))
        await consumer.commit()
    await asyncio.to_thread(begin_to_compact, place)  # earlier, the cleaner could take what the first reader is to read

    async def is_compacted():
        async with place.producer() as producer:  # what rolls the segment, and replaces what the range ended with
            await producer.send_and_wait(place.topic, b"newest", key=b"same", partition=0)
        clean(place.cluster, place.topic)
        async with place.consumer(group_id=None) as reader:
            return (await reader.getone()).offset > 50

    await eventually(is_compacted, 90)
    async with place.consumer(**MODE) as consumer:
        end = await consumer.position(place.tp())
        await eventually(lambda: caught_up(consumer, reading), 30)
        assert reading.offsets[0][0] == 10
        assert reading.offsets[0] == sorted(set(reading.offsets[0]))
        assert len(reading.offsets[0]) < 30
        await consumer.skip()
        await eventually(lambda: place.committed_is(end))


async def caught_up(consumer, reading):
    reading.take(await consumer.poll(200))
    return not consumer.child_consumer_is_alive()


def begin_to_compact(place):
    is_set = admin.AlterConfigOpType.SET
    entry = admin.ConfigEntry("cleanup.policy", "compact", incremental_operation=is_set)
    topic = admin.ConfigResource(admin.ResourceType.TOPIC, place.topic)
    topic.add_incremental_config(entry)
    client = admin.AdminClient({"bootstrap.servers": place.cluster.bootstrap_servers})
    (altered,) = client.incremental_alter_configs([topic]).values()
    altered.result(30)
