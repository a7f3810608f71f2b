"""Lag: local or asked now, measured to what can be read, and unknown is never 0 (delivery.md, "Lag")."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import IllegalStateError, TopicPartition
from tests.support.kafka import Place, eventually, take, turns


async def test_current_lag_follows_what_is_delivered(make_place):
    place = make_place(2)
    await place.produce(range(10), 0)
    async with place.consumer() as consumer:
        await take(consumer, 4)
        assert consumer.current_lag(place.tp(0)) == 6
        await eventually(lambda: consumer.lags() == {place.tp(0): 6, place.tp(1): 0})
        await place.produce(range(5), 1)
        await eventually(lambda: consumer.current_lag(place.tp(1)) == 5)
        count = 0
        async for _ in consumer:
            count += 1
            if count == 11:
                break
        assert consumer.lags() == {place.tp(0): 0, place.tp(1): 0}


async def test_it_is_never_a_remote_call_and_unknown_is_none(cluster_1, unique_name):
    place = Place(cluster_1, unique_name("topic"), unique_name("group"), 2)
    cluster_1.create_topic(place.topic, 2)
    await place.produce(range(3))
    consumer = place.unsubscribed(group_id=None, enable_auto_commit=False, auto_offset_reset="none")
    consumer.assign([place.tp(0), place.tp(1)])
    async with consumer:
        assert consumer.lags() == {place.tp(0): None, place.tp(1): None}  # no position
        cluster_1.nodes[0].pause()
        try:
            consumer.seek(place.tp(0), 0)
            await turns()
            assert consumer.current_lag(place.tp(0)) is None  # no end offset
            assert consumer.lags() == {place.tp(0): None, place.tp(1): None}
            assert consumer.metrics()["records_lag_max"] is None
        finally:
            cluster_1.nodes[0].resume()
        await eventually(lambda: consumer.current_lag(place.tp(0)) == 3)
        assert consumer.current_lag(place.tp(1)) is None


async def test_not_assigned_is_an_error_and_not_a_number(make_place):
    place = make_place()
    async with place.consumer() as consumer:
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.current_lag(TopicPartition(place.topic, 7))
        with pytest.raises(IllegalStateError):
            consumer.current_lag(TopicPartition("another", 0))
    consumer = place.unsubscribed()
    async with consumer:
        assert consumer.lags() == {}
        with pytest.raises(IllegalStateError):
            await consumer.lag()


async def test_lag_asks_the_brokers_now(make_place):
    place = make_place(2)
    await place.produce(range(4), 0)
    await place.produce(range(3), 1)
    async with place.consumer() as consumer:
        consumer.pause(*consumer.assignment())
        assert await consumer.lag() == 7
        await place.produce(range(2), 1)
        assert await consumer.lag() == 9
        consumer.seek(place.tp(0), 3)
        assert await consumer.lag() == 6


async def test_many_tasks_may_ask_while_records_are_read(make_place):
    place = make_place(3)
    for partition in range(3):
        await place.produce(range(100), partition)
    async with place.consumer() as consumer:

        async def ask():
            for _ in range(5):
                assert 0 <= await consumer.lag() <= 300
                assert all(lag is None or 0 <= lag <= 100 for lag in consumer.lags().values())

        asking = [asyncio.create_task(ask()) for _ in range(5)]
        await take(consumer, 300)
        await asyncio.gather(*asking)
        assert await consumer.lag() == 0


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_it_is_measured_to_what_can_be_read(make_place, isolation):
    place = make_place()
    await place.produce(range(2))
    async with (
        place.producer(transactional_id=place.topic) as producer,
        place.consumer(isolation_level=isolation) as consumer,
    ):
        await producer.begin_transaction()
        for value in (b"2", b"3"):
            await producer.send_and_wait(place.topic, value, partition=0)
        is_open = 0 if isolation == "read_committed" else 2
        await take(consumer, 2 + is_open)
        assert (await consumer.end_offsets([place.tp()]))[place.tp()] == 2 + is_open
        assert await consumer.lag() == 0
        assert consumer.current_lag(place.tp()) == 0
        await producer.abort_transaction()
        asking = asyncio.create_task(consumer.getone())
        await eventually(lambda: _position(consumer, place.tp(), 5))  # two records and a marker
        assert await consumer.lag() == 0
        assert consumer.current_lag(place.tp()) == 0
        asking.cancel()


async def _position(consumer, tp, offset):
    return await consumer.position(tp) == offset
