"""Snapshots: the same topics, records, commits and epochs are restored, as often as a test wants."""

from __future__ import annotations

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from aiogroup import Consumer
from aiogroup.embedded import Broker, BrokerRefusal, committed, stable


@pytest.fixture
def broker():
    with Broker(nodes=3, seed=1) as broker:
        broker.create_topic("orders", partitions=2, retention_ms=77)
        broker.produce_many("orders", [b"1", b"2", b"3"], partition=0)
        yield broker


async def work(broker, count):
    """Read `count` records, commit, and leave."""
    consumer = Consumer(
        "orders",
        group_id="billing",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        seen = [bytes((await anext(consumer)).value) for _ in range(count)]
        await consumer.commit()
    return seen


async def test_the_same_state_again_and_again(broker):
    assert await work(broker, 1) == [b"1"]
    broker.move_leader("orders", 0, 3)
    state = broker.snapshot()
    assert (state.topics, state.groups) == (("orders",), ("billing",))
    for _ in range(2):
        assert await work(broker, 1) == [b"2"]
        broker.produce("orders", b"4")
        broker.delete_topic("orders")
        broker.create_topic("bills")
        broker.restore(state)
        assert [each.value for each in broker.records("orders")] == [b"1", b"2", b"3"]
        assert broker.committed("billing")["orders", 0] == 1
        assert broker.group("billing").state == "Empty"
        assert broker.snapshot().size_bytes == state.size_bytes
        with pytest.raises(BrokerRefusal, match="no topic bills"):
            broker.records("bills")


async def test_the_same_state_in_another_broker(broker):
    await work(broker, 2)
    state = broker.snapshot()
    with Broker(nodes=3) as other:
        other.nodes[0].stop()
        other.restore(state)
        assert await work(other, 1) == [b"3"]
        other.wait(committed("billing", "orders", 0, offset=3))
    assert broker.committed("billing")["orders", 0] == 2
    with Broker() as small, pytest.raises(BrokerRefusal, match="needs a node 2: make the broker with nodes=2"):
        small.restore(state)
    with Broker(nodes=3, max_bytes=10) as little, pytest.raises(BrokerRefusal, match="max_bytes"):
        little.restore(state)


@pytest.mark.parametrize(
    ("kept", "other", "told"),
    [
        ({}, {"static_membership": "draft"}, "static_membership='kafka', and this one has 'draft'"),
        ({"static_membership": "draft"}, {}, "static_membership='draft', and this one has 'kafka'"),
        (
            {"static_membership": "draft", "properties": {"offsets.topic.num.partitions": "3"}},
            {"static_membership": "draft"},
            r"in 3 partitions: make the broker with properties=\{\"offsets.topic.num.partitions\": \"3\"\}",
        ),
    ],
    ids=["to the draft", "from the draft", "other partitions"],
)
async def test_a_snapshot_that_keeps_names_elsewhere_is_refused_and_nothing_changes(kept, other, told):
    with Broker(**kept) as broker, Broker(**other) as another:
        broker.create_topic("orders")
        another.create_topic("bills")
        another.produce("bills", b"1")
        with pytest.raises(BrokerRefusal, match=told):
            another.restore(broker.snapshot())
        assert [each.value for each in another.records("bills")] == [b"1"]
        another.restore(another.snapshot())


async def test_clients_are_cut_off(broker):
    state = broker.snapshot()
    consumer = Consumer("orders", group_id="billing", bootstrap_servers=broker.bootstrap_servers)
    async with consumer:
        await broker.until(stable("billing", members=1))
        count = broker.count("JoinGroup")
        broker.restore(state)
        assert broker.group("billing").state == "Dead"
        await broker.until(lambda: broker.count("JoinGroup") > count)


async def test_what_administrators_changed_is_put_back(broker):
    state = broker.snapshot()
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "orders", {"max.message.bytes": "100"})])
    finally:
        await admin.close()
    with pytest.raises(BrokerRefusal, match="MESSAGE_TOO_LARGE"):
        broker.produce("orders", b"x" * 200)
    broker.restore(state)
    assert broker.produce("orders", b"x" * 200) == 3
