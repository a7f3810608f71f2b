"""The acceptance of KIP-345 on three real brokers: points 3 and 6."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup._core.telemetry import events
from tests.support.group_members import Member, running, shared_out, until
from tests.support.nodes import bring_back, coordinator_of, load

PARTITIONS_COUNT = 6
NAMES = ("one", "two", "three")
NAMED = {"session_timeout_ms": 6_000, "registration_timeout_ms": 120_000, "auto_commit_interval_ms": 200}
"""Brokers take a while to come back: nobody's session ends meanwhile."""


@pytest.fixture
async def topic(cluster_3, unique_name):
    name = unique_name("static")
    await asyncio.to_thread(cluster_3.create_topic, name, PARTITIONS_COUNT, replication_factor=3)
    return name


@pytest.fixture
def members(cluster_3, topic, unique_name):
    group = unique_name("group")
    return lambda: [Member(cluster_3, group, topic, **NAMED, member_name=name) for name in NAMES]


def seen(*members):
    return set().union(*(member.seen() for member in members))


async def test_3_static_members_that_restart_with_every_broker_come_back_to_their_own(cluster_3, members):
    before, after = members(), members()
    async with running(*before):
        await shared_out(PARTITIONS_COUNT, *before)
        held = [each.partitions for each in before]
        generation = before[0].all(events.RebalanceCompleted)[-1].generation
        for node in cluster_3.nodes:
            await asyncio.to_thread(node.kill)
        await asyncio.gather(*(each.stop(timeout_ms=500) for each in before))
    await asyncio.to_thread(bring_back, cluster_3)
    try:
        await asyncio.gather(*(each.start() for each in after))
        await shared_out(PARTITIONS_COUNT, *after, seconds=60)
        assert [each.partitions for each in after] == held
        await asyncio.gather(*(each.beats(5) for each in after))
        assert [each.rebalances for each in after] == [1, 1, 1]  # each its own first join
        assert {each.all(events.RebalanceCompleted)[-1].generation for each in after} == {generation}
    finally:
        await asyncio.gather(*(each.stop(timeout_ms=2_000) for each in after))


async def test_6_membership_survives_a_coordinator_that_moves(cluster_3, topic, members):
    running_ones, (_, back, _) = members(), members()
    one, two, three = running_ones
    async with running(*running_ones), load(cluster_3, topic, PARTITIONS_COUNT) as acknowledged:
        await shared_out(PARTITIONS_COUNT, *running_ones)
        held = [each.partitions for each in running_ones]
        before = [each.rebalances for each in running_ones]
        node = await coordinator_of(cluster_3)
        since = [len(each.log) for each in running_ones]
        await asyncio.to_thread(node.kill)

        def has_moved(member, first):
            found = member.all(events.CoordinatorFound, since=first)
            return bool(found) and found[-1].node_id != node.node_id

        await until(lambda: all(map(has_moved, running_ones, since)), 40, one.tail)
        await asyncio.gather(*(each.beats(5, 40) for each in running_ones))
        assert [each.partitions for each in running_ones] == held
        # The new coordinator has the names, too: a restart is not noticed.
        await two.stop()
        async with running(back):
            assert back.partitions == held[1]
            sent = set(acknowledged)
            await until(lambda: seen(one, two, three, back) >= sent, 30, back.tail)
            await asyncio.gather(*(each.beats(3) for each in (one, three)))
            assert [each.rebalances for each in running_ones] == before
        assert [each.error for each in running_ones] == [None] * 3
