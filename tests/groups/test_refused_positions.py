"""A topic that may not be read: the application hears of it, health names it, and other topics flow."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import product

import pytest

from aiogroup import Consumer, HealthStatus, TopicAuthorizationError
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


@pytest.mark.parametrize(
    ("api", "group_id"),
    [*product(["Fetch", "ListOffsets", "Metadata"], ["g", None]), ("OffsetFetch", "g")],
)
@pytest.mark.parametrize("topics", [("t", "u"), ("u",)])
def test_health_names_the_topic_until_it_may_be_read(api, group_id, topics):
    async def script():
        async with Broker() as broker:
            for topic in topics:
                broker.create_topic(topic)
            servers = broker.bootstrap_servers
            more = {"metadata_max_age_ms": 1_000, "auto_offset_reset": "earliest"}
            async with Consumer(bootstrap_servers=servers, group_id=group_id, **more) as consumer:

                async def read():
                    with suppress(TopicAuthorizationError):
                        await consumer.getmany(timeout_ms=2_000)
                    return consumer.health()

                with broker.error(api, "TOPIC_AUTHORIZATION_FAILED", topic="u", times=None):
                    consumer.subscribe(topics)
                    for _ in range(5):
                        health = await read()
                    assert health.status is HealthStatus.DEGRADED
                    assert health.why.endswith("; READ is not granted on the topic: u")
                    assert (health.is_alive, health.is_ready) == (True, len(topics) > 1)
                for _ in range(5):
                    health = await read()
                assert health.status is HealthStatus.READY

    run_virtual(script())
