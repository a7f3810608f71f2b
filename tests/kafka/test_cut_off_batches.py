"""Batches that no answer to Fetch ever holds as a whole: told, backed off from, and the other partitions go on."""

from __future__ import annotations

import asyncio
import struct

import pytest

from aiogroup import RecordTooLargeError, TopicPartition
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.telemetry.events import FetchFailed
from aiogroup.testing import Proxy
from tests.kafka.test_fetching_errors import VALUES, _spoil_records
from tests.support.kafka import Ears, eventually, turns
from tests.support.reading import alone, fill, read


@pytest.fixture
async def two(kafka_cluster, unique_name):
    """Two partitions with two batches of 100 records each."""
    topic = unique_name("two")
    kafka_cluster.create_topic(topic, 2)
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for tp in tps:
        for _ in range(2):
            await fill(kafka_cluster.bootstrap_servers, tp, VALUES)
    return tps


def says(length):
    """The first batch of the answer announces `length`, and only what it has comes; the others are as they were."""
    return lambda records: records[:8] + struct.pack(">i", length) + records[12:]


def first_only(change):
    """Only answers from the log's start are changed."""
    return lambda records: change(records) if records[:8] == bytes(8) else records


def grows():
    """Each time it announces more."""
    lengths = iter(range(2_000_000, 100_000_000, 1_000_000))
    return lambda records: says(next(lengths))(records)


CHANGES = {
    "a length that never comes": lambda: says(3_000_000),
    "a length that grows": grows,
    "less than a header": lambda: lambda records: records[:5],
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("settings", [{}, {"enable_auto_commit": False, "max_partition_fetch_bytes": 64}])
async def test_a_batch_that_never_comes_whole_is_reported_and_a_seek_goes_on_after(kafka_cluster, two, kind, settings):
    bad, fine = two
    ears = Ears()
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        change = first_only(CHANGES[kind]()) if kind != "less than a header" else CHANGES[kind]()
        proxy.rewrite(FetchRequest, _spoil_records(bad, proxy, change))
        consumer = alone(proxy.bootstrap_servers, observers=[ears], **settings)
        consumer.assign([bad, fine])
        async with consumer:
            seen, errors = [], []
            async with asyncio.timeout(10):
                while len(seen) < 200 or not errors:
                    try:
                        seen.append(await consumer.getone())
                    except RecordTooLargeError as error:
                        errors.append(error)
            assert {record.partition for record in seen} == {1}
            for text in (f"{bad.topic}-0", "offset 0", "max_partition_fetch_bytes"):
                assert text in str(errors[0])
            assert (errors[0].tp, errors[0].offset) == (bad, 0)
            assert await consumer.position(bad) == 0
            with pytest.raises(RecordTooLargeError):  # for as long as it is so
                await asyncio.wait_for(consumer.getone(bad), 10)
            before_count = proxy.count(FetchRequest)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await consumer.getone(fine)
            assert proxy.count(FetchRequest) - before_count <= 15
            told = ears.heard(FetchFailed)
            assert {(event.topic, event.partition) for event in told} == {tuple(bad)}
            assert "batch" in told[0].why
            if kind == "less than a header":
                proxy.clear()
            consumer.seek(bad, 100)
            assert [record.offset for record in await read(consumer, 100)] == list(range(100, 200))


async def test_it_heals_by_itself_when_the_broker_does(kafka_cluster, two):
    bad, _ = two
    ears = Ears()
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _spoil_records(bad, proxy, says(3_000_000)))
        consumer = alone(proxy.bootstrap_servers, observers=[ears])
        consumer.assign([bad])
        async with consumer:
            with pytest.raises(RecordTooLargeError):
                await asyncio.wait_for(consumer.getone(), 10)
            proxy.clear()
            await eventually(lambda: consumer.metrics()["buffered_bytes"] > 0)
            assert [record.offset for record in await read(consumer, 200)] == list(range(200))
            told_count = len(ears.heard(FetchFailed))
            await turns()
            assert len(ears.heard(FetchFailed)) == told_count


async def test_good_records_come_before_the_error(kafka_cluster, two):
    bad, _ = two

    def second(records):
        at = 12 + struct.unpack_from(">i", records, 8)[0]
        if records[:8] == bytes(8):
            return records[:at] + says(3_000_000)(records[at:])
        return says(3_000_000)(records)

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(FetchRequest, _spoil_records(bad, proxy, second))
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([bad])
        async with consumer:
            assert [record.offset for record in await read(consumer, 100)] == list(range(100))
            with pytest.raises(RecordTooLargeError, match="offset 100"):
                await asyncio.wait_for(consumer.getone(), 10)
