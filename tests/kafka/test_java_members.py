"""Kafka's own Java consumer and ours in one group: each assignor, each as leader, dynamic and static."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest
from support.group_members import Member, produce, running, until
from support.java_member import java_member

from aiogroup.telemetry import events

PARTITIONS_COUNT = 5
SESSION_MS = 2_000


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("shared")
    await asyncio.to_thread(kafka_cluster.create_topic, name, PARTITIONS_COUNT)
    return name


@pytest.fixture
def group(unique_name):
    return unique_name("group")


async def shared_with_java(java, *members):
    """Wait until Java and ours hold every partition exactly once, none of them nothing."""

    def shared():
        held = [java.partitions, *(member.partitions for member in members)]
        return all(held) and sorted(chain(*held)) == list(range(PARTITIONS_COUNT))

    await until(shared, 30, lambda: f"{java.partitions} {java.tail()}\n" + "\n".join(m.tail() for m in members))


async def all_read(cluster, topic, java, *members):
    sent = await produce(cluster, topic, PARTITIONS_COUNT, 50)

    def read():
        return java.seen().union(*(member.seen() for member in members)) >= sent

    await until(read, 20, lambda: f"{len(java.seen())} {[len(m.seen()) for m in members]} {java.tail()}")
    shares = [java.seen() & sent, *(member.seen() & sent for member in members)]
    assert sum(map(len, shares)) == len(sent)  # none by two
    assert all(shares)
    return sent


def expected(assignor, order):
    """What Java's assignor gives to members in this order of ids (static names sort by name)."""
    if assignor == "roundrobin":
        return {name: [n for n in range(PARTITIONS_COUNT) if n % len(order) == i] for i, name in enumerate(order)}
    share, extra = divmod(PARTITIONS_COUNT, len(order))
    starts = [i * share + min(i, extra) for i in range(len(order) + 1)]
    return {name: list(range(starts[i], starts[i + 1])) for i, name in enumerate(order)}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
@pytest.mark.parametrize("leader", ["java", "ours"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
async def test_java_and_we_share_a_group(kafka_cluster, topic, group, tmp_path, assignor, leader, kind):
    settings = {"session_timeout_ms": SESSION_MS, "partition_assignment_strategy": (assignor,)}
    static = kind == "static"
    first, second = (
        Member(kafka_cluster, group, topic, **settings, **({"group_instance_id": name} if static else {}))
        for name in ("name-1", "name-3")
    )
    instance = {"instance_id": "name-2"} if static else {}

    def start_java():
        return java_member(
            kafka_cluster, tmp_path, group, topic, assignor=assignor, session_timeout_ms=SESSION_MS, **instance
        )

    async def leads(java):
        """Java comes first, then ours."""
        await until(lambda: len(java.partitions) == PARTITIONS_COUNT, 30, java.tail)
        async with running(first, second):
            await check(java)

    async def check(java):
        await shared_with_java(java, first, second)
        assert (first.is_leader, second.is_leader) == (leader == "ours", False)
        if static:
            held = {"name-1": first.partitions, "name-2": java.partitions, "name-3": second.partitions}
            assert held == expected(assignor, sorted(held))
        await all_read(kafka_cluster, topic, java, first, second)
        since, committed = len(first.log), java.seen()
        await asyncio.to_thread(java.stop)
        # A static one stays in the group until its session ends; a dynamic one leaves.
        await until(lambda: sorted(first.partitions + second.partitions) == list(range(PARTITIONS_COUNT)), 20)
        assert first.count(events.RebalanceStarted, since=since) >= 1
        sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 10)
        await until(lambda: first.seen() | second.seen() >= sent, 20, first.tail)
        assert not committed & (first.seen() | second.seen())  # Java had committed what it read

    if leader == "java":
        with start_java() as java:
            await leads(java)
    else:
        async with running(first):
            with start_java() as java:
                await shared_with_java(java, first)
                async with running(second):
                    await check(java)


async def test_java_comes_back_and_goes_on(kafka_cluster, topic, group, tmp_path):
    ours = Member(kafka_cluster, group, topic, session_timeout_ms=SESSION_MS)
    async with running(ours):
        sent = set()
        for _ in range(2):
            with java_member(
                kafka_cluster, tmp_path, group, topic, assignor="range", session_timeout_ms=SESSION_MS
            ) as java:
                await shared_with_java(java, ours)
                rebalances = ours.rebalances
                sent |= await all_read(kafka_cluster, topic, java, ours)
                assert ours.rebalances == rebalances
                java.process.kill()  # without a word: its session ends
            await until(lambda: len(ours.partitions) == PARTITIONS_COUNT and ours.is_ready, 20, ours.tail)
        assert ours.error is None
