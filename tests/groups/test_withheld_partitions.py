"""Partitions that a cooperative leader withholds for an owner that never asks for the next round (KIP-345, KIP-429)."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.groups.scripted import BEAT_MS, SESSION_MS, sleep_ms
from tests.support.group_members import until

PAYMENTS = "payments"
WAIT_MS = 15_000
LONG_MS = 10 * WAIT_MS
SETTINGS = {
    "partition_assignment_strategy": ("cooperative-sticky",),
    "rebalance_timeout_ms": WAIT_MS,
}
NAMED = {**SETTINGS, "member_name": "pod-0", "registration_timeout_ms": LONG_MS}
MOMENT_MS = 500


@pytest.fixture
async def newcomer(group):
    """It is to get one of the two partitions of a static member, which dies before it has given that one up."""
    group.brokers.add_partitions(PAYMENTS, 1)
    await group.member("leader", topics=(PAYMENTS,), **SETTINGS).start()
    owner = await group.member("owner", **NAMED).start()
    await group.shared_out(owner)
    await group.holding(owner)
    newcomer = group.newcomer("newcomer", **SETTINGS)
    await until(lambda: len(group.generations) == 3)
    await sleep_ms(MOMENT_MS)
    owner.die()
    return newcomer


async def test_what_a_name_came_back_without_is_given_away_after_the_rebalance_time_out(group, newcomer):
    decided_ms = group.generations[-1][0]
    await sleep_ms(SESSION_MS)
    back = await group.member("back", **NAMED).start()
    await until(lambda: back.partitions)
    await sleep_ms(WAIT_MS - (group.now_ms - decided_ms) - MOMENT_MS)
    assert (len(back.partitions), newcomer.partitions) == (1, [])
    assert len(group.generations) == 3  # nobody has anything to give up
    assert not group.sent(DescribeGroupsRequest)
    await sleep_ms(2 * BEAT_MS)
    await group.shared_out(back, newcomer)
    assert newcomer.partitions
    (asked,) = group.sent(DescribeGroupsRequest)
    assert asked.who == "leader"
    assert len(group.generations) == 4
    await sleep_ms(3 * WAIT_MS)
    assert len(group.generations) == 4  # nothing was withheld in it
    assert len(group.sent(DescribeGroupsRequest)) == 1


async def test_for_an_owner_that_is_down_no_round_is_held(group, newcomer):
    """It would miss the round too, which would last the whole time-out and withhold the same again."""
    await sleep_ms(3 * WAIT_MS + MOMENT_MS)
    assert newcomer.partitions == []
    assert len(group.generations) == 3
    assert [each.who for each in group.sent(DescribeGroupsRequest)] == ["leader"] * 3
    await group.member("back", **NAMED).start()
    await until(lambda: newcomer.partitions, WAIT_MS / 1000 + 1)
    assert len(group.generations) == 4
