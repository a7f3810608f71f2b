"""Brokers that die, freeze, move leaders and come back: membership survives and no record is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from aiogroup import Consumer
from aiogroup._core.telemetry import events
from aiogroup.errors import AiogroupError
from tests.support.group_members import Member, named, produce, running, shared_out, until
from tests.support.nodes import bring_back, coordinator_of, load
from tests.support.punctuality import lateness

PARTITIONS_COUNT = 6


@pytest.fixture
async def topic(cluster_3, unique_name):
    name = unique_name("brokers")
    await asyncio.to_thread(cluster_3.create_topic, name, PARTITIONS_COUNT, replication_factor=3)
    return name


async def goes_on(acknowledged, *members, seconds=30.0):
    """Records that are acknowledged from now on are processed."""
    before = set(acknowledged)
    await until(lambda: len(acknowledged) > len(before) + 50, seconds, lambda: "nothing is acknowledged")
    fresh = acknowledged - before
    await until(lambda: seen(members) >= fresh, seconds, lambda: "\n---\n".join(each.tail() for each in members))


def seen(members):
    return set().union(*(member.seen() for member in members))


async def settled(*members):
    """Each has some; cooperative ones are ready, and read, before their second round is over."""
    await until(lambda: all(each.partitions and "rebalances" not in each.consumer.health().why for each in members))
    await shared_out(PARTITIONS_COUNT, *members)


async def nothing_is_lost(acknowledged, *members):
    await until(
        lambda: seen(members) >= acknowledged,
        30,
        lambda: f"{sorted(acknowledged - seen(members))[:20]}\n" + "\n---\n".join(each.tail() for each in members),
    )
    for member in members:
        last = {}
        for what, detail, _ in member.log:
            if what == "assigned":
                last.clear()
            elif what == "record":
                partition, offset = detail
                assert last.get(partition, offset - 1) == offset - 1, f"{detail} behind {last[partition]}"
                last[partition] = offset


async def test_membership_survives_a_killed_coordinator(cluster_3, topic, group):
    members = [Member(cluster_3, group, topic, auto_commit_interval_ms=200) for _ in range(2)]
    async with running(*members):
        await shared_out(PARTITIONS_COUNT, *members)
        rebalances = [each.rebalances for each in members]
        held = [each.partitions for each in members]
        async with load(cluster_3, topic, PARTITIONS_COUNT) as acknowledged:
            await goes_on(acknowledged, *members)
            node = await coordinator_of(cluster_3)
            await asyncio.to_thread(node.kill)
            await until(lambda: all(each.count(events.CoordinatorLost) for each in members))
            await goes_on(acknowledged, *members)
            since = [len(each.log) for each in members]
            await until(
                lambda: all(
                    each.count(events.OffsetsCommitted, since=start)
                    and each.count(events.HeartbeatAcknowledged, since=start)
                    for each, start in zip(members, since, strict=True)
                ),
                what=lambda: "\n---\n".join(each.tail() for each in members),
            )
            assert await coordinator_of(cluster_3) is not node
        await nothing_is_lost(acknowledged, *members)
        assert [each.rebalances for each in members] == rebalances
        assert [each.partitions for each in members] == held
        assert not any(each.count("lost") for each in members)


async def test_restarts_one_by_one_under_load(cluster_3, topic, group):
    """Leaders and the coordinator move, thrice: no rebalance, no loss, no repeat, whatever kind the members are of."""
    kinds = {
        "dynamic": [{}, {}],
        "static": [{"member_name": "one"}, {"member_name": "two"}],
        "cooperative": [{"partition_assignment_strategy": "cooperative-sticky"}] * 2,
    }
    groups = {
        kind: [Member(cluster_3, f"{group}-{kind}", topic, auto_commit_interval_ms=200, **each) for each in settings]
        for kind, settings in kinds.items()
    }
    members = [member for each in groups.values() for member in each]
    async with running(*members):
        for each in groups.values():
            await settled(*each)
        since = [len(member.log) for member in members]
        async with load(cluster_3, topic, PARTITIONS_COUNT) as acknowledged:
            for node in cluster_3.nodes:
                await asyncio.to_thread(node.stop)
                await asyncio.gather(*(goes_on(acknowledged, *each) for each in groups.values()))
                await asyncio.to_thread(node.start)
        for kind, each in groups.items():
            await nothing_is_lost(acknowledged, *each)
            read = [(record.partition, record.offset) for member in each for record in member.records]
            assert len(read) == len(set(read)), f"{kind}: a record came twice"
        for member, start in zip(members, since, strict=True):
            noticed = ("RebalanceStarted", "RebalanceCompleted", "revoked", "assigned", "lost")
            assert not member.count(*noticed, since=start), member.tail()
            assert member.error is None
        assert any(member.count(events.FetchFailed) for member in members)  # a leader did move


async def test_a_frozen_coordinator_is_noticed_within_the_session(cluster_3, topic, group):
    session_ms, beat_ms = 3_000, 300
    settings = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": beat_ms, "auto_commit_interval_ms": 200}
    # Fetches of what the frozen node leads must give up, too; a look-up must not hang on it for that long.
    member = Member(cluster_3, group, topic, **settings, request_timeout_ms=8_000)
    async with running(member), load(cluster_3, topic, PARTITIONS_COUNT) as acknowledged:
        await goes_on(acknowledged, member)
        node = await coordinator_of(cluster_3)
        last_beat = max(at for what, _, at in member.log if what == "HeartbeatAcknowledged")
        since = len(member.log)
        node.pause()
        async with lateness() as late:
            await until(lambda: member.count(events.CoordinatorLost, since=since), what=member.tail)
        took_ms = (member.when(events.CoordinatorLost, since) - last_beat) * 1000
        assert took_ms - late.ms < session_ms + 2 * beat_ms + 200
        since = len(member.log)
        await until(lambda: member.count(events.HeartbeatAcknowledged, since=since), 15, member.tail)
        await goes_on(acknowledged, member)
        node.resume()
        await goes_on(acknowledged, member)
        await nothing_is_lost(acknowledged, member)
        assert not member.error


async def test_every_call_ends_while_all_brokers_are_frozen(cluster_3, topic, group):
    limit_ms, request_ms = 1_500, 1_000
    settings = {"default_api_timeout_ms": limit_ms, "request_timeout_ms": request_ms, "enable_auto_commit": False}
    settings |= {"session_timeout_ms": 20_000}
    sent = await produce(cluster_3, topic, PARTITIONS_COUNT, 12)
    member = Member(cluster_3, group, topic, **settings)
    idle = Consumer(topic, bootstrap_servers=cluster_3.bootstrap_servers, group_id=f"{group}-idle", **settings)
    late = Consumer(topic, bootstrap_servers=cluster_3.bootstrap_servers, group_id=f"{group}-late", **settings)
    alone = Consumer(bootstrap_servers=cluster_3.bootstrap_servers, auto_offset_reset="earliest", **settings)
    async with running(member), AsyncExitStack() as stack:
        for each in (idle, late, alone):
            stack.push_async_callback(each.stop, timeout_ms=2_000)
        await alone.start()
        await idle.start()
        await until(lambda: member.seen() == sent, what=member.tail)
        tps = named(topic, *range(PARTITIONS_COUNT))
        consumer = member.consumer
        calls = {
            "commit": consumer.commit,
            "commit of offsets": lambda: consumer.commit({tps[0]: 1}),
            "committed": lambda: consumer.committed(tps[0]),
            "position": lambda: consumer.position(tps[0]),
            "position that is not known": lambda: alone.position(tps[0]),
            "seek_to_beginning": consumer.seek_to_beginning,
            "seek_to_end": consumer.seek_to_end,
            "seek_to_committed": consumer.seek_to_committed,
            "beginning_offsets": lambda: consumer.beginning_offsets(tps),
            "end_offsets": lambda: consumer.end_offsets(tps),
            "end_offsets of an unknown topic": lambda: consumer.end_offsets(named("unknown", 0)),
            "offsets_for_times": lambda: consumer.offsets_for_times(dict.fromkeys(tps, 0)),
            "lag": consumer.lag,
            "topics": consumer.topics,
            "getmany": lambda: alone.getmany(timeout_ms=300),
            "poll": lambda: alone.poll(timeout_ms=300),
            "start": late.start,
        }
        for node in cluster_3.nodes:
            node.pause()
        alone.assign(tps)
        took, ended = {}, {}

        async def timed(name, call):
            began_at = time.monotonic()
            try:
                ended[name] = await asyncio.wait_for(call(), 20)
            except (AiogroupError, TimeoutError) as error:
                ended[name] = error
            took[name] = round((time.monotonic() - began_at) * 1000)

        async with lateness() as late:
            for name in ("getmany", "poll"):  # one request for records at a time
                await timed(name, calls.pop(name))
            await asyncio.gather(*(timed(*call) for call in calls.items()))
            await timed("stop", lambda: idle.stop(timeout_ms=1_000))
        limits = {"getmany": 300, "poll": 300, "topics": request_ms, "stop": 1_000, "start": request_ms}
        over = {name: ms for name, ms in took.items() if ms > limits.get(name, limit_ms) + 500 + late.ms}
        assert not over, f"{over}\nthe loop was late by {late.ms:.0f} ms\n{ended}"
        assert not ended["stop"].is_clean
        for node in cluster_3.nodes:
            node.resume()
        await asyncio.to_thread(cluster_3.await_ready)
        await until(lambda: member.is_ready, 30, member.tail)
        more = await produce(cluster_3, topic, PARTITIONS_COUNT, 12)
        await until(lambda: member.seen() >= more, 30, member.tail)
        await consumer.commit()
        for tp in tps:
            assert await consumer.committed(tp) == 4
        await until(lambda: alone.assignment() == set(tps))
        records = await alone.getmany(timeout_ms=10_000)
        assert records.count


async def test_the_whole_cluster_may_die_and_come_back(cluster_3, topic, group):
    members = [Member(cluster_3, group, topic, auto_commit_interval_ms=200) for _ in range(2)]
    async with running(*members):
        await shared_out(PARTITIONS_COUNT, *members)
        sent = await produce(cluster_3, topic, PARTITIONS_COUNT, 60)
        await until(lambda: seen(members) == sent)
        for node in cluster_3.nodes:
            node.kill()
        await until(lambda: all(each.count(events.CoordinatorLost) for each in members))
        await asyncio.to_thread(bring_back, cluster_3)
        more = await produce(cluster_3, topic, PARTITIONS_COUNT, 60)
        await until(lambda: seen(members) >= more, 40, lambda: "\n---\n".join(each.tail() for each in members))
        await shared_out(PARTITIONS_COUNT, *members, seconds=40)
        assert not any(each.error for each in members)
