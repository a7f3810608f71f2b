"""Transactions: what is aborted or open is not read under `read_committed`, and positions go past the markers."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry.events import OffsetReset
from tests.support.kafka import Ears, eventually
from tests.support.reading import alone, fill, producing, read


@pytest.fixture
async def tp(kafka_cluster, unique_name):
    tp = TopicPartition(unique_name("tx"), 0)
    kafka_cluster.create_topic(tp.topic)
    return tp


async def _transaction(producer, tp, values, *, abort=False):
    await producer.begin_transaction()
    for value in values:
        await producer.send_and_wait(tp.topic, value, partition=tp.partition)
    await (producer.abort_transaction() if abort else producer.commit_transaction())


async def test_aborted_records_are_read_only_when_uncommitted_ones_are(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    async with producing(servers, transactional_id=unique_name("id")) as producer:
        await _transaction(producer, tp, [b"1", b"2"])  # 0, 1, marker 2
        await _transaction(producer, tp, [b"bad", b"worse"], abort=True)  # 3, 4, marker 5
        await _transaction(producer, tp, [b"3"])  # 6, marker 7
    end = 8
    for level, expected in (
        ("read_committed", [b"1", b"2", b"3"]),
        ("read_uncommitted", [b"1", b"2", b"bad", b"worse", b"3"]),
    ):
        group = unique_name("group")
        told = Ears()
        consumer = Consumer(
            tp.topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", isolation_level=level,
            observers=[told],
        )  # fmt: skip
        async with consumer:
            records = await read(consumer, len(expected))
            assert [record.value for record in records] == expected
            await consumer.getmany(timeout_ms=50)

            async def at_end(consumer=consumer):
                await consumer.getmany(timeout_ms=50)
                return await consumer.position(tp) == end

            await eventually(at_end)
            assert await consumer.lag() == 0
            assert consumer.current_lag(tp) == 0
            assert (await consumer.end_offsets([tp]))[tp] == end
            await consumer.commit()
            assert await consumer.committed(tp) == end


async def test_async_for_and_auto_commit_go_past_markers(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    async with producing(servers, transactional_id=unique_name("id")) as producer:
        await _transaction(producer, tp, [b"1"])
        await _transaction(producer, tp, [b"bad"], abort=True)
    consumer = Consumer(
        tp.topic, bootstrap_servers=servers, group_id=unique_name("group"), auto_offset_reset="earliest",
        isolation_level="read_committed", auto_commit_interval_ms=100,
    )  # fmt: skip
    async with consumer:

        async def work():
            return [record.value async for record in consumer]

        working = asyncio.ensure_future(work())

        async def all_committed():
            return await consumer.committed(tp) == 4

        await eventually(all_committed)
        assert consumer.current_lag(tp) == 0
        await consumer.stop()
        assert await working == [b"1"]


async def test_an_open_transaction_holds_back_what_follows(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, [b"0"])
    committed = alone(servers, isolation_level="read_committed")
    committed.assign([tp])
    uncommitted = alone(servers)
    uncommitted.assign([tp])
    async with producing(servers, transactional_id=unique_name("id")) as producer, committed, uncommitted:
        await producer.begin_transaction()
        await producer.send_and_wait(tp.topic, b"open", partition=0)
        await fill(servers, tp, [b"behind"])
        assert [record.value for record in await read(uncommitted, 3)] == [b"0", b"open", b"behind"]
        assert [record.value for record in await read(committed, 1)] == [b"0"]
        assert not await committed.getmany(timeout_ms=700)
        assert await committed.position(tp) == 1
        assert await committed.lag() == 0  # to the last stable offset
        assert await uncommitted.lag() == 0
        assert (await committed.end_offsets([tp]))[tp] == 1
        assert (await uncommitted.end_offsets([tp]))[tp] == 3
        await eventually(lambda: committed.last_stable_offset(tp) == 1)
        await producer.commit_transaction()
        assert [record.value for record in await read(committed, 2)] == [b"open", b"behind"]


async def test_seek_to_end_under_read_committed_stops_before_an_open_transaction(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    await fill(servers, tp, [b"0"])
    consumer = alone(servers, isolation_level="read_committed")
    consumer.assign([tp])
    async with producing(servers, transactional_id=unique_name("id")) as producer, consumer:
        await producer.begin_transaction()
        await producer.send_and_wait(tp.topic, b"open", partition=0)
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 1
        await producer.commit_transaction()
        assert [record.value for record in await read(consumer, 1)] == [b"open"]


async def test_interleaved_transactions_are_kept_apart(kafka_cluster, unique_name, tp):
    servers = kafka_cluster.bootstrap_servers
    async with (
        producing(servers, transactional_id=unique_name("a")) as good,
        producing(servers, transactional_id=unique_name("b")) as bad,
    ):
        for _ in range(3):
            await good.begin_transaction()
            await bad.begin_transaction()
            for number in range(20):
                await bad.send_and_wait(tp.topic, b"bad", partition=0)
                await good.send_and_wait(tp.topic, b"good %d" % number, partition=0)
            await bad.abort_transaction()
            await good.commit_transaction()
    consumer = alone(servers, isolation_level="read_committed", max_partition_fetch_bytes=500)
    consumer.assign([tp])
    async with consumer:
        values = [record.value for record in await read(consumer, 60)]
    assert values == [b"good %d" % number for _ in range(3) for number in range(20)]


async def test_a_pending_transactional_commit_is_waited_for(kafka_cluster, unique_name, tp):
    """KIP-447: the offset that a transaction is about to commit counts, not the one before it."""
    servers, group = kafka_cluster.bootstrap_servers, unique_name("group")
    await fill(servers, tp, [b"%d" % number for number in range(10)])
    settings = {"bootstrap_servers": servers, "group_id": group, "auto_offset_reset": "latest"}
    async with Consumer(enable_auto_commit=False, **settings) as first:
        first.assign([tp])
        await first.commit({tp: 2})
    async with producing(servers, transactional_id=unique_name("id")) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({tp: 7}, group)
        told = Ears()
        consumer = Consumer(enable_auto_commit=False, observers=[told], **settings)
        consumer.assign([tp])
        async with consumer:
            position = asyncio.ensure_future(consumer.position(tp))
            done, _ = await asyncio.wait({position}, timeout=1)
            assert not done
            await producer.commit_transaction()
            assert await asyncio.wait_for(position, 15) == 7
            assert [record.value for record in await read(consumer, 3)] == [b"7", b"8", b"9"]
            assert not told.heard(OffsetReset)
