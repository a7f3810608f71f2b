"""Static members (KIP-345) on a real broker: time-outs, leaving, old brokers, `enforce_rebalance`."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from aiogroup import InvalidSessionTimeoutError
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.group_members import Member, produce, running, shared_out, until

BEAT_MS = 200
NAMED = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
"""The session never ends within a test."""
WITH_A_NAME = (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetCommitRequest, LeaveGroupRequest)


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("static")
    await asyncio.to_thread(kafka_cluster.create_topic, name, 4)
    return name


def generation(member):
    return member.all(events.RebalanceCompleted)[-1].generation


# The registration time-out.


async def test_a_crashed_member_is_missed_when_its_registration_is_over_and_not_before(kafka_cluster, topic, group):
    short = {**NAMED, "session_timeout_ms": 1_000}
    going = Member(kafka_cluster, group, topic, **short, member_name="one", registration_timeout_ms=3_000)
    other = Member(kafka_cluster, group, topic, **NAMED)
    async with running(going, other):
        await shared_out(4, going, other)
        await going.stop()  # says nothing: to the broker it is a crash
        since, last_beat = len(other.log), going.all_at(events.HeartbeatAcknowledged)[-1]
        await shared_out(4, other)
        missed = other.when(events.RebalanceStarted, since) - last_beat
        assert 3.0 - BEAT_MS / 1000 < missed < 3.0 + 2 * BEAT_MS / 1000 + 1


async def test_a_registration_timeout_beyond_the_brokers_is_refused_by_its_name(kafka_cluster, topic, group):
    member = Member(kafka_cluster, group, topic, **NAMED, member_name="one", registration_timeout_ms=1_800_001)
    with pytest.raises(InvalidSessionTimeoutError, match=r"refuses registration_timeout_ms=1800001.*30 minutes"):
        await member.start()
    longest = Member(kafka_cluster, group, topic, **NAMED, member_name="one", registration_timeout_ms=1_800_000)
    async with running(longest):
        await shared_out(4, longest)


# The expansion time-out.


async def joined_one_by_one(existing, newcomers):
    """Each newcomer asks to join when the one before has waited for three heartbeats."""
    starting = []
    for newcomer in newcomers:
        starting.append(asyncio.get_running_loop().create_task(newcomer.start()))
        await until(lambda: any(event.new == "joining" for event in newcomer.all(events.MemberMoved)))  # noqa: B023
        await existing.beats(3)
    await asyncio.gather(*starting)


async def test_several_newcomers_within_the_expansion_timeout_cause_one_rebalance(kafka_cluster, topic, group):
    settings = {**NAMED, "expansion_timeout_ms": 4_000}
    existing = Member(kafka_cluster, group, topic, **settings, member_name="one")
    newcomers = [Member(kafka_cluster, group, topic, **settings, member_name=name) for name in ("two", "three")]
    async with running(existing):
        await shared_out(4, existing)
        first, since = generation(existing), len(existing.log)
        asked_at = time.monotonic()
        joining = asyncio.get_running_loop().create_task(joined_one_by_one(existing, newcomers))
        await until(lambda: len(newcomers[1].all(events.MemberMoved)), what=existing.tail)
        sent = await produce(kafka_cluster, topic, 4, 8)
        await until(lambda: existing.seen() >= sent, 2, existing.tail)  # it works on while the newcomers wait
        assert not existing.count(events.RebalanceStarted, since=since)
        await until(lambda: existing.count(events.RebalanceStarted, since=since), what=existing.tail)
        held = existing.when(events.RebalanceStarted, since) - asked_at
        try:
            await joining
            await shared_out(4, existing, *newcomers)
            assert 4.0 <= held < 4.0 + 2 * BEAT_MS / 1000 + 1
            await existing.beats(5)
            assert [generation(each) for each in (existing, *newcomers)] == [first + 1] * 3
            assert existing.count(events.RebalanceStarted, since=since) == 1
        finally:
            for each in newcomers:
                await each.stop(leave_group=True)


async def test_without_it_each_newcomer_causes_a_rebalance(kafka_cluster, topic, group):
    existing, *newcomers = (
        Member(kafka_cluster, group, topic, **NAMED, member_name=name) for name in ("one", "two", "three")
    )
    async with running(existing):
        await shared_out(4, existing)
        first = generation(existing)
        try:
            await joined_one_by_one(existing, newcomers)
            await shared_out(4, existing, *newcomers)
            assert generation(existing) > first + 1
        finally:
            for each in newcomers:
                await each.stop(leave_group=True)


# Leaving.


async def test_leave_on_poll_interval_gives_the_partitions_to_others_at_once(kafka_cluster, topic, group):
    slow = {**NAMED, "session_timeout_ms": 1_200, "max_poll_interval_ms": 1_200, "registration_timeout_ms": 60_000}
    static = Member(kafka_cluster, group, topic, **slow, member_name="one", leave_on_poll_interval=True)
    other = Member(kafka_cluster, group, topic, **NAMED)
    async with running(static, other):
        await shared_out(4, static, other)
        since = len(other.log)
        static.hold()
        await produce(kafka_cluster, topic, 4, 4)
        await until(lambda: static.count(events.PollIntervalExceeded), what=static.tail)
        (exceeded,) = static.all(events.PollIntervalExceeded)
        assert exceeded.broker_acts_within_ms == 0
        await shared_out(4, other, seconds=5)
        left = other.when(events.RebalanceStarted, since) - static.when(events.PollIntervalExceeded)
        assert left < BEAT_MS / 1000 + 0.5
        static.release()
        await shared_out(4, static, other)
        assert static.consumer.group_metadata().group_instance_id == "one"
        assert static.error is None


async def test_a_static_member_becomes_a_dynamic_one_and_back(kafka_cluster, topic, group):
    other = Member(kafka_cluster, group, topic, **NAMED)
    async with running(other):
        for name in ("one", None, "one"):
            settings = NAMED if name is None else {**NAMED, "member_name": name}
            member = Member(kafka_cluster, group, topic, **settings)
            async with running(member):
                await shared_out(4, member, other, seconds=10)  # what was before it is gone: its session is 20 s
                assert member.consumer.group_metadata().group_instance_id == name
                await member.stop(leave_group=True)
            await shared_out(4, other, seconds=10)


# A broker before Kafka 2.3.


async def test_a_coordinator_without_names_makes_the_member_dynamic_and_it_says_so(kafka_cluster, topic, group):
    asked = []

    def older(exchange):
        offered = exchange.response
        return dataclasses.replace(
            offered,
            api_keys=tuple(
                dataclasses.replace(each, max_version=4) if each.api_key == JoinGroupRequest.API_KEY else each
                for each in offered.api_keys
            ),
        )

    def note(exchange):
        asked.append((exchange.header.api_version, exchange.request))

    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(ApiVersionsRequest, older)
        for kind in WITH_A_NAME:
            proxy.rewrite(kind, note)
        settings = {**NAMED, "registration_timeout_ms": 60_000, "expansion_timeout_ms": 60_000}
        settings |= {"bootstrap_servers": proxy.bootstrap_servers, "member_name": "one"}
        member = Member(kafka_cluster, group, topic, **settings)
        other = Member(kafka_cluster, group, topic, **NAMED)
        async with running(member):
            sent = await produce(kafka_cluster, topic, 4, 4)
            await until(lambda: member.seen() >= sent, what=member.tail)
            async with running(other):  # nothing is held back
                await shared_out(4, member, other, seconds=10)
            await shared_out(4, member)
            await member.consumer.commit()
            (told,) = member.all(events.StaticMembershipDowngraded)
            assert (told.member_name, told.join_group_version) == ("one", 4)
            assert member.consumer.group_metadata().group_instance_id is None
            await member.stop()
        names = {type(each): getattr(each, "group_instance_id", None) for _, each in asked}
        assert names == dict.fromkeys(WITH_A_NAME)  # each kind was sent, by a member without a name
        joins = [each for _, each in asked if isinstance(each, JoinGroupRequest)]
        assert {each.session_timeout_ms for each in joins} == {20_000}
        leaves = [each for _, each in asked if isinstance(each, LeaveGroupRequest)]
        assert [one.group_instance_id for each in leaves for one in each.members] == [None]


# A rebalance that the application asks for (KIP-568).


@pytest.mark.parametrize("asked", ["leader", "follower"])
async def test_enforce_rebalance_is_a_new_round_for_all_and_says_why(kafka_cluster, topic, group, asked):
    reasons = []
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(JoinGroupRequest, lambda exchange: reasons.append(exchange.request.reason))
        settings = {**NAMED, "bootstrap_servers": proxy.bootstrap_servers}
        leader, follower = (Member(kafka_cluster, group, topic, **settings) for _ in range(2))
        async with running(leader, follower):
            await shared_out(4, leader, follower)
            assert (leader.is_leader, follower.is_leader) == (True, False)
            before = generation(leader)
            # The subscription says in which generation it was last assigned something: new to the broker each time.
            for number in (1, 2):
                member = leader if asked == "leader" else follower
                await member.consumer.enforce_rebalance(f"a colleague asked {number} times")
                await until(lambda: generation(leader) == generation(follower) == before + number, what=leader.tail)  # noqa: B023
                await shared_out(4, leader, follower)
                assert f"a colleague asked {number} times" in reasons


async def test_enforce_rebalance_during_a_rebalance_asks_for_no_second_one(kafka_cluster, topic, group):
    member = Member(kafka_cluster, group, topic, **NAMED)

    async def again(_callback):
        await member.consumer.enforce_rebalance()

    async with running(member):
        await shared_out(4, member)
        before, rounds = generation(member), member.rebalances
        member.in_callback = again
        await member.consumer.enforce_rebalance()
        await member.consumer.enforce_rebalance()
        await until(lambda: member.rebalances == rounds + 1 and member.is_ready, what=member.tail)
        await member.beats(5)
        assert (generation(member), member.rebalances) == (before + 1, rounds + 1)
