"""`heartbeat_thread=True` on real Kafka: what a blocked event loop costs (issue 4, point 7; kip-62-liveness.md, 13)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from asyncio.subprocess import PIPE

import pytest

from aiogroup import CommitFailedError, FencedInstanceIdError
from aiogroup._core.telemetry import events
from aiogroup._runtime.membership.heartbeat import Heartbeat
from aiogroup._runtime.net.connection import Connection
from tests.support.group_members import Member, produce, running, shared_out, until
from tests.support.member_process import spawned

SESSION_MS = 2_000
BEAT_MS = 200
SHORT = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
BLOCKED_S = 3 * SESSION_MS / 1000


def our_threads():
    """Those of consumers: the embedded broker has one, too."""
    named = (thread for thread in threading.enumerate() if thread.name.startswith("aiogroup"))
    return [thread for thread in named if thread.name != "aiogroup embedded broker"]


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("thread")
    kafka_cluster.create_topic(name, partitions=2)
    return name


def block_while(work):
    """The application's handler: at its first record it blocks the loop for as long as `work()` takes."""
    blocked = []

    async def handle(_record):
        if not blocked:
            blocked.append(True)
            work()

    return handle


def block_until(condition, seconds=20.0):
    """Wait without giving the loop a turn, as a library that blocks does."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, f"not within {seconds} s"
        time.sleep(0.02)


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
        member.at_record = block_while(lambda: time.sleep(BLOCKED_S))
        await produce(kafka_cluster, topic, 2, 8)
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


async def test_13_the_first_thing_sent_after_a_blocked_loop_is_a_heartbeat(kafka_cluster, topic, group, monkeypatch):
    """Before fetches, commits and metadata, all of which are due at once."""
    written, write = [], Connection.write

    def keep(connection, request, **options):
        written.append(type(request).__name__)
        return write(connection, request, **options)

    monkeypatch.setattr(Connection, "write", keep)
    settings = {**SHORT, "session_timeout_ms": 6_000, "auto_commit_interval_ms": 100, "metadata_max_age_ms": 500}
    member = Member(kafka_cluster, group, topic, **{**settings, "heartbeat_interval_ms": 1_500})

    def block():
        time.sleep(2.5)
        written.clear()

    member.at_record = block_while(block)
    await produce(kafka_cluster, topic, 2, 10)
    async with running(member):
        for first in (0, 10):  # the first time before any heartbeat was sent
            if first:
                member.at_record = block_while(block)
                await produce(kafka_cluster, topic, 2, 10, first=first)
            await until(lambda first=first: len(member.records) == first + 10, what=member.tail)
            await until(lambda: len(written) > 3)
            assert written[0] == "HeartbeatRequest"


async def test_a_stall_beyond_the_poll_interval_is_given_up_by_the_thread(kafka_cluster, topic, group, tmp_path):
    """The other member has everything while our loop is still blocked; then one signal, and we come back."""
    poll_ms = 4_000
    settings = {**SHORT, "session_timeout_ms": poll_ms, "max_poll_interval_ms": poll_ms}
    member = Member(kafka_cluster, group, topic, **settings, heartbeat_thread=True)
    async with running(member), spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as other:
        await until(lambda: len(member.partitions) == 1 and other.assigned(), what=member.tail)
        await until(lambda: member.is_ready)
        since, gone_after = len(member.log), []

        def block():
            began = time.monotonic()
            block_until(lambda: other.assigned() == [0, 1])
            gone_after.append((time.monotonic() - began) * 1_000)

        member.at_record = block_while(block)
        await produce(kafka_cluster, topic, 2, 2)
        await until(lambda: gone_after, 30)
        # LeaveGroup, and not the session's end, which is as long again; the rest is the other's rebalance.
        assert poll_ms - 200 < gone_after[0] < poll_ms + BEAT_MS + 1_500
        await until(lambda: member.count("lost", since=since), what=member.tail)
        assert member.count(events.PollIntervalExceeded, since=since) == 1
        assert member.all(events.PollIntervalExceeded, since)[0].broker_acts_within_ms == 0
        await until(lambda: member.is_ready and len(member.partitions) == 1, what=member.tail)
        assert member.count("lost", since=since) == 1
        assert not member.count(events.PartitionsRevoked, events.CoordinatorLost, since=since)
        assert member.error is None


async def test_a_loop_that_is_blocked_while_a_request_waits_is_given_up_too(kafka_cluster, topic, group, tmp_path):
    """The clock of the poll interval stands still during a request, and the loop that is blocked cannot say so."""
    poll_ms = 4_000
    settings = {**SHORT, "session_timeout_ms": poll_ms, "max_poll_interval_ms": poll_ms}
    member = Member(kafka_cluster, group, topic, **settings, heartbeat_thread=True)
    async with running(member), spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as other:
        await until(lambda: len(member.partitions) == 1 and other.assigned(), what=member.tail)
        await until(lambda: member.is_ready)
        await asyncio.sleep(0)
        since, began = len(member.log), time.monotonic()
        block_until(lambda: other.assigned() == [0, 1])
        assert poll_ms - 200 < (time.monotonic() - began) * 1_000 < poll_ms + 2 * BEAT_MS + 1_500
        await until(lambda: member.count("lost", since=since), what=member.tail)
        assert member.count(events.PollIntervalExceeded, since=since) == 1
        await until(lambda: member.is_ready and len(member.partitions) == 1, what=member.tail)
        assert member.count("lost", since=since) == 1
        assert member.error is None


@pytest.mark.parametrize("name", [None, "one"], ids=["left", "silent"])
async def test_after_a_stall_nothing_is_delivered_and_the_commit_is_refused(kafka_cluster, topic, group, name):
    stalls = {"session_timeout_ms": 1_500, "max_poll_interval_ms": 1_500}
    settings = {**SHORT, **stalls, "member_name": name, "enable_auto_commit": False}
    member = Member(kafka_cluster, group, topic, **settings, heartbeat_thread=True)
    refused = []

    async def handle(record):
        if not refused:
            time.sleep(2.5)  # noqa: ASYNC251
            try:
                await member.consumer.commit({record.tp: record.offset + 1})
            except CommitFailedError as error:
                refused.append(error.not_owned)

    async with running(member):
        await shared_out(2, member)
        since = len(member.log)
        member.at_record = handle
        await produce(kafka_cluster, topic, 2, 10)
        await until(lambda: refused, what=member.tail)
        await until(lambda: member.count("assigned", since=since), what=member.tail)
        log = [what for what, _, _ in member.log[since:] if what in ("record", "lost", "assigned")]
        assert log[:3] == ["record", "lost", "assigned"]
        await until(lambda: len(member.seen()) == 10, what=member.tail)


async def test_a_rebalance_waits_for_a_blocked_member(kafka_cluster, topic, group, tmp_path):
    member = Member(kafka_cluster, group, topic, **SHORT, heartbeat_thread=True)
    async with running(member):
        await shared_out(2, member)
        since = len(member.log)
        async with spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as newcomer:

            def block():
                block_until(newcomer.lines)  # it starts
                time.sleep(BLOCKED_S)
                assert not newcomer.assigned()

            member.at_record = block_while(block)
            await produce(kafka_cluster, topic, 2, 2)
            await until(lambda: len(newcomer.assigned()) == len(member.partitions) == 1, 30, member.tail)
            await until(lambda: member.is_ready, what=member.tail)
            assert not member.count("lost", since=since)
            assert member.count("revoked", since=since) == 1


async def test_a_member_that_is_fenced_while_blocked_sends_no_more_and_learns_it(kafka_cluster, topic, group, tmp_path):
    static = {**SHORT, "group_instance_id": "a"}
    member = Member(kafka_cluster, group, topic, **static, heartbeat_thread=True)
    async with running(member):
        await shared_out(2, member)
        since = len(member.log)
        async with spawned(tmp_path / "log", kafka_cluster, group, topic, **static) as successor:

            def block():
                block_until(lambda: successor.assigned() == [0, 1])
                time.sleep(5 * BEAT_MS / 1_000)

            member.at_record = block_while(block)
            await produce(kafka_cluster, topic, 2, 2)
            await until(lambda: member.error, 30, member.tail)
            assert isinstance(member.error, FencedInstanceIdError)
            missed = [each.why for each in member.all(events.HeartbeatMissed, since)]
            assert missed == ["FENCED_INSTANCE_ID"]


async def test_a_static_member_that_went_silent_comes_back_under_its_id(kafka_cluster, topic, group, tmp_path):
    """Nothing was said to the coordinator; in its session it takes the member back, whose heartbeats begin again."""
    static = {**SHORT, "session_timeout_ms": 3_000, "max_poll_interval_ms": 3_000, "group_instance_id": "a"}
    member = Member(kafka_cluster, group, topic, **static, heartbeat_thread=True)
    async with spawned(tmp_path / "log", kafka_cluster, group, topic, **SHORT) as leader:
        await until(lambda: leader.assigned() == [0, 1])
        await member.start()
        await until(lambda: len(leader.assigned()) == len(member.partitions) == 1 and member.is_ready, 30, member.tail)
        since, member_id = len(member.log), member.consumer.group_metadata().member_id
        member.at_record = block_while(lambda: time.sleep(4))
        await produce(kafka_cluster, topic, 2, 2)
        await until(lambda: member.count("lost", since=since), what=member.tail)
        assert member.all(events.PollIntervalExceeded, since)[0].broker_acts_within_ms == 3_000
        await until(lambda: len(member.partitions) == 1 and member.is_ready, what=member.tail)
        assert member.consumer.group_metadata().member_id == member_id
        await member.beats(2 * 3_000 // BEAT_MS)
        assert member.count("lost", since=since) == 1
        await member.stop()


async def test_the_coordinator_moves_while_the_loop_is_blocked(kafka_cluster_3, unique_name):
    cluster, topic, group = kafka_cluster_3, unique_name("thread"), unique_name("group")
    cluster.create_topic(topic, partitions=2)
    settings = {**SHORT, "session_timeout_ms": 6_000}
    member = Member(cluster, group, topic, **settings, heartbeat_thread=True)
    async with running(member):
        await shared_out(2, member)
        since, generation = len(member.log), member.consumer.group_metadata().generation
        node_id = member.all(events.CoordinatorFound)[-1].node_id
        node = next(each for each in cluster.nodes if each.node_id == node_id)

        def block():
            try:
                node.stop()
                time.sleep(8)
            finally:
                node.start()

        member.at_record = block_while(block)
        await produce(cluster, topic, 2, 6)
        await until(lambda: len(member.records) == 6, 60, member.tail)
        await member.consumer.commit()
        await member.beats(3)
        assert member.consumer.group_metadata().generation == generation
        assert not member.count("lost", "revoked", events.RebalanceStarted, since=since)
        assert member.count(events.CoordinatorLost, since=since) >= 1
        assert member.all(events.EventLoopBlocked, since)[0].blocked_ms > 7_500
    cluster.await_ready()


async def test_stop_ends_in_time_and_leaves_no_thread_when_the_broker_is_frozen(cluster_1, unique_name, group):
    (node,), topic = cluster_1.nodes, unique_name("thread")
    cluster_1.create_topic(topic, partitions=2)
    member = Member(cluster_1, group, topic, **SHORT, heartbeat_thread=True)
    async with running(member):
        await shared_out(2, member)
        assert len(our_threads()) == 1
        await member.beats(1)
        node.pause()
        try:
            # SIGSTOP takes its time: a broker that still answers would let us leave.
            await until(lambda: member.consumer.health().since_heartbeat_ms > 3 * BEAT_MS)
            began = time.monotonic()
            report = await member.consumer.stop(timeout_ms=2_000)
            assert time.monotonic() - began < 2.2
        finally:
            node.resume()
        assert any("LeaveGroup" in problem for problem in report.problems), report
        assert our_threads() == []


async def test_heartbeats_and_the_good_bye_of_stop_go_by_the_thread(kafka_cluster, topic, group, monkeypatch):
    written, write = [], Connection.write

    def keep(connection, request, **options):
        written.append((type(request).__name__, threading.current_thread().name))
        return write(connection, request, **options)

    leaving = Member(kafka_cluster, group, topic, **{**SHORT, "session_timeout_ms": 30_000}, heartbeat_thread=True)
    monkeypatch.setattr(Connection, "write", keep)
    async with running(leaving):
        await shared_out(2, leaving)
        await leaving.beats(1)
    async with running(Member(kafka_cluster, group, topic, **SHORT)) as (newcomer,):
        await shared_out(2, newcomer, seconds=10)  # nobody waits for a session
    by_thread = {("HeartbeatRequest", "aiogroup heartbeat"), ("LeaveGroupRequest", "aiogroup heartbeat")}
    alone = written[: written.index(("LeaveGroupRequest", "aiogroup heartbeat")) + 1]
    assert {each for each in alone if each[0] in ("HeartbeatRequest", "LeaveGroupRequest")} == by_thread
    assert our_threads() == []


async def test_fifty_consumers_leave_no_thread(kafka_cluster, topic, unique_name):
    members = [Member(kafka_cluster, unique_name("group"), topic, **SHORT, heartbeat_thread=True) for _ in range(50)]
    for ten in (members[first : first + 10] for first in range(0, 50, 10)):
        await asyncio.gather(*(member.start() for member in ten))
    assert len(our_threads()) == 50
    reports = await asyncio.gather(*(member.stop(timeout_ms=10_000) for member in members))
    assert [report.problems for report in reports if not report.is_clean] == []
    assert our_threads() == []


@pytest.mark.parametrize("after_ms", [1, 5, 20, 50, 100, 200])
async def test_a_cancelled_start_leaves_no_thread(kafka_cluster, topic, group, after_ms):
    member = Member(kafka_cluster, group, topic, **SHORT, heartbeat_thread=True)
    starting = asyncio.create_task(member.consumer.start())
    await asyncio.sleep(after_ms / 1_000)
    starting.cancel()
    await asyncio.wait({starting})
    await member.consumer.stop(timeout_ms=2_000)
    assert our_threads() == []


CARELESS = """
import asyncio, sys, threading, time
from aiogroup import Consumer

async def start():
    consumer = Consumer(
        sys.argv[2], bootstrap_servers=sys.argv[1], group_id=sys.argv[2], heartbeat_thread=True,
        session_timeout_ms=2_000, heartbeat_interval_ms=200,
    )
    await consumer.start()
    return consumer

loop = asyncio.new_event_loop()
consumer = loop.run_until_complete(start())
(thread,) = [each for each in threading.enumerate() if each.name.startswith("aiogroup")]
if sys.argv[3] == "closed":
    loop.close()
    thread.join(1.2)
if sys.argv[3] == "forgotten":
    del consumer
    thread.join(1.2)
print(thread.is_alive())
"""
"""Nobody stops the consumer and nobody cancels its tasks: the loop just does not run any more."""


@pytest.mark.parametrize(("how", "is_alive"), [("closed", "False"), ("forgotten", "False"), ("left", "True")])
async def test_a_loop_that_ends_without_a_word_ends_the_thread_and_a_process_does_not_wait_for_it(
    kafka_cluster, topic, how, is_alive
):
    arguments = ["-c", CARELESS, kafka_cluster.bootstrap_servers, topic, how]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(20):
        printed, errors = await process.communicate()
    assert printed.decode().split() == [is_alive], errors.decode()
    assert process.returncode == 0


async def test_an_error_in_the_thread_is_raised_by_the_next_call(kafka_cluster, topic, group, monkeypatch):
    async def break_down(_heartbeat):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Heartbeat, "run", break_down)
    member = Member(kafka_cluster, group, topic, **SHORT, heartbeat_thread=True)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await member.consumer.start()
    assert member.all(events.TaskFailed)[0].task == "heartbeat"
    await member.consumer.stop(timeout_ms=1_000)
    assert our_threads() == []
