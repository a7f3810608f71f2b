"""`static_member_map` is a real topic: clients read it but cannot write to it. It is compacted and in snapshots."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from aiogroup import Consumer
from aiogroup.embedded import Broker, BrokerRefusal, damaged, run_virtual, stable

TOPIC = "static_member_map"


async def member(broker, name):
    made = Consumer(
        "orders", group_id="billing", member_name=name, bootstrap_servers=broker.bootstrap_servers, client_id=name
    )
    await made.start()
    return made


async def restarted(broker, former, name):
    await former.stop()
    return await member(broker, name)


def test_any_client_reads_it_and_compaction_leaves_the_latest_map():
    async def program():
        async with Broker(seed=1, static_membership="draft") as broker:
            broker.create_topic("orders", 2)
            first = await member(broker, "A")
            await broker.until(stable("billing", members=1))
            first = await restarted(broker, first, "A")
            await broker.clock.pass_s(10)
            broker.compact(TOPIC)
            reader = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
            await reader.start()
            reader.assign([TopicPartition(TOPIC, 0)])
            record = await reader.getone()
            assert record.key == b"billing"
            read = json.loads(record.value)
            assert (read["version"], read["generation"]) == (41, broker.group("billing").generation)
            assert read["members"]["A"]["id"] == broker.group("billing").members[0].member_id
            assert len(broker.records(TOPIC)) == 1, "it is the only one that is left"
            await reader.stop()
            await first.stop()

    run_virtual(program())


def test_nobody_else_writes_to_it():
    async def program():
        async with Broker(seed=1, static_membership="draft") as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            with pytest.raises(KafkaError):
                await asyncio.wait_for(producer.send_and_wait(TOPIC, b"{}", key=b"billing", partition=0), 60)
            for write in (
                lambda: broker.produce(TOPIC, b"{}", key=b"billing"),
                lambda: broker.produce_many(TOPIC, [b"{}"]),
                lambda: broker.append(TOPIC, 0, damaged(values=[b"{}"])),
            ):
                with pytest.raises(BrokerRefusal, match="only the group coordinators write to static_member_map"):
                    write()
            assert broker.records(TOPIC) == []
            await producer.stop()

    run_virtual(program())


def test_max_bytes_does_not_end_a_static_group():
    async def program():
        async with Broker(seed=1, static_membership="draft", max_bytes=1) as broker:
            broker.create_topic("orders", 2)
            first = await member(broker, "A")
            await broker.until(stable("billing", members=1))
            assert len(broker.records(TOPIC)) == 1
            await first.stop()

    run_virtual(program())


def test_a_snapshot_has_the_names():
    async def program():
        async with Broker(2, seed=1, static_membership="draft") as broker:
            broker.create_topic("orders", 2)
            first = await member(broker, "A")
            await broker.until(stable("billing", members=1))
            kept, member_id = broker.snapshot(), broker.group("billing").members[0].member_id
            first = await restarted(broker, first, "A")
            await broker.clock.pass_s(10)
            assert broker.group("billing").members[0].member_id != member_id
            await first.stop()
            broker.restore(kept)
            (found,) = broker.group("billing").members
            assert (found.name, found.member_id) == ("A", member_id)

    run_virtual(program())
