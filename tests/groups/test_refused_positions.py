"""A topic whose committed offsets may not be read: the application hears of it, and other topics flow."""

from __future__ import annotations

import asyncio

from aiogroup import Consumer, TopicAuthorizationError
from aiogroup.embedded import Broker, run_virtual


def test_one_topic_that_is_refused_ends_no_consumer():
    async def script():
        async with Broker() as broker:
            for topic in ("t", "u"):
                broker.create_topic(topic)
                broker.produce(topic, b"x")
            consumer = Consumer(
                "t", "u", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            )
            seen, refused = [], []
            with broker.error("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", topic="u", times=None):
                await consumer.start()
                for _ in range(10):
                    try:
                        seen.append((await asyncio.wait_for(consumer.getone(), 10)).topic)
                    except TopicAuthorizationError as error:
                        refused.append(error.topics)
                assert seen == ["t"]
                assert refused[:2] == [{"u"}] * 2, "the look-up is tried again"
            while len(seen) < 2:
                try:
                    seen.append((await asyncio.wait_for(consumer.getone(), 10)).topic)
                except TopicAuthorizationError:
                    continue
            assert seen == ["t", "u"]
            await consumer.stop()

    run_virtual(script())
