"""Lag with its age: how old is the knowledge of the end, and what one question costs (KIP-695)."""

from __future__ import annotations

import asyncio

from aiogroup import Lag, PartitionLag, PartitionMetadata
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.testing import Proxy
from tests.support.kafka import Place, eventually, take, turns

MANY = 1_000


async def test_lag_of_a_thousand_partitions_is_one_question_to_each_broker(kafka_cluster_3, unique_name):
    topic = unique_name("topic")
    kafka_cluster_3.create_topic(topic, MANY)
    place = Place(kafka_cluster_3, topic, unique_name("group"), MANY)
    await place.produce(range(7), 999)
    async with Proxy(kafka_cluster_3.bootstrap_servers) as proxy:
        settings = {"group_id": None, "bootstrap_servers": proxy.bootstrap_servers, "enable_auto_commit": False}
        settings["default_api_timeout_ms"] = 60_000  # the leaders of so many partitions are not there at once
        async with place.consumer(**settings) as consumer:
            await eventually(lambda: len(consumer.assignment()) == MANY)
            for tp in consumer.assignment():
                await consumer.position(tp)
            before = {node_id: proxy.count("ListOffsets", node_id) for node_id in (1, 2, 3)}
            assert await consumer.lag() == 7
            asked = {node_id: proxy.count("ListOffsets", node_id) - before[node_id] for node_id in (1, 2, 3)}
            assert asked == {1: 1, 2: 1, 3: 1}


async def test_lag_in_detail_says_the_lanes_and_each_partition(make_place):
    place = make_place(2)
    await place.produce(range(4), 0)
    async with place.consumer() as consumer:
        lag = await consumer.lag(detail=True)
        assert isinstance(lag, Lag)
        assert (lag.live, lag.catch_up, lag.total) == (4, 0, 4)
        assert {tp: each.lag for tp, each in lag.partitions.items()} == {place.tp(0): 4, place.tp(1): 0}
        assert all(0 <= each.age_ms < 5_000 for each in lag.partitions.values())
        assert await consumer.lag(detail=False) == 4


async def test_the_age_of_what_is_known_grows_until_a_broker_answers_and_silence_in_a_session_is_an_answer(
    make_place,
):
    place = make_place(2)
    await place.produce(range(3), 0)

    def ages(consumer):
        return [each.age_ms for each in consumer.lags(detail=True).values()]

    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(bootstrap_servers=proxy.bootstrap_servers) as consumer,
    ):
        await take(consumer, 3)
        await eventually(lambda: set(consumer.lags().values()) == {0})
        fetched_count = proxy.count("Fetch")
        await eventually(lambda: proxy.count("Fetch") >= fetched_count + 20)  # nothing is new in any of these
        await eventually(lambda: max(ages(consumer)) < 1_000)
        hold = proxy.hold("Fetch")
        await eventually(lambda: min(ages(consumer)) >= 1_000)
        hold.remove()
        await eventually(lambda: max(ages(consumer)) < 1_000)


async def test_what_is_not_known_has_no_age(make_place):
    place = make_place(2)
    consumer = place.unsubscribed(group_id=None, enable_auto_commit=False, auto_offset_reset="none")
    consumer.assign([place.tp(0)])
    async with consumer:
        assert consumer.lags(detail=True) == {place.tp(0): PartitionLag(None, None)}
        metrics = consumer.metrics()
        assert (metrics["records_lag_max"], metrics["records_lag_sum"]) == (None, None)


async def test_ends_that_are_not_known_are_asked_for_together(make_place):
    place = make_place(50)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"group_id": None, "bootstrap_servers": proxy.bootstrap_servers, "enable_auto_commit": False}
        settings["default_api_timeout_ms"] = 60_000  # the leaders of so many partitions are not there at once
        async with place.consumer(**settings) as consumer:
            hold = proxy.hold("Fetch")
            for tp in consumer.assignment():
                await consumer.position(tp)
            asked_count, held = proxy.count("ListOffsets"), proxy.hold("ListOffsets")
            assert set(consumer.lags().values()) == {None}
            await turns()
            assert set(consumer.lags().values()) == {None}
            held.remove()
            await eventually(lambda: set(consumer.lags().values()) == {0})
            assert proxy.count("ListOffsets") == asked_count + 1
            hold.remove()


async def test_metadata_has_partitions_without_records_and_says_when_the_answer_came(make_place):
    place = make_place(3)
    await place.produce(range(5), 0)
    async with place.consumer() as consumer:
        told = {}
        while len(told) < 3:
            before_ms = now_ms()
            batch = await consumer.poll(timeout_ms=100, max_records=2)
            for tp, each in batch.metadata().items():
                assert isinstance(each, PartitionMetadata)
                assert before_ms - 5_000 < each.received_at_ms <= now_ms()
                if tp == place.tp(0):
                    assert each.lag == each.end_offset - each.position == 5 - each.position
                else:
                    assert each == PartitionMetadata(each.received_at_ms, 0, 0, 0, 0)
            told |= batch.metadata()
        assert told.keys() == {place.tp(partition) for partition in range(3)}


async def test_a_poll_without_a_time_out_does_not_return_for_metadata(make_place):
    place = make_place(2)
    async with place.consumer() as consumer:
        polling = asyncio.create_task(consumer.poll())
        await eventually(lambda: set(consumer.lags().values()) == {0})  # answers came
        await turns()
        assert not polling.done()
        await place.produce(["it"], 1)
        batch = await polling
        assert [record.value for record in batch.all()] == [b"it"]
        assert batch.metadata()[place.tp(0)].lag == 0
