"""A compacted topic under two lanes (KIP-333, point 8): the last offsets of a range hold no record, and it ends."""

from __future__ import annotations

from tests.support.brokers import clean
from tests.support.kafka import eventually
from tests.support.recovery import MANUAL, MODE, Reading

COMPACTED = {
    "cleanup.policy": "compact", "segment.ms": "100", "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.0001", "max.compaction.lag.ms": "1",
}  # fmt: skip


async def test_8_a_range_of_a_compacted_topic_ends(make_place):
    place, reading = make_place(**COMPACTED), Reading()
    async with place.producer() as producer:
        for at in range(60):
            await producer.send_and_wait(place.topic, str(at).encode(), key=b"same", partition=0)
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): 10})
    async with place.consumer(**MODE, **MANUAL) as consumer:
        assert consumer.lanes()[place.tp()].ranges == ((10, 60),)
        reading.take(await consumer.poll(5_000, 1))
        await consumer.commit()

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
