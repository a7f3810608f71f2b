"""Dead letters whose bytes are read again share a reader: none of them suffers from what is another's."""

from __future__ import annotations

import asyncio
import json

import pytest

from aiogroup import Consumer, RecordDeserializationError
from aiogroup.dead_letters import DeadLetters
from aiogroup.embedded import Broker
from aiogroup.errors import DeadLetterError
from tests.support.kafka import eventually


@pytest.fixture
async def broker():
    async with Broker() as broker:
        for topic in ("t", "u"):
            broker.create_topic(topic)
            broker.create_topic(f"dlq.g.{topic}")
        yield broker


def reading(broker, *topics, **settings):
    return Consumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        value_deserializer=json.loads,
        auto_ack=False,
        **settings,
    )


async def taken(consumer, count):
    """Records, or the errors that are raised in place of them, by topic and offset."""
    found = {}
    for _ in range(count):
        try:
            record = await consumer.getone()
        except RecordDeserializationError as error:
            record = error
            await consumer.skip(error.tp)
        found[record.topic, record.offset] = record
    consumer.pause(*consumer.assignment())
    return found


async def test_a_letter_does_not_wait_for_the_task_of_another_one(broker):
    broker.produce_many("t", [b"1", b"no json"])
    async with reading(broker, "t") as consumer, DeadLetters(consumer) as letters:
        records, is_over = await taken(consumer, 2), asyncio.Event()

        async def work():
            await letters.send(records["t", 0], KeyError("no customer"))
            await is_over.wait()

        working = asyncio.create_task(work())
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await letters.send(records["t", 1])
        is_over.set()
        await working


async def test_a_letter_has_no_error_of_another_topic(broker):
    broker.produce("t", b"1")
    broker.produce("u", b"1")
    async with reading(broker, "t", "u") as consumer, DeadLetters(consumer) as letters:
        records = await taken(consumer, 2)
        with broker.hold("Produce") as held:
            waiting = asyncio.create_task(letters.send(records["t", 0], KeyError("no customer")))
            await eventually(lambda: held.used_count)
            with broker.error("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic="t", times=None) as refused:
                await eventually(lambda: refused.used_count == 3)  # the first may be the consumer's last fetch
            other = asyncio.create_task(letters.send(records["u", 0], KeyError("no customer")))
            await asyncio.sleep(0)  # it has begun
        await asyncio.gather(waiting, other)


async def test_a_letter_of_a_letter_that_cannot_be_read_holds_up_no_letter_to_its_topic(broker):
    broker.create_topic("dlq.g.dlq.g.t")
    broker.produce("t", b"no json")
    broker.produce("dlq.g.t", b"1")
    limits = {"default_api_timeout_ms": 3_000, "request_timeout_ms": 2_000}
    async with reading(broker, "t", "dlq.g.t", **limits) as consumer, DeadLetters(consumer) as letters:
        records = await taken(consumer, 2)
        with broker.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="dlq.g.t", times=None) as refused:
            stuck = asyncio.create_task(letters.send(records["dlq.g.t", 0], KeyError("no customer")))
            await eventually(lambda: refused.used_count)
            await letters.send(records["t", 0])
            assert not stuck.done()
            with pytest.raises(DeadLetterError):
                await stuck
