"""Partitions that have no leader: the only replica is on a node that is down."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, ConsumerConfig, HealthStatus, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup._runtime.net.link import Link
from aiogroup.embedded import Broker, run_virtual
from tests.support.kafka import Ears

ELECTION_S = 5
SETTINGS = {"group_id": "g", "auto_offset_reset": "earliest", "metadata_max_age_ms": 2_000}


def told(ears):
    return [each for each in ears.heard(events.FetchFailed) if each.why.startswith("no broker leads")]


@pytest.mark.parametrize("joins_later", [False, True])
def test_they_are_told_of_and_the_consumer_is_degraded_until_they_have_one(joins_later):
    """The others are read as before, so nothing else would tell."""

    async def script():
        ears = Ears()
        async with Broker(nodes=3) as broker:
            broker.create_topic("orders", 3, replication_factor=1)
            broker.move_coordinator("g", 1)
            async with Link(ConsumerConfig(bootstrap_servers=broker.bootstrap_servers)) as link:
                cluster = await link.fetch_metadata({"orders"})
            leaders = {each: cluster.leader(TopicPartition("orders", each)) for each in range(3)}
            dead = broker.nodes[1]
            lost = [partition for partition, leader in leaders.items() if leader == dead.node_id]
            names = ", ".join(f"orders-{each}" for each in lost)
            if joins_later:
                dead.kill()
                await asyncio.sleep(10)
            servers, loop = broker.bootstrap_servers, asyncio.get_running_loop()
            began_at = loop.time()
            async with Consumer("orders", bootstrap_servers=servers, observers=[ears], **SETTINGS) as consumer:
                if not joins_later:
                    dead.kill()
                await asyncio.sleep(3 * ELECTION_S)
                for partition in set(leaders) - set(lost):
                    broker.produce("orders", b"x", partition=partition)
                    assert (await consumer.getone()).partition == partition
                health = consumer.health()
                assert health.status is HealthStatus.DEGRADED
                assert f"no broker leads {names}" in health.why
                assert not health.is_wholly_degraded
                assert len(told(ears)) <= loop.time() - began_at, "once a second"
                assert told(ears)[0].why == f"no broker leads these partitions: {names}"
                dead.start()
                await asyncio.sleep(ELECTION_S)
                count = len(told(ears))
                assert consumer.health().status is HealthStatus.READY
                assert "no broker leads these partitions" in [each.why for each in ears.heard(events.FailingEnded)]
                broker.produce("orders", b"x", partition=lost[0])
                assert (await consumer.getone()).partition == lost[0]
                assert len(told(ears)) == count

    run_virtual(script())


def test_a_partition_that_its_topic_does_not_have_is_told_of_until_it_has_it():
    """Somebody has assigned it by hand: the other partitions are read as before."""

    async def script():
        ears = Ears()
        async with Broker() as broker:
            broker.create_topic("orders")
            consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, observers=[ears], **SETTINGS)
            consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
            async with consumer:
                broker.produce("orders", b"x", partition=0)
                assert (await consumer.getone()).partition == 0
                await asyncio.sleep(3 * ELECTION_S)
                health = consumer.health()
                assert (health.status, health.is_wholly_degraded) == (HealthStatus.DEGRADED, False)
                assert "no broker leads orders-1" in health.why
                assert told(ears)
                broker.add_partitions("orders")
                broker.produce("orders", b"x", partition=1)
                async with asyncio.timeout(ELECTION_S):
                    assert (await consumer.getone()).partition == 1
                assert consumer.health().status is HealthStatus.READY

    run_virtual(script())
