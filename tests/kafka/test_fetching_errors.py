"""Wrong answers to Fetch: each is backed off from, nothing is lost, other partitions go on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import struct

import pytest

from aiogroup import RecordDeserializationError, Records, TopicAuthorizationError, TopicPartition
from aiogroup._core.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, PartitionData
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.telemetry.events import FetchFailed, OffsetReset
from aiogroup.testing import CUT, Proxy, Raw
from tests.support.kafka import Ears, eventually
from tests.support.reading import alone, fill, read

VALUES = [b"%d" % number for number in range(100)]
REFRESHED = {6, 56, 74, 78, 9, 3, 5, 100, 103}
"""Codes that say that what we know of the cluster may be old (FetchCollector.handleInitializeErrors)."""


@pytest.fixture
async def two(kafka_cluster, unique_name):
    """Two partitions with a backlog each."""
    topic = unique_name("two")
    kafka_cluster.create_topic(topic, 2)
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for tp in tps:
        await fill(kafka_cluster.bootstrap_servers, tp, VALUES)
    return tps


def _change(tp, proxy, change):
    """A rule that changes what each answer says of one partition."""

    def spoil(exchange):
        response = exchange.response
        topics = []
        for topic in response.responses:
            name = topic.topic or proxy.topic_names.get(topic.topic_id)
            partitions = tuple(
                change(each) if (name, each.partition_index) == tuple(tp) else each for each in topic.partitions
            )
            topics.append(dataclasses.replace(topic, partitions=partitions))
        return dataclasses.replace(response, responses=tuple(topics))

    return spoil


def _fail(tp, proxy, code):
    """Each fetch of the partition is answered with an error."""
    return _change(tp, proxy, lambda each: dataclasses.replace(each, error_code=code, records=b"", high_watermark=-1))


async def _asked_on(ask, records_count, errors_count):
    """At least so many records and errors of partitions, by asking on whatever was raised."""
    seen, errors = [], []
    async with asyncio.timeout(10):
        while len(seen) < records_count or len(errors) < errors_count:
            try:
                found = await ask()
            except (RecordDeserializationError, TopicAuthorizationError) as error:
                errors.append(error)
            else:
                seen += found.all() if isinstance(found, Records) else [found]
    return seen, errors


def _spoil_records(tp, proxy, change):
    """The record bytes of the partition are changed."""
    return _change(
        tp,
        proxy,
        lambda each: dataclasses.replace(each, records=change(bytes(each.records))) if each.records else each,
    )


def _out_of_range(ears: Ears) -> list[OffsetReset]:
    return ears.heard(OffsetReset)


@pytest.mark.parametrize("code", [6, 56, 74, 76, 78, 9, 3, 2, 5, -1, 100, 103])
async def test_every_error_of_a_partition_is_backed_off_from(kafka_cluster, two, code):
    bad, fine = two
    ears = Ears()
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _fail(bad, proxy, code))
        consumer = alone(proxy.bootstrap_servers, observers=[ears], auto_offset_reset="latest")
        consumer.assign([bad, fine])
        async with consumer:
            await consumer.seek_to_beginning()
            assert {record.partition for record in await read(consumer, 100)} == {1}
            before, metadata_before = proxy.count(FetchRequest), proxy.count(MetadataRequest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.8):
                    await consumer.getone()
            assert proxy.count(FetchRequest) - before <= 15
            assert proxy.count(MetadataRequest) - metadata_before <= 15
            await eventually(lambda: len(ears.heard(FetchFailed)) >= 3)
            if code in REFRESHED:
                await eventually(lambda: proxy.count(MetadataRequest) >= 4)
            else:
                assert proxy.count(MetadataRequest) <= 2  # to start, and to follow `assign`
            assert {event.partition for event in ears.heard(FetchFailed)} == {0}
            proxy.clear()
            records = await read(consumer, 100)
    assert [record.value for record in records] == VALUES
    assert {record.partition for record in records} == {0}
    assert not _out_of_range(ears)


async def test_a_topic_that_may_not_be_read_is_reported_and_the_other_goes_on(kafka_cluster, two):
    bad, fine = two
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _fail(bad, proxy, 29))
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([bad, fine])
        async with consumer:
            seen, errors = await _asked_on(consumer.getone, 100, 1)
            assert {record.partition for record in seen} == {1}
            assert errors[0].topics == {bad.topic}
            assert proxy.count(FetchRequest) < 30


@pytest.mark.parametrize("code", [-1, 70, 71, 42])
async def test_an_error_of_the_whole_answer_is_backed_off_from(kafka_cluster, two, code):
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(
            FetchRequest, lambda exchange: dataclasses.replace(exchange.response, error_code=code, responses=())
        )
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign(two)
        async with consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await consumer.getone()
            assert 1 <= proxy.count(FetchRequest) <= 12
            proxy.clear()
            assert len(await read(consumer, 200)) == 200


# Bytes that are not Kafka.

SPOILED = {
    "garbage": lambda exchange: exchange.answered[:4] + b"\xfe" * 200,
    "empty": lambda exchange: exchange.answered[:4],
    "short": lambda exchange: exchange.answered[: len(exchange.answered) // 2],
    "long": lambda exchange: exchange.answered + b"\x00" * 7,
    "cut": lambda exchange: CUT,
    "another correlation id": lambda exchange: struct.pack(">i", 77_777) + exchange.answered[4:],
    "huge": lambda exchange: Raw(struct.pack(">i", 0x7FFF_FFFF) + b"x" * 100),
    "negative": lambda exchange: Raw(struct.pack(">i", -5) + b"x" * 100),
    "not a frame": lambda exchange: Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
}


@pytest.mark.parametrize("how", SPOILED)
async def test_bytes_that_are_not_kafka_cost_a_connection(kafka_cluster, two, how):
    ears = Ears()
    spoiled_count = 0

    def spoil(exchange):
        nonlocal spoiled_count
        spoiled_count += 1
        return SPOILED[how](exchange) if spoiled_count <= 3 else None

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, spoil)
        consumer = alone(proxy.bootstrap_servers, observers=[ears])
        consumer.assign(two)
        async with consumer:
            records = await read(consumer, 200, within_s=10)
    for tp in two:
        assert [record.value for record in records if record.topic_partition == tp] == VALUES
    assert len(ears.heard(FetchFailed)) == 3
    assert not _out_of_range(ears)


async def test_an_answer_that_stops_in_the_middle_ends_by_the_time_out(kafka_cluster, two):
    ears = Ears()
    spoiled_count = 0

    def spoil(exchange):
        nonlocal spoiled_count
        spoiled_count += 1
        # The frame is announced whole, and half of it never comes.
        whole = struct.pack(">i", len(exchange.answered)) + exchange.answered
        return Raw(whole[: len(whole) // 2]) if spoiled_count == 1 else None

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, spoil)
        consumer = alone(proxy.bootstrap_servers, observers=[ears], request_timeout_ms=1_000)
        consumer.assign(two)
        async with consumer:
            assert len(await read(consumer, 200, within_s=10)) == 200
    assert ears.heard(FetchFailed)


# Poison.


def _flip_last(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 0xFF])


async def test_a_wrong_checksum_sticks_to_its_partition_until_a_seek(kafka_cluster, two):
    bad, fine = two
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _spoil_records(bad, proxy, _flip_last))
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([bad, fine])
        async with consumer:
            seen, errors = await _asked_on(lambda: consumer.getmany(timeout_ms=500, max_records=30), 100, 1)
            poisoned = errors[0]
            # The producer may have made several batches: those before the last are good.
            good = [record.value for record in seen if record.partition == 0]
            assert good == VALUES[: poisoned.offset]
            assert (poisoned.topic, poisoned.partition) == tuple(bad)
            assert "checksum" in str(poisoned)
            assert await consumer.position(bad) == poisoned.offset
            assert [record.value for record in seen if record.partition == 1] == VALUES
            proxy.clear()
            consumer.seek(bad, poisoned.offset)  # it was the line, not the disk
            assert [record.value for record in await read(consumer, 100 - len(good))] == VALUES[poisoned.offset :]


@pytest.mark.parametrize(
    "change", [lambda r: r[:8] + b"\x7f\xff\xff\xff" + r[12:], lambda r: r[:16] + b"\x09" + r[17:]]
)
async def test_a_batch_that_cannot_be_one_sticks_to_its_partition(kafka_cluster, two, change):
    bad, fine = two
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _spoil_records(bad, proxy, change))
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([bad, fine])
        async with consumer:
            seen, errors = await _asked_on(consumer.getone, 100, 1)
            assert {record.partition for record in seen} == {1}
            assert (errors[0].tp, errors[0].offset) == (bad, 0)
            proxy.clear()

            async def from_the_beginning():
                consumer.seek(bad, 0)
                return [record.value for record in await read(consumer, 100)]

            try:
                values = await from_the_beginning()
            except (
                RecordDeserializationError
            ):  # what seems to be cut off is fetched twice, and both answers were spoiled
                values = await from_the_beginning()
            assert values == VALUES


async def test_a_deserializer_that_raises_gives_the_good_ones_first(kafka_cluster, unique_name):
    servers, topic = kafka_cluster.bootstrap_servers, unique_name("poison")
    kafka_cluster.create_topic(topic, 2)
    bad, fine = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(servers, bad, [b"1", b"2", b"no number", b"4", b"5"])
    await fill(servers, fine, [b"10", b"20"])
    consumer = alone(servers, value_deserializer=int, max_poll_records=10)
    consumer.assign([bad, fine])
    async with consumer:
        seen, errors = await _asked_on(lambda: consumer.getmany(timeout_ms=500), 4, 2)
        assert [record.value for record in seen if record.partition == 0] == [1, 2]
        assert [record.value for record in seen if record.partition == 1] == [10, 20]
        error = errors[0]
        assert (error.topic, error.partition, error.offset) == (topic, 0, 2)
        assert (error.key, error.value) == (None, b"no number")
        assert isinstance(error.__cause__, ValueError)
        assert await consumer.position(bad) == 2
        consumer.seek(bad, 3)
        assert [record.value for record in await read(consumer, 2)] == [4, 5]


async def test_async_for_raises_at_the_poison_and_goes_on_after_it(kafka_cluster, unique_name):
    servers, tp = kafka_cluster.bootstrap_servers, TopicPartition(unique_name("poison"), 0)
    kafka_cluster.create_topic(tp.topic)
    await fill(servers, tp, [b"1", b"x", b"y", b"2"])
    consumer = alone(servers, value_deserializer=int)
    consumer.assign([tp])
    seen = []
    async with consumer, asyncio.timeout(10):
        while len(seen) < 2:
            try:
                async for record in consumer:
                    seen.append(record.value)
                    if len(seen) == 2:
                        break
            except RecordDeserializationError as error:
                consumer.seek(error.tp, error.offset + 1)
    assert seen == [1, 2]


# Out of range.


async def test_out_of_range_while_older_records_are_buffered_loses_none_of_them(kafka_cluster, two):
    """The error is about the place behind what is buffered: the position is still good."""
    first, _ = two
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:

        def spoil(exchange):
            if not exchange.request.topics or exchange.request.topics[0].partitions[0].fetch_offset == 0:
                return None
            asked = exchange.request.topics[0]
            partition = PartitionData(asked.partitions[0].partition, 1, -1)
            topic = FetchableTopicResponse(asked.topic, asked.topic_id, (partition,))
            return dataclasses.replace(exchange.response, responses=(topic,))

        ears = Ears()
        proxy.rewrite(FetchRequest, spoil)
        consumer = alone(proxy.bootstrap_servers, observers=[ears])
        consumer.assign([first])
        async with consumer:
            some = (await consumer.getmany(timeout_ms=5_000, max_records=10)).all()
            assert [record.value for record in some] == VALUES[:10]
            await eventually(lambda: ears.heard(FetchFailed))
            assert not _out_of_range(ears)
            proxy.clear()
            assert [record.value for record in await read(consumer, 90)] == VALUES[10:]
