"""Assignors on real Kafka: sticky beside Java's, one for another without a stop, one's own, and one that is broken."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from aiogroup import Assignor, AssignorError
from aiogroup._core.telemetry import events
from tests.support.group_members import Member, named, produce, running, shared_out, until
from tests.support.java_member import java_member

PARTITIONS_COUNT = 7
SESSION_MS = 3_000


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("sticky")
    await asyncio.to_thread(kafka_cluster.create_topic, name, PARTITIONS_COUNT)
    return name


@asynccontextmanager
async def admin(cluster):
    client = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def all_held(java, *members):
    held = [java.partitions, *(member.partitions for member in members)]
    return all(held) and sorted(number for each in held for number in each) == list(range(PARTITIONS_COUNT))


@pytest.mark.parametrize("leader", ["java", "ours"])
async def test_java_and_we_stick_to_what_we_held(kafka_cluster, topic, group, tmp_path, leader):
    settings = {"session_timeout_ms": SESSION_MS, "partition_assignment_strategy": ("sticky",)}
    first, second = (Member(kafka_cluster, group, topic, **settings) for _ in range(2))

    def told():
        return f"{java.partitions} {java.tail()}\n{first.tail()}\n{second.tail()}"

    def start_java():
        return java_member(kafka_cluster, tmp_path, group, topic, assignor="sticky", session_timeout_ms=SESSION_MS)

    async def check():
        """Two became three, then two again: whoever stayed kept what it might."""
        await until(lambda: all_held(java, first) and first.is_ready, 30, told)
        assert first.is_leader == (leader == "ours")
        before = {"java": set(java.partitions), "first": set(first.partitions)}
        async with running(second):
            await until(lambda: all_held(java, first, second) and second.is_ready, 30, told)
            assert len(java.partitions) + len(first.partitions) == 5
            assert set(java.partitions) <= before["java"]
            assert set(first.partitions) <= before["first"]
            between = {"java": set(java.partitions), "first": set(first.partitions)}
            sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 70)
            await until(lambda: java.seen() | first.seen() | second.seen() >= sent, 20, told)
        await until(lambda: all_held(java, first) and first.is_ready, 30, told)
        assert set(java.partitions) >= between["java"]
        assert set(first.partitions) >= between["first"]

    if leader == "java":
        with start_java() as java:
            await until(lambda: len(java.partitions) == PARTITIONS_COUNT, 30, lambda: java.tail())
            async with running(first):
                await check()
    else:
        async with running(first):
            with start_java() as java:
                await check()


def sizes(*members):
    return sorted(len(member.consumer.assignment()) for member in members)


UNEVEN, EVEN = [0, 2], [1, 1]
"""How range, which takes each topic for itself, divides two topics of one partition; and how the others do."""


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        ("range", "sticky", UNEVEN, EVEN),
        ("sticky", "range", EVEN, UNEVEN),
        ("range", "cooperative-sticky", UNEVEN, EVEN),
    ],
)
async def test_one_for_another_without_a_stop(kafka_cluster, unique_name, group, old, new, before, after):
    topics = [unique_name("single") for _ in range(2)]
    for topic in topics:
        await asyncio.to_thread(kafka_cluster.create_topic, topic, 1)
    everybody = []

    async def start(*strategy):
        member = Member(kafka_cluster, group, *topics, partition_assignment_strategy=strategy)
        everybody.append(member)
        return await member.start()

    async def records_flow():
        for topic in topics:
            await produce(kafka_cluster, topic, 1, 5)
            sent[topic] += 5
        read = [[(r.topic, r.offset) for r in member.records] for member in everybody]
        await until(lambda: {(r.topic, r.offset) for m in everybody for r in m.records} >= wanted(), 20, lambda: read)

    def wanted():
        return {(topic, offset) for topic, count in sent.items() for offset in range(count)}

    async def settled(sizes_then):
        await until(
            lambda: sizes(*members) == sizes_then and all(member.is_ready for member in members),
            20,
            lambda: "\n---\n".join(member.tail() for member in members),
        )
        await records_flow()

    sent = dict.fromkeys(topics, 0)
    members = [await start(old), await start(old)]
    try:
        await settled(before)
        for strategy, sizes_then in (((old, new), [before, before]), ((new,), [after, after])):
            for place in range(2):
                await members[place].stop()
                await records_flow()  # the other one has it all meanwhile
                members[place] = await start(*strategy)
                await settled(sizes_then[place])
        assert [member.error for member in everybody] == [None] * 6
        seen = [(r.topic, r.offset) for member in everybody for r in member.records]
        assert sorted(seen) == sorted(wanted())  # each once
        for member in members:  # one JoinGroup for each rebalance, however many assignors it offers
            assert member.count(events.RebalanceFailed) == 0
    finally:
        for member in everybody:
            await member.stop(timeout_ms=2_000)


class LastTakesAll(Assignor):
    name = "last-takes-all"

    def assign(self, members, partitions, racks):
        last = max(members)
        return {last: named(*(topic for topic in partitions), *range(partitions[min(partitions)]))}


class Twice(LastTakesAll):
    name = "twice"

    def assign(self, members, partitions, racks):
        tps = [tp for each in super().assign(members, partitions, racks).values() for tp in each]
        return dict.fromkeys(members, tps)


async def test_ones_own_divides(kafka_cluster, topic, group):
    settings = {"partition_assignment_strategy": (LastTakesAll(), "range")}
    first, second = (Member(kafka_cluster, group, topic, **settings) for _ in range(2))
    async with running(first, second):
        await shared_out(PARTITIONS_COUNT, first, second)
        assert sorted(len(member.partitions) for member in (first, second)) == [0, PARTITIONS_COUNT]


async def test_a_broken_answer_reaches_nobody(kafka_cluster, topic, group):
    settings = {"partition_assignment_strategy": (Twice(),)}
    leader, other = (Member(kafka_cluster, group, topic, **settings) for _ in range(2))
    async with running(leader):
        await shared_out(PARTITIONS_COUNT, leader)  # alone, everything is given once
        async with running(other):
            await until(lambda: leader.error is not None, 20, lambda: f"{leader.tail()}\n{other.tail()}")
            assert type(leader.error) is AssignorError
            assert "'twice' gave" in str(leader.error)
            assert "-0 twice, to " in str(leader.error)
            assert leader.partitions == []
            await shared_out(PARTITIONS_COUNT, other)  # the group goes on without the one that failed
            assert other.error is None


async def test_members_read_what_is_in_their_rack(kafka_cluster_3, unique_name, group):
    """KIP-881. devkafka's node n is in rack-n; with one replica a partition is in one rack alone."""
    topic, count = unique_name("racks"), 6
    await asyncio.to_thread(kafka_cluster_3.create_topic, topic, count)
    async with admin(kafka_cluster_3) as client:
        (described,) = await client.describe_topics([topic])
    rack_of = {each["partition"]: f"rack-{each['leader']}" for each in described["partitions"]}
    racks = [f"rack-{n}" for n in (1, 2, 3)]
    members = [Member(kafka_cluster_3, group, topic, client_rack=rack) for rack in racks]
    async with running(*members):
        await shared_out(count, *members)
        for member, rack in zip(members, racks, strict=True):
            assert len(member.partitions) == 2
            near = [number for number in member.partitions if rack_of[number] == rack]
            assert len(near) == min(2, list(rack_of.values()).count(rack))
