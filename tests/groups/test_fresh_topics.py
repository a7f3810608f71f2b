"""Members of a pattern look for topics before they join: a new topic costs one round, whoever notices it first."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import TOPIC, sleep_ms
from tests.support.group_members import named, until

PAYMENTS = "payments"
A, B = named(TOPIC, 0, 1)
(P,) = named(PAYMENTS, 0)
OFTEN_MS, SELDOM_MS = 1_000, 3_600_000
STRATEGIES = pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])


async def of_pattern(group, name, age_ms, **settings):
    member = group.member(name, topics=(), metadata_max_age_ms=age_ms, **settings)
    member.call("subscribe", None, "(orders|pay.*)")
    await member.start()
    return member


def all_held(*members):
    return sorted(tp for member in members for tp in member.consumer.assignment())


@STRATEGIES
@pytest.mark.parametrize("ages_ms", [(OFTEN_MS, SELDOM_MS, SELDOM_MS), (SELDOM_MS, SELDOM_MS, OFTEN_MS)])
async def test_a_new_topic_costs_one_round_of_all_members(group, strategy, ages_ms):
    settings = {"partition_assignment_strategy": [strategy]}
    members = [await of_pattern(group, f"m{n}", age_ms, **settings) for n, age_ms in enumerate(ages_ms)]
    await until(lambda: all_held(*members) == [A, B], 60)
    await sleep_ms(5_000)
    rounds_count, counts = len(group.generations), [member.count("assigned") for member in members]
    group.brokers.add_partitions(PAYMENTS, 1)
    await until(lambda: all_held(*members) == [A, B, P], 10)
    await sleep_ms(10_000)
    assert all_held(*members) == [A, B, P]
    assert all(PAYMENTS in member.consumer.subscription() for member in members)
    assert len(group.generations) == rounds_count + 1
    assert [member.count("assigned") for member in members] == [count + 1 for count in counts]


async def test_a_leader_of_a_pattern_assigns_the_partitions_that_are_there_when_it_joins(group):
    (added,) = named(TOPIC, 2)
    leader = await of_pattern(group, "leader", SELDOM_MS)
    await sleep_ms(5_000)
    group.brokers.add_partitions(TOPIC, 1)
    other = group.newcomer("other", reads=False)
    await until(lambda: all_held(leader, other) == [A, B, added], 10)
    assert len(group.generations) == 2


async def test_what_was_looked_up_since_the_reason_for_the_round_appeared_is_not_asked_for_again(group):
    member = await of_pattern(group, "m", OFTEN_MS)
    await sleep_ms(4_500)
    group.brokers.add_partitions(PAYMENTS, 1)
    asked_count = len(group.sent(MetadataRequest))
    await until(lambda: all_held(member) == [A, B, P], 10)
    assert len(group.sent(MetadataRequest)) == asked_count + 1


async def test_a_start_looks_its_topics_up_once(group):
    await of_pattern(group, "m", SELDOM_MS)
    await sleep_ms(5_000)
    assert len(group.sent(MetadataRequest)) == 1


async def test_a_member_of_named_topics_joins_without_a_look_at_the_metadata(group):
    member = await group.member("m", reads=False, metadata_max_age_ms=SELDOM_MS).start()
    asked_count = len(group.sent(MetadataRequest))
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: member.count(events.RebalanceCompleted) == 2, 60, member.tail)
    assert len(group.sent(MetadataRequest)) == asked_count


@STRATEGIES
async def test_a_member_joins_also_when_no_broker_tells_it_the_topics(group, strategy):
    member = await of_pattern(group, "m", SELDOM_MS, partition_assignment_strategy=[strategy], request_timeout_ms=6_000)
    group.network.withheld = (MetadataRequest,)
    since_ms = group.now_ms
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: member.count(events.RebalanceCompleted) == 2, 60, member.tail)
    (join,) = group.sent(JoinGroupRequest, since_ms=since_ms)
    assert 5_000 < join.at_ms - since_ms <= 6_500
    assert group.sent(MetadataRequest, since_ms=since_ms)
    assert not group.expired
