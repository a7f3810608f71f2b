"""Leaders that move, followers that are read from, and brokers that share one bound of memory."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiogroup._core.telemetry.events import FetchFailed, OffsetReset
from aiogroup.devkafka import wire
from aiogroup.devkafka.waiting import wait_until
from aiogroup.testing import CUT, Proxy
from tests.support.kafka import Ears, eventually
from tests.support.nodes import coordinator_of
from tests.support.reading import alone, fill, producing, read

VALUES = [b"%d" % number for number in range(50)]


@pytest.fixture
def racks(cluster_3):
    """Three nodes whose leaders send a reader to the follower in its rack."""
    return cluster_3


def _leader(cluster, tp):
    for node in cluster.nodes:
        if node.is_running:
            return wire.metadata(node.port, (tp.topic,)).leaders[tp.topic].get(tp.partition, -1)
    raise AssertionError("no node runs")


def _node(cluster, node_id):
    return next(node for node in cluster.nodes if node.node_id == node_id)


async def _back(cluster, node):
    if not node.is_running:
        await asyncio.to_thread(node.start)
    await asyncio.to_thread(cluster.await_ready)


@pytest.fixture
def tp(racks, unique_name):
    tp = TopicPartition(unique_name("moved"), 0)
    racks.create_topic(tp.topic, 1, replication_factor=3)
    return tp


async def test_a_leader_that_stops_while_it_is_fetched_from_is_left(racks, tp):
    ears, seen = Ears(), []
    async with producing(racks.bootstrap_servers, acks="all", request_timeout_ms=20_000) as producer:
        consumer = alone(racks.bootstrap_servers, observers=[ears])
        consumer.assign([tp])
        async with consumer:
            for value in VALUES:
                await producer.send_and_wait(tp.topic, value, partition=0)
            seen += await read(consumer, 50)
            leader = _node(racks, _leader(racks, tp))
            try:
                await asyncio.to_thread(leader.kill)
                for value in VALUES:
                    await producer.send_and_wait(tp.topic, value, partition=0)
                seen += await read(consumer, 50)
            finally:
                await _back(racks, leader)
    assert [record.value for record in seen] == VALUES * 2
    assert [record.offset for record in seen] == list(range(100))
    assert len(ears.heard(FetchFailed)) < 40
    assert all(event.why == "nothing is committed" for event in ears.heard(OffsetReset))


async def test_a_leader_that_moves_while_its_fetch_is_outstanding_is_left_at_once(racks, tp):
    """The old leader holds the fetch back; the new one must be asked as soon as it is known."""
    servers = racks.bootstrap_servers
    await fill(servers, tp, VALUES, acks="all")
    leader_id = _leader(racks, tp)
    other_id = next(node.node_id for node in racks.nodes if node.node_id != leader_id)
    async with Proxy(racks.bootstrap_servers) as proxy:
        moved = False

        def move(exchange):
            if not moved:
                return None
            topics = tuple(
                dataclasses.replace(
                    topic,
                    partitions=tuple(
                        dataclasses.replace(each, leader_id=other_id, leader_epoch=each.leader_epoch + 1)
                        for each in topic.partitions
                    ),
                )
                for topic in exchange.response.topics
            )
            return dataclasses.replace(exchange.response, topics=topics)

        def agree(exchange):
            """The new leader has all that was read (KIP-320)."""
            topics = tuple(
                dataclasses.replace(
                    topic,
                    partitions=tuple(
                        dataclasses.replace(each, error_code=0, leader_epoch=0, end_offset=50)
                        for each in topic.partitions
                    ),
                )
                for topic in exchange.response.topics
            )
            return dataclasses.replace(exchange.response, topics=topics)

        async def hold(exchange):
            if moved and exchange.node_id == leader_id:
                await asyncio.sleep(60)

        proxy.rewrite(MetadataRequest, move)
        proxy.rewrite(OffsetForLeaderEpochRequest, agree)
        proxy.rewrite(FetchRequest, hold)
        consumer = alone(proxy.bootstrap_servers, metadata_max_age_ms=500)
        consumer.assign([tp])
        async with consumer:
            await read(consumer, 50)
            moved = True
            await eventually(lambda: proxy.count(FetchRequest, other_id) > 0)


async def test_a_leader_that_is_gone_during_the_reset_is_looked_for_again(racks, tp):
    servers = racks.bootstrap_servers
    await fill(servers, tp, VALUES, acks="all")
    leader = _node(racks, _leader(racks, tp))
    async with Proxy(racks.bootstrap_servers) as proxy:

        async def no_answer(exchange):
            if exchange.node_id != leader.node_id:
                return None
            if leader.is_running:
                await asyncio.to_thread(leader.kill)
            return CUT

        proxy.rewrite(ListOffsetsRequest, no_answer)
        consumer = alone(proxy.bootstrap_servers, auto_offset_reset="latest")
        consumer.assign([tp])
        try:
            async with consumer:
                position = await asyncio.wait_for(consumer.position(tp), 20)
        finally:
            await _back(racks, leader)
        assert position == 50
        assert proxy.count(ListOffsetsRequest) < 40
        assert proxy.count(MetadataRequest) >= 2


# Followers.


async def _follower(racks, tp):
    leader_id = _leader(racks, tp)
    return leader_id, next(node.node_id for node in racks.nodes if node.node_id != leader_id)


async def test_the_follower_in_our_rack_is_read_from(racks, tp):
    await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
    leader_id, follower_id = await _follower(racks, tp)
    async with Proxy(racks.bootstrap_servers) as proxy:
        consumer = alone(proxy.bootstrap_servers, client_rack=f"rack-{follower_id}")
        consumer.assign([tp])
        async with consumer:
            assert [record.value for record in await read(consumer, 50)] == VALUES
            asked_leader = proxy.count(FetchRequest, leader_id)
            await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
            assert [record.value for record in await read(consumer, 50)] == VALUES
            assert proxy.count(FetchRequest, follower_id) >= 2
            assert proxy.count(FetchRequest, leader_id) == asked_leader


@pytest.mark.parametrize("code", [1, 78, -1, 76, 2, 6])
async def test_a_follower_that_refuses_is_left_for_the_leader(racks, tp, code):
    """OFFSET_OUT_OF_RANGE from a follower that lags is no reason to reset (D26)."""
    await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
    leader_id, follower_id = await _follower(racks, tp)
    ears = Ears()
    async with Proxy(racks.bootstrap_servers) as proxy:
        refused = 0

        def refuse(exchange):
            nonlocal refused
            if exchange.node_id == leader_id and refused:
                return _with(exchange.response, preferred_read_replica=-1)
            if exchange.node_id == follower_id:
                refused += 1
                return _with(exchange.response, error_code=code, records=b"")
            return None

        proxy.rewrite(FetchRequest, refuse)
        # The leader answers with records to a reader without a rack only, and this one has one.
        consumer = alone(
            proxy.bootstrap_servers, client_rack=f"rack-{follower_id}", observers=[ears], auto_offset_reset="latest"
        )
        consumer.assign([tp])
        async with consumer:
            consumer.seek(tp, 5)
            await eventually(lambda: refused)
            leader_before = proxy.count(FetchRequest, leader_id)
            await eventually(lambda: proxy.count(FetchRequest, leader_id) > leader_before)
            proxy.clear()
            assert [record.offset for record in await read(consumer, 45)] == list(range(5, 50))
            assert refused < 20
    assert all(event.why == "nothing is committed" for event in ears.heard(OffsetReset))


def _with(response, **changes):
    topics = tuple(
        dataclasses.replace(topic, partitions=tuple(dataclasses.replace(each, **changes) for each in topic.partitions))
        for topic in response.responses
    )
    return dataclasses.replace(response, responses=topics)


async def test_a_follower_that_is_gone_is_left_for_the_leader(racks, tp):
    await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
    _, follower_id = await _follower(racks, tp)
    follower = _node(racks, follower_id)
    consumer = alone(racks.bootstrap_servers, client_rack=f"rack-{follower_id}")
    consumer.assign([tp])
    async with consumer:
        assert [record.value for record in await read(consumer, 50)] == VALUES
        try:
            await asyncio.to_thread(follower.kill)
            await fill(racks.bootstrap_servers, tp, VALUES, acks="all", request_timeout_ms=20_000)
            assert [record.value for record in await read(consumer, 50)] == VALUES
        finally:
            await _back(racks, follower)


async def test_a_follower_that_comes_back_is_read_from_again_at_once(racks, tp):
    """Its leader names it as soon as it is back, and sends no records; the metadata have forgotten it meanwhile."""
    _, follower_id = await _follower(racks, tp)
    follower = _node(racks, follower_id)

    def knows_it(node):
        return follower_id in wire.metadata(node.port).broker_ids

    ears = Ears()
    consumer = alone(racks.bootstrap_servers, client_rack=f"rack-{follower_id}", observers=[ears])
    consumer.assign([tp])
    async with consumer:
        try:
            await asyncio.to_thread(follower.kill)
            others = [node for node in racks.nodes if node is not follower]
            await eventually(lambda: not any(map(knows_it, others)), within_s=60)
            await consumer.topics()  # from now on the metadata do not have it
        finally:
            await _back(racks, follower)
        await eventually(lambda: all(map(knows_it, racks.nodes)), within_s=60)
        for _ in range(3):
            await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
            async with asyncio.timeout(10):
                assert [record.value for record in await read(consumer, 50)] == VALUES
    assert len(ears.heard(FetchFailed)) < 40


# Memory.


async def test_brokers_take_turns_when_the_bound_is_one_answer(racks, unique_name):
    """One broker's fetch may take all that is free: the others must be asked when it is back."""
    topic = unique_name("turns")
    racks.create_topic(topic, 3, replication_factor=1)
    tps = [TopicPartition(topic, each) for each in range(3)]
    wait_until(lambda: len({_leader(racks, tp) for tp in tps}) == 3, 5_000, lambda: "a leader on each node")
    consumer = alone(racks.bootstrap_servers, max_buffered_bytes=1 << 20, fetch_max_bytes=1 << 20)
    consumer.assign(tps)
    async with consumer:
        await asyncio.gather(*(consumer.position(tp) for tp in tps))
        for _ in range(2):
            for tp in tps:
                await fill(racks.bootstrap_servers, tp, VALUES)
                assert {record.partition for record in await read(consumer, 50, within_s=8)} == {tp.partition}


async def test_a_broker_with_long_records_goes_on_while_the_others_are_quiet(racks, unique_name):
    """What one answer may bring is reserved for each request: three of them are more than there is room for."""
    topic = unique_name("long")
    racks.create_topic(topic, 3, replication_factor=1)
    tps = [TopicPartition(topic, each) for each in range(3)]
    wait_until(lambda: len({_leader(racks, tp) for tp in tps}) == 3, 5_000, lambda: "a leader on each node")
    bounds = {"max_buffered_bytes": 1 << 20, "max_partition_fetch_bytes": 1 << 16, "fetch_max_bytes": 1 << 20}
    consumer = alone(racks.bootstrap_servers, **bounds)
    consumer.assign(tps)
    async with consumer:
        await asyncio.gather(*(consumer.position(tp) for tp in tps))
        for tp in tps:
            await fill(racks.bootstrap_servers, tp, [bytes(800_000)] * 5)
            assert {record.partition for record in await read(consumer, 5, within_s=15)} == {tp.partition}


# The coordinator.


async def test_a_coordinator_that_restarts_while_joining_never_costs_the_committed_offset(racks, tp, unique_name):
    servers, group = racks.bootstrap_servers, unique_name("group")
    await fill(servers, tp, VALUES, acks="all")
    quick = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500, "request_timeout_ms": 10_000}
    first = Consumer(tp.topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False, **quick)
    async with first:
        await first.commit({tp: 20})
    coordinator = await coordinator_of(racks)
    ears = Ears()
    consumer = Consumer(
        tp.topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="latest", observers=[ears], **quick
    )
    starting = asyncio.ensure_future(consumer.start())
    try:
        await asyncio.to_thread(coordinator.kill)
        await starting
        assert (await asyncio.wait_for(consumer.getone(), 30)).offset == 20
    finally:
        await consumer.stop()
        await _back(racks, coordinator)
    assert not ears.heard(OffsetReset)


@pytest.mark.parametrize("api", [FetchRequest, ListOffsetsRequest])
async def test_every_request_says_which_leader_it_means(racks, tp, api):
    """KIP-320: else a broker that leads no more, or not yet, would answer for the one that does."""
    await fill(racks.bootstrap_servers, tp, VALUES, acks="all")
    epochs = []

    def note(exchange):
        epochs.extend(each.current_leader_epoch for topic in exchange.request.topics for each in topic.partitions)

    async with Proxy(racks.bootstrap_servers) as proxy:
        proxy.rewrite(api, note)
        consumer = alone(proxy.bootstrap_servers)
        consumer.assign([tp])
        async with consumer:
            await read(consumer, 50)
    assert epochs
    assert min(epochs) >= 0
