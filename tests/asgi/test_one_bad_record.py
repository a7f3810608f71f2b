"""A record at which the body of a loop fails does not keep the next consumer from the other partitions. In virtual
time.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from aiogroup import Consumer, RecordDeserializationError, TopicPartition
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual

BAD = b"bad"
COUNT = 2_000
"""More than one turn of a partition."""


class Place:
    """Three partitions with `COUNT` records each, and before those of one of them the bad record."""

    def __init__(self, broker, bad_in, count=COUNT, before=0):
        broker.create_topic("orders", 3)
        self.broker = broker
        self.bad = TopicPartition("orders", bad_in)
        broker.produce_many("orders", [*[b"good"] * before, BAD], partition=bad_in)
        for partition in range(3):
            broker.produce_many("orders", [b"good"] * count, partition=partition)
        self.processed = {partition: set() for partition in range(3)}
        self.failed_at_ms = []
        self.processed_at_failures = []

    def process(self, record):
        """Raises at the bad record, and notes what the others had got by then."""
        if record.value == BAD:
            self.note_failure()
            raise ValueError("cannot be charged")
        self.processed[record.partition].add(record.offset)

    def note_failure(self):
        self.failed_at_ms.append(self.broker.clock.now_ms)
        self.processed_at_failures.append({each: len(done) for each, done in self.processed.items()})

    def others(self, failure):
        """How many records of the other partitions were processed when the body failed for the `failure`th time."""
        processed = self.processed_at_failures[failure - 1]
        return [count for partition, count in processed.items() if partition != self.bad.partition]

    async def fail(self, times, read, **settings):
        given = {"group_id": "billing", "auto_offset_reset": "earliest", **settings}
        service = Service(
            billing=Loop(lambda: Consumer("orders", bootstrap_servers=self.broker.bootstrap_servers, **given), read)
        )
        async with service.running():
            await self.broker.until(lambda: len(self.failed_at_ms) == times, timeout_s=120)


@pytest.mark.parametrize("bad_in", [0, 1, 2])
@pytest.mark.parametrize("settings", [{}, {"enable_parallel_rebalance": True}], ids=["one lane", "two lanes"])
def test_all_that_the_others_have_is_handed_out_before_the_bad_record_comes_again(bad_in, settings):
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, bad_in)

            async def read(consumer):
                async for record in consumer:
                    place.process(record)

            await place.fail(3, read, **settings)
            assert place.others(2) == [COUNT, COUNT]
            assert broker.troubles == []

    run_virtual(script())


def test_it_comes_at_the_latest_after_as_long_as_the_restart_was_waited_for():
    """The others have more than can be processed meanwhile."""

    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0, count=10_000)

            async def read(consumer):
                async for record in consumer:
                    place.process(record)
                    await broker.clock.pass_s(0.001)

            await place.fail(4, read)
            gaps = [after - before for before, after in pairwise(place.failed_at_ms)]
            for gap, restart_ms in zip(gaps, (1_000, 2_000, 4_000), strict=True):
                assert 2 * restart_ms <= gap < 2 * restart_ms + 900, gaps
            assert min(place.others(4)) > 3_000, "both others were read"

    run_virtual(script())


def test_a_record_that_cannot_be_deserialized_waits_too():
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0)

            def checked(value):
                if value == BAD:
                    raise ValueError("no JSON")
                return value

            async def read(consumer):
                try:
                    async for record in consumer:
                        place.process(record)
                except RecordDeserializationError:
                    place.note_failure()
                    raise

            await place.fail(2, read, value_deserializer=checked)
            assert place.others(2) == [COUNT, COUNT]

    run_virtual(script())


def test_two_bad_records_do_not_keep_each_other_in_front():
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0)
            for partition in (1, 2):
                broker.produce_many("orders", [BAD, *[b"good"] * COUNT], partition=partition)

            async def read(consumer):
                async for record in consumer:
                    place.process(record)

            await place.fail(4, read)
            assert place.others(4) == [COUNT, COUNT], "all in front of their bad records"

    run_virtual(script())


def test_batches():
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0)

            async def read(consumer):
                while True:
                    for records in (await consumer.getmany(timeout_ms=1_000, max_records=100)).values():
                        for record in records:
                            place.process(record)

            await place.fail(3, read)
            assert place.others(3) == [COUNT, COUNT]

    run_virtual(script())


def test_the_next_consumer_begins_before_the_record_that_failed():
    """Nothing was committed of what was processed."""

    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0, before=5)

            async def read(consumer):
                async for record in consumer:
                    place.process(record)

            await place.fail(2, read, enable_auto_commit=False)
            assert place.others(2) == [COUNT, COUNT]

    run_virtual(script())


def test_in_a_merge_the_order_of_the_records_comes_first():
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0, count=0)
            await broker.clock.pass_s(0.01)
            for partition in range(3):
                broker.produce_many("orders", [b"good"] * COUNT, partition=partition)

            async def read(consumer):
                async for record in consumer.merged():
                    place.process(record)

            await place.fail(3, read)
            gaps = [after - before for before, after in pairwise(place.failed_at_ms)]
            assert gaps[0] < 1_900, gaps
            assert gaps[1] < 2_900, gaps
            assert place.others(3) == [0, 0], "the bad one is the oldest"

    run_virtual(script())


def test_a_partition_without_a_leader_is_waited_for_no_longer():
    async def script():
        async with Broker(seed=1) as broker:
            place = Place(broker, 0, count=0)

            async def read(consumer):
                async for record in consumer:
                    place.process(record)

            with broker.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1, times=None):
                await place.fail(3, read)
            gaps = [after - before for before, after in pairwise(place.failed_at_ms)]
            for gap, restart_ms in zip(gaps, (1_000, 2_000), strict=True):
                assert 2 * restart_ms <= gap < 2 * restart_ms + 900, gaps

    run_virtual(script())
