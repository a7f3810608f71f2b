"""`health()` when the only broker dies or freezes, and of a topic that does not exist, on real Kafka."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiogroup import Consumer, HealthStatus
from tests.support.kafka import eventually

SESSION_MS = 6_000
SILENT_MS = 30_000
WAY_MS = 5_000
"""What a look and a request may take on two busy cores."""


def status(consumer):
    return consumer.health().status


async def unreachable_after_ms(consumer, since, within_ms):
    await eventually(lambda: status(consumer) is HealthStatus.UNREACHABLE, within_ms / 1000 + 5)
    return (time.monotonic() - since) * 1000


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_only_broker_is_gone_and_health_says_so(cluster_1, unique_name, group, how):
    (node,), topic = cluster_1.nodes, unique_name("orders")
    cluster_1.create_topic(topic, partitions=2)
    settings = {"bootstrap_servers": cluster_1.bootstrap_servers, "session_timeout_ms": SESSION_MS}
    settings |= {"heartbeat_interval_ms": 500, "request_timeout_ms": 5_000}
    async with Consumer(topic, group_id=group, **settings) as member, Consumer(topic, **settings) as free:
        asking = [asyncio.create_task(each.getone()) for each in (member, free)]
        try:
            await eventually(lambda: status(member) is status(free) is HealthStatus.READY)
            await eventually(lambda: member.health().since_heartbeat_ms is not None)
            await asyncio.gather(*(free.position(tp) for tp in free.assignment()))
            await asyncio.to_thread(node.kill if how == "killed" else node.pause)
            since = time.monotonic()
            after_ms = await unreachable_after_ms(member, since, SESSION_MS + WAY_MS)
            assert SESSION_MS - 1_000 <= after_ms <= SESSION_MS + WAY_MS
            assert status(free) is HealthStatus.READY
            after_ms = await unreachable_after_ms(free, since, SILENT_MS + WAY_MS)
            assert SILENT_MS - 1_000 <= after_ms <= SILENT_MS + WAY_MS
            for each in (member, free):
                assert (each.health().is_alive, each.health().is_ready) == (True, False)
            if how == "killed":
                await asyncio.to_thread(node.start)
            else:
                node.resume()
            await eventually(lambda: status(member) is status(free) is HealthStatus.READY, 60)
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("has_group", [True, False], ids=["group", "no group"])
async def test_a_topic_that_does_not_exist_is_named_and_the_consumer_is_not_ready(make_place, unique_name, has_group):
    place, wrong = make_place(), unique_name("ordres")
    settings = {"bootstrap_servers": place.cluster.bootstrap_servers, "group_id": place.group if has_group else None}
    async with Consumer(wrong, **settings) as consumer:
        await eventually(lambda: "joining" not in consumer.health().why and consumer.health().missing_topics)
        health = consumer.health()
        assert (health.status, health.is_ready, health.missing_topics) == (HealthStatus.DEGRADED, False, (wrong,))
        assert wrong in health.why
        consumer.subscribe([wrong, place.topic])
        await eventually(lambda: consumer.health().is_ready)
        assert (status(consumer), consumer.health().missing_topics) == (HealthStatus.DEGRADED, (wrong,))
