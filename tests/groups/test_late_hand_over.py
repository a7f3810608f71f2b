"""A record that is never acknowledged delays a rebalance for a known time, whoever asked for the rebalance."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, RebalanceListener, TopicPartition
from aiogroup.embedded import Broker, run_virtual

A = TopicPartition("t", 0)
POLL_S = 60
LATE_S = 5
"""A heartbeat interval, and some exchanges."""


class Told(RebalanceListener):
    def __init__(self):
        self.events = []
        self.callbacks = []

    def on_event(self, event):
        if event.name in ("rebalance_started", "partitions_lost", "partitions_revoked"):
            self.events.append((event.name, event.fields()["why"] if event.name == "partitions_lost" else ""))

    def on_partitions_revoked(self, revoked):
        self.callbacks.append("revoked")

    def on_partitions_assigned(self, assigned):
        self.callbacks.append("assigned")

    def on_partitions_lost(self, lost):
        self.callbacks.append("lost")


def member(broker, told, **settings):
    return Consumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        metadata_max_age_ms=5_000,
        observers=[told],
        **{"auto_ack": False, "listener": told, "max_poll_interval_ms": POLL_S * 1_000, **settings},
    )


async def forgotten(consumer):
    """Three records are delivered; the first is not acknowledged. The application goes on asking for records."""
    batch = await consumer.getmany(timeout_ms=1_000, max_records=3)
    first, *others = batch.all()
    for record in others:
        record.ack()
    return first


async def next_records(consumer, limit_s):
    """The offsets of the next batch, and after how long it came."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while loop.time() - begun_s < limit_s:
        batch = await consumer.getmany(timeout_ms=10_000)
        if batch.count:
            return [record.offset for record in batch.all()], loop.time() - begun_s
    return [], loop.time() - begun_s


async def ask_for_a_round(how, broker, consumer):
    match how:
        case "enforced":
            await consumer.enforce_rebalance("test")
        case "partitions":
            broker.add_partitions("t", 2)
        case "coordinator":
            broker.rebalance("g")


@pytest.mark.parametrize("how", ["enforced", "partitions", "coordinator"])
@pytest.mark.parametrize("listens", [True, False])
def test_the_round_goes_on_without_what_is_in_hand(how, listens):
    async def script():
        told = Told()
        async with Broker() as broker:
            broker.create_topic("t")
            broker.produce_many("t", [b"x"] * 3)
            async with member(broker, told, **({} if listens else {"listener": None})) as consumer:
                record = await forgotten(consumer)
                del told.events[:], told.callbacks[:]
                await ask_for_a_round(how, broker, consumer)
                offsets, waited_s = await next_records(consumer, 5 * POLL_S)
                assert offsets == [0, 1, 2], "nothing of them was committed"
                # The broker's time-out counts from the last JoinGroup, and metadata are at most five seconds old.
                assert POLL_S - LATE_S <= waited_s <= POLL_S + 2 * LATE_S
                assert [name for name, _ in told.events] == ["rebalance_started", "partitions_lost"]
                assert told.callbacks == (["lost", "assigned"] if listens else [])
                if how != "coordinator":
                    assert "max_poll_interval_ms=60000" in told.events[-1][1]
                record.ack()  # too late: it is in hand again, as another one
                await asyncio.sleep(20)
                assert broker.committed("g")[A] == 0

    run_virtual(script())


def test_what_was_processed_before_is_committed_and_the_rest_comes_again():
    async def script():
        told = Told()
        async with Broker() as broker:
            broker.create_topic("t")
            broker.produce_many("t", [b"x"] * 3)
            async with member(broker, told, auto_commit_interval_ms=600_000) as consumer:
                batch = await consumer.getmany(timeout_ms=1_000, max_records=3)
                next(batch.all()).ack()
                await consumer.enforce_rebalance("test")
                assert (await next_records(consumer, 5 * POLL_S))[0] == [1, 2]
                assert broker.committed("g")[A] == 1

    run_virtual(script())


def test_the_coordinator_says_when_if_it_waits_for_a_slower_group():
    """Another member's rebalance time-out is the longest, and that is how long the group waits."""

    async def script():
        told, other_told = Told(), Told()
        async with Broker() as broker:
            broker.create_topic("t", partitions=2)
            other = member(
                broker, other_told, rebalance_timeout_ms=5 * POLL_S * 1_000, max_poll_interval_ms=5 * POLL_S * 1_000
            )
            async with other, member(broker, told) as consumer:
                reading = asyncio.get_running_loop().create_task(next_records(other, 100 * POLL_S))
                await asyncio.sleep(POLL_S)
                for partition in (0, 1):
                    broker.produce("t", b"x", partition=partition)
                (record,) = (await consumer.getmany(timeout_ms=10_000)).all()
                assert (await reading)[0] == [0]
                del told.events[:]
                broker.rebalance("g")
                waiting = asyncio.get_running_loop().create_task(next_records(consumer, 4 * POLL_S))
                assert (await waiting)[0] == []
                assert [name for name, _ in told.events] == ["rebalance_started"], "its time-out does not count"
                record.ack()
                await next_records(consumer, POLL_S)
                assert [name for name, _ in told.events] == ["rebalance_started", "partitions_revoked"]

    run_virtual(script())
