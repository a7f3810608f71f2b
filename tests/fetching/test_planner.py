"""Which partitions a broker is asked for, and for how much."""

from __future__ import annotations

import uuid

import pytest

from aiogroup.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from aiogroup.config import ConsumerConfig
from aiogroup.fetching.planner import node_for, plan_fetch
from tests.support.records import LATEST, assigned, fetched

MIB = 1024 * 1024
CONFIG = ConsumerConfig(max_partition_fetch_bytes=2_000, fetch_max_bytes=MIB)
CLUSTER = Cluster(
    brokers={number: Broker(number, f"broker-{number}", 9092) for number in (1, 2)},
    topics={
        "orders": TopicInfo(
            "orders",
            uuid.UUID(int=1),
            {number: PartitionInfo(1 + number % 2, 0, (1, 2), (1, 2)) for number in range(4)},
        )
    },
)


def plan(partitions, node_id=1, free_bytes=64 * MIB, now_ms=0, config=CONFIG):
    return plan_fetch(node_id, partitions, CLUSTER, config, free_bytes, now_ms)


def numbers(planned):
    return [each.tp.partition for each in planned.partitions]


def test_each_broker_is_asked_for_what_it_leads():
    _, partitions = assigned(0, 1, 2, 3)
    assert numbers(plan(partitions, 1)) == [0, 2]
    assert numbers(plan(partitions, 2)) == [1, 3]
    assert plan(partitions, 3).partitions == ()


def test_paused_broken_and_unknown_positions_are_left_out():
    paused, broken, unknown, good = (assigned(0)[1][0] for _ in range(4))
    paused.is_paused = True
    broken.is_broken = True
    unknown.await_reset(LATEST)
    assert plan([paused, broken, unknown, good]).partitions == (good,)


def test_partition_with_a_fetch_on_its_way_is_not_asked_for_twice():
    _, (partition,) = assigned(0)
    partition.is_fetching = True
    assert plan([partition]).partitions == ()


def test_partition_that_failed_waits_and_the_plan_says_until_when():
    _, (first, second) = assigned(0, 2)
    first.backoff_until_ms = 700
    second.backoff_until_ms = 300
    planned = plan([first, second], now_ms=100)
    assert (planned.partitions, planned.wake_at_ms) == ((), 300)
    assert numbers(plan([first, second], now_ms=300)) == [2]
    assert plan([first, second], now_ms=700).wake_at_ms is None


def test_partition_with_enough_buffered_is_left_out_and_counted():
    _, (full, empty) = assigned(0, 2)
    full.put(fetched(full, 500))
    planned = plan([full, empty])
    assert numbers(planned) == [2]
    assert planned.full_count == 1


def test_emptiest_partition_is_asked_for_first():
    _, (some, none) = assigned(0, 2)
    some.put(fetched(some, 10))
    assert numbers(plan([some, none])) == [2, 0]


def test_request_never_asks_for_more_than_there_is_room_for():
    _, (partition,) = assigned(0)
    assert plan([partition], free_bytes=100_000).max_bytes == 100_000
    assert plan([partition], free_bytes=64 * MIB).max_bytes == MIB


@pytest.mark.parametrize("free_bytes", [0, -5, 65_535])
def test_full_buffers_ask_for_nothing_at_all(free_bytes):
    _, (partition,) = assigned(0)
    planned = plan([partition], free_bytes=free_bytes)
    assert (planned.partitions, planned.full_count) == ((), 1)


def test_small_fetch_max_bytes_still_fetches():
    _, (partition,) = assigned(0)
    small = ConsumerConfig(max_partition_fetch_bytes=2_000, fetch_max_bytes=1_000)
    assert plan([partition], free_bytes=5_000, config=small).max_bytes == 1_000


def test_preferred_replica_is_read_from_while_it_holds():
    _, (partition,) = assigned(0)
    partition.preferred_replica, partition.preferred_until_ms = 2, 1_000
    assert node_for(partition, CLUSTER, 999) == 2
    assert node_for(partition, CLUSTER, 1_000) == 1
    assert node_for(partition, CLUSTER, 0) == 1


def test_preferred_replica_that_left_the_cluster_is_forgotten():
    _, (partition,) = assigned(0)
    partition.preferred_replica, partition.preferred_until_ms = 9, 1_000
    assert node_for(partition, CLUSTER, 0) == 1


def test_partition_without_a_leader_is_asked_of_nobody():
    _, (partition,) = assigned(7)
    assert node_for(partition, CLUSTER, 0) == -1
