"""A topic that is deleted and recreated is another topic: what is produced to it is read from its first record on."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import BrokerError
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take
from tests.support.recovery import MANUAL, MODE, leave_at


async def _is_committed(place, offset):
    return await place.committed() == offset


async def test_a_position_of_the_old_one_means_nothing_in_the_new_one(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    consumer = place.unsubscribed(group_id=None, observers=[ears])
    consumer.assign([place.tp()])
    async with consumer:
        assert await take(consumer, 3) == ["0", "1", "2"]
        await place.delete()
        await place.make()
        await place.produce([f"new {number}" for number in range(10)])
        assert await take(consumer, 10) == [f"new {number}" for number in range(10)]
        (reset,) = ears.heard(events.OffsetReset)
        assert (reset.offset, reset.why) == (0, "the topic was deleted and recreated")


async def test_a_member_reads_it_from_its_first_record_whatever_the_policy(make_place):
    place, produced = make_place(), asyncio.Event()
    await place.produce(range(3))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "auto_offset_reset": "latest"}
        async with place.consumer(**settings) as consumer:
            asking = asyncio.create_task(consumer.getone())
            await place.produce(["old"])
            assert (await asyncio.wait_for(asking, 10)).value == b"old"
            asking = asyncio.create_task(consumer.getone())
            await eventually(lambda: _is_committed(place, 4))  # a commit to a deleted topic holds a rebalance up
            await place.delete()
            await eventually(lambda: not consumer.assignment())
            proxy.hold(MetadataRequest, until=produced)  # it learns of the new one when records are there
            await place.make()
            await place.produce([f"new {number}" for number in range(10)])
            produced.set()
            proxy.clear()
            assert (await asyncio.wait_for(asking, 10)).value == b"new 0"
            assert await take(consumer, 9) == [f"new {number}" for number in range(1, 10)]


async def test_a_head_that_waits_for_records_of_the_old_one_waits_no_more(make_place):
    """KIP-333, ordered: its buffer is full, so that nothing is asked of the partition but by the catch-up lane."""
    place, produced, values = make_place(), asyncio.Event(), []
    await leave_at(place, committed=10, end=3_000)
    small = {"max_partition_fetch_bytes": 4_096, "parallel_buffer_bytes": 8_192, "max_poll_records": 5}
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {**MODE, **MANUAL, **small, "parallel_order": "ordered"}
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **settings) as consumer:
            await place.produce(["head" * 100] * 100)
            await consumer.poll(5_000)
            await eventually(lambda: consumer.metrics()["waiting_bytes"] >= 4_096)
            proxy.hold(MetadataRequest, until=produced)
            await place.delete()
            await place.make()
            await place.produce([f"new {number}" for number in range(10)])
            produced.set()
            proxy.clear()
            async with asyncio.timeout(30):
                while values[-10:] != [f"new {number}" for number in range(10)]:
                    values += [record.value.decode() for record in (await consumer.poll(1_000)).all()]


@pytest.mark.parametrize("is_by_pattern", [True, False], ids=["pattern", "name"])
async def test_a_commit_of_a_deleted_topic_ends_soon(make_place, is_by_pattern):
    """Of a record that is in hand, so that the group's hand-over waits for it."""
    place = make_place()
    await place.produce(range(3))
    consumer = place.unsubscribed(enable_auto_commit=False, metadata_max_age_ms=300)
    if is_by_pattern:
        consumer.subscribe(pattern=f"{place.topic}.*")
    else:
        consumer.subscribe([place.topic])
    async with consumer:
        await take(consumer, 3)
        await place.delete()
        await eventually(lambda: consumer.partitions_for_topic(place.topic) is None)
        with pytest.raises(BrokerError, match="the topic is deleted"):
            async with asyncio.timeout(10):
                await consumer.commit()
        async with asyncio.timeout(20):
            while consumer.assignment():
                await consumer.getmany(timeout_ms=100)


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "not noticed"])
async def test_offsets_of_a_deleted_topic_do_not_hold_up_the_good_bye(make_place, is_noticed):
    place, listener, ears = make_place(), Listener(), Ears()
    await place.produce(range(3))
    async with Proxy(place.cluster.bootstrap_servers) as proxy, place.admin() as admin:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "observers": [ears]}
        consumer = place.unsubscribed(auto_commit_interval_ms=600_000, session_timeout_ms=60_000, **settings)
        consumer.subscribe([place.topic], listener=listener)
        await consumer.start()
        await take(consumer, 3)
        if not is_noticed:
            proxy.drop(MetadataRequest)
        await place.delete()  # until then a commit succeeds
        if is_noticed:
            await eventually(lambda: ears.heard(events.RebalanceStarted)[1:])
        report = await consumer.stop(timeout_ms=4_000)
        assert report.not_committed == {place.tp(): 2}
        assert any(("the topic is deleted" if is_noticed else "not done in time") in why for why in report.problems)
        assert listener.calls[1:] == [("revoked", frozenset({place.tp()}))]
        (answer,) = await admin.describe_consumer_groups([place.group])
        assert not answer.to_object()["groups"][0]["members"]
