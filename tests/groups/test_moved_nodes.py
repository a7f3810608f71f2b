"""A node gets another address: whatever it did for the group, and whatever is at the former one, records flow again.

Each channel, metadata, join, heartbeat, commit and fetch, goes to the node that moves in one of its roles.
"""

from __future__ import annotations

import asyncio

import pytest

from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup.embedded import virtual_time
from tests.groups.scripted import SESSION_MS, TOPIC, Group, sleep_ms
from tests.support import group_members
from tests.support.group_members import until

MOVED, OTHER, THIRD = 1, 2, 3
ROLES = {
    "leader": {"leader": MOVED, "coordinator": OTHER},
    "coordinator": {"leader": OTHER, "coordinator": MOVED},
    "both": {"leader": MOVED, "coordinator": MOVED},
    "neither": {"leader": OTHER, "coordinator": THIRD},
    "follower": {"leader": OTHER, "coordinator": OTHER, "client_rack": f"rack-{MOVED}"},
}
FORMER = ("refused", "dropped", "another", "open")
BOOTSTRAP = {"all": (MOVED, OTHER, THIRD), "moved": (MOVED,), "other": (THIRD,)}
MOMENTS = ("at rest", "a join waits", "away for longer than a session", "the brokers tell it late")
LATE_MS = 3_000
AGAIN_S = 15
BY_RACK = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


async def flows(group, member, *, within_s=AGAIN_S):
    """Records come, and are committed."""
    number = len(member.records)
    group.produce(0)
    await until(lambda: len(member.records) > number, within_s, member.tail)
    await asyncio.wait_for(member.commit(), within_s)


@pytest.fixture
async def group():
    loop = asyncio.get_running_loop()
    with virtual_time(loop, group_members):
        made = Group(loop, 3, **BY_RACK)
        yield made
        await made.end()


@pytest.mark.parametrize("bootstrap", BOOTSTRAP)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("former", FORMER)
@pytest.mark.parametrize("role", ROLES)
async def test_records_flow_again_after_a_node_has_moved(group, role, former, moment, bootstrap):
    await moved(group, former, BOOTSTRAP[bootstrap], moment, **ROLES[role])


async def moved(group, former, bootstrap, moment, *, leader, coordinator, client_rack=""):
    brokers, network = group.brokers, group.network
    brokers.move_coordinator(coordinator, 0)
    for number in range(2):
        brokers.move_leader(TOPIC, number, leader)
    nodes = brokers.cluster.nodes
    settings = {
        "bootstrap_servers": [f"{nodes[each].host}:{nodes[each].port}" for each in bootstrap],
        "client_rack": client_rack,
        "metadata_max_age_ms": 300_000,
        "fetch_max_wait_ms": 500,
        "request_timeout_ms": 5_000,
    }
    (member,) = await group.joined("a", **settings)
    await flows(group, member)
    if moment == "a join waits":
        await group.holding(member)
        newcomer = group.newcomer("b", **settings)
        await until(lambda: group.sent(JoinGroupRequest, "b"))
    network.move(MOVED, former, LATE_MS if moment == "the brokers tell it late" else 0)
    if moment == "away for longer than a session":
        network.block(member.process, MOVED, SESSION_MS + 5_000)
        told = await health_while(member, SESSION_MS + 5_000)
        if former != "open" and coordinator == MOVED:
            assert not all(told), "nothing was committed, and health said nothing"
    if moment == "a join waits":
        await sleep_ms(2_000)
        member.release()
        await group.shared_out(member, newcomer)
        reader = next(each for each in (member, newcomer) if 0 in each.partitions)
        await flows(group, reader)
    else:
        await flows(group, member)
        await group.shared_out(member)
    assert member.is_ready


async def test_a_coordinator_whose_former_address_drops_packets_is_found_while_the_session_lasts(group):
    """Nothing closes the connection on which the heartbeats go unanswered."""
    group.brokers.move_coordinator(MOVED, 0)
    (member,) = await group.joined("a", metadata_max_age_ms=300_000)
    group.network.move(MOVED, "dropped", 0)
    await sleep_ms(2 * SESSION_MS)
    assert not member.count("lost"), member.tail()
    assert member.is_ready


async def health_while(member, duration_ms):
    """Whether it was ready, each half second."""
    told = []
    for _ in range(duration_ms // 500):
        await sleep_ms(500)
        told.append(member.is_ready)
    return told
