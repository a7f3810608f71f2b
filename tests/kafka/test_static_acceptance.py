"""The acceptance of KIP-345 on one real broker: points 1, 2, 4 and 5. Points 3 and 6 are in test_static_brokers.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from aiogroup import DuplicateStaticMember, FencedInstanceIdError
from aiogroup._core.telemetry import events
from tests.support.group_members import Member, produce, running, shared_out, until
from tests.support.java_member import java_member
from tests.support.kafka import Place
from tests.support.nodes import load

BEAT_MS = 200
SHORT = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
REGISTERED = {**SHORT, "registration_timeout_ms": 30_000}
"""Who is down for longer than the session is kept by the registration time-out, which never ends within a test."""
PARTITIONS_COUNT = 10


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("static")
    await asyncio.to_thread(kafka_cluster.create_topic, name, PARTITIONS_COUNT)
    return name


async def rolling_restart(cluster, topic, group, settings_of):
    """Five members under load, restarted one after the other; gives what the survivors saw of it, and all records."""
    async with AsyncExitStack() as stack, load(cluster, topic, PARTITIONS_COUNT) as acknowledged:

        async def started(number):
            member = Member(cluster, group, topic, **settings_of(number))
            everyone.append(member)
            return await stack.enter_async_context(running(member))

        everyone = []
        members = [(await started(number))[0] for number in range(5)]
        await shared_out(PARTITIONS_COUNT, *members)
        rebalances, kept = 0, 0
        for number in range(5):
            survivors = [each for each in members if each is not members[number]]
            before, held = sum(each.rebalances for each in survivors), members[number].partitions
            assert (await members[number].stop()).is_clean
            await survivors[0].beats(12)  # down for longer than the session time-out
            (members[number],) = await started(number)
            await shared_out(PARTITIONS_COUNT, *members)
            await asyncio.gather(*(each.beats(3) for each in survivors))
            rebalances += sum(each.rebalances for each in survivors) - before
            kept += members[number].partitions == held
        sent = set(acknowledged)
        await until(lambda: set().union(*(each.seen() for each in everyone)) >= sent, 30)
    times = Counter((record.partition, record.offset) for each in everyone for record in each.records)
    return rebalances, kept, len(sent - times.keys()), sum(count - 1 for count in times.values())


@pytest.mark.long
async def test_1_a_rolling_restart_of_static_members_is_not_noticed(kafka_cluster, topic, group):
    static = await rolling_restart(kafka_cluster, topic, group, lambda n: {**REGISTERED, "member_name": f"name-{n}"})
    dynamic = await rolling_restart(kafka_cluster, topic, f"{group}-dynamic", lambda _: SHORT)
    for kind, (rebalances, kept, lost, repeated) in (("static", static), ("dynamic", dynamic)):
        told = f"{rebalances} rebalances at survivors, {kept} of 5 kept theirs, {lost} lost, {repeated} twice"
        print(f"{kind}: {told}")  # noqa: T201 (the two side by side)
    assert static == (0, 5, 0, 0)  # every stop committed all that was processed, so nothing may come twice
    rebalances, _, lost, _ = dynamic
    assert rebalances >= 5 * 4  # each restart is noticed by each of four, mostly twice
    assert lost == 0


@pytest.mark.parametrize("thread", [False, True], ids=["same loop", "heartbeat thread"])
async def test_2_the_older_of_two_with_one_name_is_fenced_and_never_comes_back(kafka_cluster, topic, group, thread):
    older = Member(kafka_cluster, group, topic, **REGISTERED, group_instance_id="one", heartbeat_thread=thread)
    newer = Member(kafka_cluster, group, topic, **REGISTERED, group_instance_id="one")
    async with running(older):
        await shared_out(PARTITIONS_COUNT, older)
        sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 20)
        await until(lambda: older.seen() == sent, what=older.tail)
        async with running(newer):
            joined_at = newer.when(events.RebalanceCompleted)
            await until(lambda: older.error is not None, what=older.tail)
            assert isinstance(older.error, DuplicateStaticMember)
            beats = [at for what, _, at in older.log if what == "HeartbeatSent" and at > joined_at]
            assert len(beats) <= 1  # the first one that comes after the newer's join is refused
            for call in (older.consumer.getone, older.consumer.commit, older.consumer.getmany):
                with pytest.raises(FencedInstanceIdError, match="one"):
                    await call()
            fenced_at = len(older.log)
            await newer.beats(10)
            told = {what for what, _, _ in older.log[fenced_at:]}
            assert not told & {"HeartbeatSent", "RebalanceStarted", "OffsetsCommitted", "MemberMoved"}
            assert older.count("lost") == 1
            assert not older.consumer.assignment()
            more = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 20)
            await until(lambda: newer.seen() >= more, what=newer.tail)
            assert newer.rebalances == 1
            assert newer.error is None
        assert not older.seen() & more


@pytest.mark.parametrize("thread", [False, True], ids=["same loop", "heartbeat thread"])
async def test_2_a_member_that_was_silent_does_not_take_its_name_back(kafka_cluster, topic, group, thread):
    stalls = {**REGISTERED, "max_poll_interval_ms": 1_500, "member_name": "one", "heartbeat_thread": thread}
    older = Member(kafka_cluster, group, topic, **stalls)
    newer = Member(kafka_cluster, group, topic, **REGISTERED, member_name="one")
    async with running(older):
        await shared_out(PARTITIONS_COUNT, older)
        older.hold()
        await produce(kafka_cluster, topic, PARTITIONS_COUNT, 10)
        await until(lambda: older.count(events.PollIntervalExceeded), what=older.tail)
        async with running(newer):
            older.release()  # it asks for records again
            await until(lambda: older.error is not None, what=older.tail)
            assert isinstance(older.error, FencedInstanceIdError)
            await newer.beats(10)
            assert newer.error is None
            assert newer.rebalances == 1


async def test_4_static_dynamic_and_java_members_share_a_group(kafka_cluster, topic, group, tmp_path):
    same = {**SHORT, "session_timeout_ms": 20_000, "partition_assignment_strategy": ("range",)}
    static = Member(kafka_cluster, group, topic, **same, member_name="name-1")
    dynamic = Member(kafka_cluster, group, topic, **same)

    def java(name, instance_id=None):
        directory = tmp_path / name
        directory.mkdir()
        options = {"assignor": "range", "session_timeout_ms": 20_000, "instance_id": instance_id}
        return java_member(kafka_cluster, directory, group, topic, **options)

    def held(*members):
        return sorted(number for member in members for number in member.partitions)

    async def all_shared(*members):
        everything = list(range(PARTITIONS_COUNT))
        await until(lambda: held(*members) == everything and all(each.partitions for each in members), 40, static.tail)

    async def all_read(*members):
        sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT, 40)
        await until(lambda: set().union(*(each.seen() for each in members)) >= sent, 20, static.tail)
        assert sum(len(each.seen() & sent) for each in members) == len(sent)  # none by two

    async with running(static, dynamic):
        with java("dynamic") as java_dynamic, java("static", "name-2") as java_static:
            members = (static, dynamic, java_dynamic, java_static)
            await all_shared(*members)
            await all_read(*members)
            before = (dynamic.rebalances, len(java_dynamic.all("partitions_assigned")))
            mine, javas = static.partitions, java_static.partitions
            assert (await static.stop()).is_clean
            await asyncio.to_thread(java_static.stop)
            again = Member(kafka_cluster, group, topic, **same, member_name="name-1")
            async with running(again):
                with java("static-again", "name-2") as java_again:
                    await until(lambda: java_again.partitions, 30, java_again.tail)
                    assert (again.partitions, java_again.partitions) == (mine, javas)
                    await all_read(again, dynamic, java_dynamic, java_again)
                    assert (dynamic.rebalances, len(java_dynamic.all("partitions_assigned"))) == before


async def test_5_a_partition_added_while_the_leader_is_down_is_noticed_too(kafka_cluster, topic, group):
    def member(name):
        return Member(kafka_cluster, group, topic, **REGISTERED, metadata_max_age_ms=300_000, member_name=name)

    one, two = member("one"), member("two")
    async with running(one, two):
        await shared_out(PARTITIONS_COUNT, one, two)
        assert one.is_leader
        await one.stop()
        await Place(kafka_cluster, topic, group).add_partitions(PARTITIONS_COUNT + 1)
        back = member("one")
        async with running(back):
            await shared_out(PARTITIONS_COUNT + 1, back, two)
            assert back.all(events.RebalanceStarted)[-1].why == f"partitions of {topic} are assigned to no member"
            assert back.rebalances == 2
            sent = await produce(kafka_cluster, topic, PARTITIONS_COUNT + 1, PARTITIONS_COUNT + 1)
            await until(lambda: back.seen() | two.seen() >= sent, what=back.tail)


@pytest.mark.parametrize("grows", ["what the leader reads", "what only another member reads"])
async def test_5_a_partition_added_after_the_leader_restarted_is_noticed(
    kafka_cluster, topic, group, unique_name, grows
):
    theirs = unique_name("theirs")
    await asyncio.to_thread(kafka_cluster.create_topic, theirs, 1)
    topics = {"one": topic, "two": theirs}

    def member(name):
        return Member(kafka_cluster, group, topics[name], **REGISTERED, member_name=name)

    one, two = member("one"), member("two")
    async with running(one, two):
        await until(lambda: one.is_ready and two.partitions == [0], what=two.tail)
        assert one.is_leader
        await one.stop()
        back = member("one")
        async with running(back):
            assert back.is_leader
            assert back.partitions == list(range(PARTITIONS_COUNT))
            assert (one.rebalances, two.rebalances) == (2, 1)
            grown, by = (topic, back) if grows == "what the leader reads" else (theirs, two)
            count = len(by.partitions)
            await Place(kafka_cluster, grown, group).add_partitions(count + 1)
            await until(lambda: by.partitions == list(range(count + 1)) and by.is_ready, 20, back.tail)
            started = back.all(events.RebalanceStarted)[-1]
            assert started.why == f"partitions of {grown} changed"
            sent = await produce(kafka_cluster, grown, count + 1, count + 1)
            await until(lambda: by.seen() >= sent, what=by.tail)
