"""`heartbeat_thread=True` on real Kafka: what a blocked event loop costs (issue 4, point 7; kip-62-liveness.md, 13)."""

from __future__ import annotations

import threading
import time

import pytest
from support.group_members import Member, produce, running, until
from support.member_process import spawned

from aiogroup.telemetry import events

SESSION_MS = 2_000
BEAT_MS = 200
SHORT = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
BLOCKED_S = 3 * SESSION_MS / 1000
ONE_BY_ONE = {"max_poll_records": 1}


def our_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("aiogroup")]


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("thread")
    kafka_cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def group(unique_name):
    return unique_name("group")


def block_for(seconds):
    """The application's handler, at its first record only."""
    blocked = []

    async def handle(_record):
        if not blocked:
            blocked.append(time.monotonic())
            time.sleep(seconds)  # noqa: ASYNC251 (a library that blocks)

    return handle


@pytest.mark.parametrize("with_thread", [True, False], ids=["thread", "no-thread"])
async def test_a_blocked_loop(kafka_cluster, topic, group, tmp_path, with_thread):
    """With the thread nobody notices; without it the membership is lost, and that is told."""
    member = Member(kafka_cluster, group, topic, **SHORT, heartbeat_thread=with_thread)
    async with running(member), spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as other:
        await until(lambda: len(member.partitions) == 1 and other.assigned(), what=member.tail)
        await until(lambda: member.is_ready)
        (mine,) = member.partitions
        generation, theirs = member.consumer.group_metadata().generation, len(other.lines())
        since = len(member.log)
        member.at_record = block_for(BLOCKED_S)
        await produce(kafka_cluster, topic, 2, 8)
        await until(lambda: member.count("record", since=since) >= 1)
        await until(lambda: member.count(events.EventLoopBlocked, since=since), what=member.tail)
        blocked = member.all(events.EventLoopBlocked, since)[0]
        assert abs(blocked.blocked_ms - BLOCKED_S * 1_000) < 1_000
        warned = member.all(events.SessionEndangered, since)
        if not with_thread:
            assert f"session_timeout_ms={SESSION_MS}" in warned[0].why
            assert "heartbeat_thread=True" in warned[0].why
            await until(lambda: member.count("lost", since=since), what=member.tail)
            return
        assert not warned
        await until(lambda: len(member.records) == 4, what=member.tail)
        await member.consumer.commit()
        await member.beats(3)
        assert member.consumer.group_metadata().generation == generation
        assert not member.count("lost", "revoked", events.RebalanceStarted, since=since)
        assert sorted(each.offset for each in member.records) == [0, 1, 2, 3]  # each once
        assert {each.partition for each in member.records} == {mine}
        assert not [line for line in other.lines()[theirs:] if line.keys() & {"assigned", "revoked", "lost"}]
