"""Look-ups about topics that the consumer does not read: their metadata is nobody's concern but the look-up's."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.embedded import Broker, run_virtual
from tests.support.kafka import Ears

TP = TopicPartition("other", 0)
CALLS = ["beginning_offsets", "end_offsets", "offsets_for_times"]


@pytest.mark.parametrize("call", CALLS)
def test_a_leader_that_has_moved_is_found_in_time(call):
    """The refresher asks for the topics that are read, so the former leader would be asked for ever."""

    async def script():
        async with Broker(nodes=2) as broker:
            broker.create_topic("other", replication_factor=2)
            broker.create_topic("read")
            broker.produce("other", b"x", timestamp_ms=1)
            async with Consumer("read", bootstrap_servers=broker.bootstrap_servers) as consumer:
                asked = {TP: 0} if call == "offsets_for_times" else [TP]
                before = await getattr(consumer, call)(asked)
                loop = asyncio.get_running_loop()
                for node_id in (2, 1):
                    broker.move_leader("other", 0, node_id)
                    began_at = loop.time()
                    found = await getattr(consumer, call)(asked)
                    assert loop.time() - began_at < 1
                    assert {tp: getattr(each, "offset", each) for tp, each in found.items()} == {
                        tp: getattr(each, "offset", each) for tp, each in before.items()
                    }

    run_virtual(script())


def test_a_recreated_topic_is_told_with_the_position_in_the_log_before():
    """Also if an older one of that name was read further."""

    async def script():
        ears = Ears()
        async with Broker() as broker:
            broker.create_topic("unread")
            settings = {"group_id": "g", "auto_offset_reset": "earliest"}
            async with Consumer(bootstrap_servers=broker.bootstrap_servers, observers=[ears], **settings) as consumer:
                for count in (30, 7, 1):
                    if count != 30:
                        broker.delete_topic("other")
                    broker.create_topic("other")
                    broker.produce_many("other", [b"x"] * count)
                    consumer.subscribe(["other"])
                    for _ in range(count):
                        await consumer.getone()
                    await consumer.commit()
                    consumer.subscribe(["unread"])
                    await consumer.getmany(timeout_ms=5_000)
        assert [each.position for each in ears.heard(events.TopicRecreated)] == [30, 7]

    run_virtual(script())
