"""A position that the reset policy gave is durable before its first record is handed out, however long that takes."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, HealthStatus, TopicPartition
from aiogroup.embedded import Broker, run_virtual

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 100


class Failures:
    def __init__(self):
        self.events = []

    def on_event(self, event):
        if event.name == "commit_failed":
            self.events.append(event)


def reader(broker, failures, **settings):
    return Consumer(
        "t", **{"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", **settings}, observers=[failures]
    )


async def request(consumer):
    """The next record, or `None` when none came for a long time."""
    try:
        return await asyncio.wait_for(consumer.getone(), WAIT_S)
    except TimeoutError:
        return None


def unanswered(broker):
    return broker.drop("OffsetCommit", before=True)


def told(code):
    return lambda broker: broker.error("OffsetCommit", code, times=None)


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize(
    "fault",
    [unanswered, *map(told, ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "REQUEST_TIMED_OUT"])],
    ids=["unanswered", "loading", "moved", "timed-out"],
)
def test_nothing_is_handed_out_before_its_commit_succeeds(fault, assigned):
    async def script():
        failures = Failures()
        async with Broker() as broker:
            broker.create_topic("t")
            broker.produce_many("t", [b"old"] * 100)
            consumer = reader(broker, failures)
            with fault(broker):
                if assigned:
                    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", observers=[failures])
                    consumer.assign([A])
                await consumer.start()
                await consumer.position(A)
                broker.produce_many("t", [b"new"] * 5)
                assert await request(consumer) is None
                assert broker.committed("g") == {}
                assert len(failures.events) > WAIT_S // 20, "each attempt that failed is told"
                assert all(event.partitions == (A,) for event in failures.events)
                health = consumer.health()
                assert (health.status, health.is_ready) == (HealthStatus.DEGRADED, False)
                assert "begin is not committed" in health.why
            record = await request(consumer)
            assert record.offset == 100
            assert broker.committed("g") == {A: 100}
            assert consumer.health().status is HealthStatus.READY
            await consumer.stop()

    run_virtual(script())


def test_a_rebalance_in_progress_bars_it_too():
    """In the middle of a round that some other member holds up."""

    async def script():
        failures = Failures()
        async with Broker() as broker:
            broker.create_topic("t")
            with broker.error("OffsetCommit", "REBALANCE_IN_PROGRESS", times=None):
                consumer = reader(broker, failures, partition_assignment_strategy=["cooperative-sticky"])
                await consumer.start()
                await consumer.position(A)
                broker.produce("t", b"new")
                assert await request(consumer) is None
            assert (await request(consumer)).offset == 0
            await consumer.stop()

    run_virtual(script())


def test_only_the_partition_whose_commit_fails_waits():
    async def script():
        failures = Failures()
        async with Broker() as broker:
            broker.create_topic("t", partitions=2)
            consumer = reader(broker, failures)
            with broker.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", topic="t", partition=1, times=None):
                await consumer.start()
                broker.produce("t", b"new", partition=0)
                broker.produce("t", b"new", partition=1)
                assert (await request(consumer)).tp == A
                assert await request(consumer) is None
                assert consumer.health().status is HealthStatus.DEGRADED
            assert (await request(consumer)).tp == B
            await consumer.stop()

    run_virtual(script())


@pytest.mark.parametrize(
    "code", ["TOPIC_AUTHORIZATION_FAILED", "INVALID_COMMIT_OFFSET_SIZE", "GROUP_AUTHORIZATION_FAILED"]
)
def test_a_commit_that_cannot_succeed_holds_nothing_up(code):
    async def script():
        failures = Failures()
        async with Broker() as broker:
            broker.create_topic("t")
            with broker.error("OffsetCommit", code, times=None):
                consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", observers=[failures])
                consumer.assign([A])
                await consumer.start()
                await consumer.position(A)
                broker.produce("t", b"new")
                assert (await request(consumer)).offset == 0
                assert "trying again cannot help: delivery goes on" in failures.events[0].why
                assert consumer.health().status is HealthStatus.READY
                await consumer.stop()

    run_virtual(script())


def test_a_seek_needs_no_commit():
    """The application says where to begin: that is no position of the policy."""

    async def script():
        async with Broker() as broker:
            broker.create_topic("t")
            broker.produce_many("t", [b"old"] * 10)
            consumer = reader(broker, Failures())
            with unanswered(broker):
                await consumer.start()
                await consumer.position(A)
                assert await request(consumer) is None
                consumer.seek(A, 3)
                assert (await request(consumer)).offset == 3
                await consumer.stop(timeout_ms=1_000)

    run_virtual(script())
