"""Groups that subscribe by a pattern, on real Kafka: a new topic costs one round, whoever notices it first."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup._core.telemetry import events
from tests.support.group_members import Member, until

OFTEN_MS, SELDOM_MS = 500, 300_000
STRATEGIES = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])


async def start(cluster, group, prefix, age_ms, strategy):
    member = Member(cluster, group, metadata_max_age_ms=age_ms, partition_assignment_strategy=[strategy])
    member.consumer.subscribe(pattern=f"{prefix}-.*")
    return await member.start()


def generations(members):
    """Those of the last rounds that were completed."""
    return {each.all(events.RebalanceCompleted)[-1].generation for each in members}


@STRATEGIES
async def test_a_new_topic_costs_one_round_of_all_members(kafka_cluster, unique_name, group, strategy):
    prefix = unique_name("pattern")
    await asyncio.to_thread(kafka_cluster.create_topic, f"{prefix}-first", 2)
    members = []
    try:
        members.append(await start(kafka_cluster, group, prefix, SELDOM_MS, strategy))
        members.append(await start(kafka_cluster, group, prefix, OFTEN_MS, strategy))
        await until(lambda: all(each.partitions for each in members), what=members[0].tail)
        await until(lambda: len(generations(members)) == 1, what=members[0].tail)
        (generation,) = generations(members)
        await asyncio.to_thread(kafka_cluster.create_topic, f"{prefix}-second", 2)
        topics = {f"{prefix}-first", f"{prefix}-second"}
        await until(lambda: all(each.consumer.subscription() == topics for each in members), what=members[0].tail)
        await until(lambda: sum(len(each.consumer.assignment()) for each in members) == 4, what=members[0].tail)
        await until(lambda: generations(members) == {generation + 1}, what=members[0].tail)
    finally:
        for member in members:
            await member.stop()
