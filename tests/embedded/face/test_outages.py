"""One of three nodes dies, is silent or is stopped while clients work: no record that was acknowledged is lost, and
every client goes on.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aiogroup import Consumer
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded import Broker, asked, caught_up, stable

LIMIT_S = 60
QUIET_MS = 300


class Load:
    """A producer that sends all the time, and two consumers, of aiogroup and of aiokafka, in groups of their own."""

    def __init__(self, broker):
        self.broker = broker
        self.acknowledged = set()
        self.ours, self.theirs = set(), set()
        self._is_over = False

    async def run(self, act):
        async with asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(self._produce())
            readers = [tasks.create_task(self._read_ours()), tasks.create_task(self._read_theirs())]
            await self.broker.until(lambda: len(self.ours) > 50 and len(self.theirs) > 50, timeout_s=LIMIT_S)
            await act(self)
            self._is_over = True
            await producing
            wanted = set(self.acknowledged)
            await self.broker.until(lambda: wanted <= self.ours and wanted <= self.theirs, timeout_s=LIMIT_S)
            # If aiokafka's consumer is stopped while it knows no coordinator, it does not look for one, and its commit
            # never ends.
            await self.broker.until(caught_up("theirs"), timeout_s=LIMIT_S)
            for each in readers:
                each.cancel()
        return wanted

    async def progress(self, count=50):
        """Wait until every client makes progress: more records are acknowledged, and read by both consumers."""
        sent, ours, theirs = len(self.acknowledged), len(self.ours), len(self.theirs)
        await self.broker.until(
            lambda: (
                len(self.acknowledged) > sent + count
                and len(self.ours) > ours + count
                and len(self.theirs) > theirs + count
            ),
            timeout_s=LIMIT_S,
        )

    async def _produce(self):
        producer = AIOKafkaProducer(
            bootstrap_servers=self.broker.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=1_000,
            retry_backoff_ms=20,
            metadata_max_age_ms=500,
        )
        await producer.start()
        try:
            number = 0
            while not self._is_over:
                sent = [await producer.send("orders", b"%d" % (number + n), partition=n) for n in range(6)]
                for each in await asyncio.gather(*sent):
                    self.acknowledged.add((each.partition, each.offset))
                number += 6
                await asyncio.sleep(0)
        finally:
            await producer.stop()

    async def _read_ours(self):
        settings = {"request_timeout_ms": 1_000, "session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
        async with Consumer(
            "orders",
            group_id="ours",
            bootstrap_servers=self.broker.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **settings,
        ) as consumer:
            async for record in consumer:
                self.ours.add((record.partition, record.offset))

    async def _read_theirs(self):
        consumer = AIOKafkaConsumer(
            "orders",
            group_id="theirs",
            bootstrap_servers=self.broker.bootstrap_servers,
            auto_offset_reset="earliest",
            request_timeout_ms=1_000,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=500,
            rebalance_timeout_ms=2_000,
            auto_commit_interval_ms=100,
        )
        await consumer.start()
        try:
            async for record in consumer:
                self.theirs.add((record.partition, record.offset))
        finally:
            await asyncio.wait_for(consumer.stop(), LIMIT_S)


async def kill(load, node):
    node.kill()
    await load.progress()
    node.start()
    await load.progress()


async def stop(load, node):
    node.stop()
    await load.progress()
    node.start()
    await load.progress()


async def pause(load, node):
    node.pause()
    # No node takes its place: its partitions are neither written nor read until it goes on. The other nodes serve
    # requests.
    await load.broker.until(asked("Fetch", load.broker.count("Fetch") + 10))
    node.resume()
    await load.progress()


@pytest.mark.parametrize("failover_ms", [0, QUIET_MS])
@pytest.mark.parametrize("act", [kill, stop, pause])
async def test_an_outage_under_load_loses_no_acknowledged_record(act, failover_ms):
    with Broker(nodes=3, seed=1, failover_ms=failover_ms) as broker:
        broker.create_topic("orders", partitions=6)
        coordinators = {broker.group("ours").coordinator, broker.group("theirs").coordinator}
        load = Load(broker)

        async def once_each(load):
            for node in broker.nodes:
                if node.node_id in coordinators or node.node_id == 2:
                    await act(load, node)

        wanted = await load.run(once_each)
        stored = {(each.partition, each.offset) for each in broker.records("orders")}
        assert wanted <= stored
        numbers = [each.value for each in broker.records("orders")]
        assert len(numbers) == len(set(numbers)), "an idempotent producer's repeats are stored once"
        assert [str(each) for each in broker.troubles] == []


async def test_an_outage_is_told_and_survived():
    """The fifth example of the specification."""
    with Broker(seed=1) as broker:
        broker.create_topic("orders")
        async with worker(broker) as consumer:
            await broker.until(stable("billing", members=1))
            broker.pause()
            await broker.until(lambda: not consumer.health().is_ready)
            broker.resume()
            with broker.error("OffsetCommit", ErrorCode.NOT_COORDINATOR, times=2) as refused:
                broker.produce("orders", b"after")
                await broker.until(caught_up("billing"))
        assert refused.used_count == 2


def worker(broker, **settings):
    given = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 100, "request_timeout_ms": 600, **settings}
    return Working(
        Consumer(
            "orders",
            group_id="billing",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            auto_commit_interval_ms=50,
            **given,
        )
    )


class Working:
    """A consumer whose records are read by a task."""

    def __init__(self, consumer):
        self.consumer = consumer

    async def __aenter__(self):
        await self.consumer.__aenter__()
        self._task = asyncio.create_task(self._work())
        return self.consumer

    async def __aexit__(self, *error):
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.consumer.__aexit__(None, None, None)

    async def _work(self):
        async for _record in self.consumer:
            pass


async def test_a_blocked_loop_loses_its_membership_at_the_right_time():
    """The broker's clock goes on in its thread: the member is removed a session time-out after its last request."""
    session_ms = 600
    with Broker(seed=1) as broker:
        broker.create_topic("orders")
        async with worker(broker, session_timeout_ms=session_ms, heartbeat_interval_ms=100):
            await broker.until(stable("billing", members=1))
            await broker.until(asked("Heartbeat", 2))
            (member,) = broker.group("billing").members
            broker.wait(lambda: not broker.group("billing").members)  # this blocks the loop in which the member lives
            heard_ms = max(each.at_ms for each in broker.requests(group="billing"))
            assert session_ms - 1 <= time.time() * 1_000 - heard_ms <= session_ms + 500
            with pytest.raises(TimeoutError):
                broker.wait(stable("billing"), timeout_s=0.3)
            assert broker.group("billing").members == (), "it has not come back while the loop is blocked"
            await broker.until(stable("billing", members=1))
            assert broker.group("billing").members[0].member_id != member.member_id
