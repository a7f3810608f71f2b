"""KIP-62, 8, on real Kafka: the coordinator hears nothing of a member, gives its partitions away, and it reads on?"""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaProducer

from aiogroup import HealthStatus
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.group_members import Member, running, shared_out, until

SESSION_MS, BEAT_MS = 2_000, 200
SHORT = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS, "max_poll_interval_ms": 60_000}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
WAY_MS = 1_000
"""What a step may take on two busy cores."""
BOTH_WAYS = pytest.mark.parametrize("thread", [False, True], ids=["loop", "thread"])


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("unanswered")
    kafka_cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
async def flow(kafka_cluster, topic):
    """Records in both partitions, all the time."""

    async def send():
        while True:
            for number in (0, 1):
                await producer.send_and_wait(topic, b"", partition=number)
            await asyncio.sleep(0.02)

    async with AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        sending = asyncio.get_running_loop().create_task(send())
        yield
        sending.cancel()
        await asyncio.wait({sending})


def given(member, number):
    """When it was given records of the partition, in seconds."""
    return [at for what, detail, at in member.log if what == "record" and detail[0] == number]


@BOTH_WAYS
@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.usefixtures("flow")
async def test_8_two_members_never_hand_out_one_partition_for_longer_than_the_session(
    kafka_cluster, topic, group, thread, settings
):
    """What one says to the coordinator does not arrive, and another gets its partitions; it could fetch on."""
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        unheard = Member(
            None, group, topic, **SHORT, **settings, heartbeat_thread=thread, bootstrap_servers=proxy.bootstrap_servers
        )
        other = Member(kafka_cluster, group, topic, **SHORT, **settings)
        async with running(unheard, other):
            await until(lambda: len(unheard.partitions) == len(other.partitions) == 1, what=other.tail)
            await shared_out(2, unheard, other)
            (number,) = unheard.partitions
            await unheard.beats(1)
            await until(lambda: given(unheard, number), what=unheard.tail)
            with proxy.drop("Heartbeat", "OffsetCommit", "JoinGroup", before=True):
                began_at = time.monotonic()
                await until(lambda: unheard.count(events.SessionUnanswered), what=unheard.tail)
                assert unheard.consumer.health().status is HealthStatus.UNREACHABLE
                await until(lambda: other.partitions == [0, 1], what=lambda: unheard.tail() + other.tail())
                assert unheard.partitions == [number]
                taken_over_at = time.monotonic()
                # For twice the session more the other one reads, and this one does not.
                await until(lambda: time.monotonic() - taken_over_at > 2 * SESSION_MS / 1000)
                ended_at = time.monotonic()
            assert [at for at in given(other, number) if taken_over_at < at < ended_at]
            last = max(given(unheard, number))
            assert last - began_at <= (SESSION_MS + BEAT_MS + WAY_MS) / 1000
            assert not [at for at in given(unheard, number) if taken_over_at + BEAT_MS / 1000 < at < ended_at]
            assert not unheard.count(events.PollIntervalWarning)
            await until(lambda: unheard.count("lost"), what=unheard.tail)
            assert not [at for at in given(unheard, number) if last < at < unheard.when("lost")]
            await shared_out(2, unheard, other)
            assert unheard.count("lost") == unheard.count(events.SessionUnanswered) == 1
            assert unheard.error is None


@BOTH_WAYS
@pytest.mark.usefixtures("flow")
async def test_8_it_goes_on_without_a_callback_when_the_generation_still_counts(kafka_cluster, topic, group, thread):
    """The answers are held up; the coordinator hears of it all the time."""
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        settings = {**SHORT, "request_timeout_ms": SESSION_MS // 3, "fetch_max_wait_ms": 100}
        member = Member(
            None, group, topic, **settings, heartbeat_thread=thread, bootstrap_servers=proxy.bootstrap_servers
        )
        async with running(member):
            await shared_out(2, member)
            await until(lambda: member.records, what=member.tail)
            with proxy.hold("Heartbeat"):
                await until(lambda: member.count(events.SessionUnanswered), what=member.tail)
                told = len(member.records)
                tries = member.count(events.HeartbeatMissed)
                await until(lambda: member.count(events.HeartbeatMissed) >= tries + 6, what=member.tail)
                assert len(member.records) <= told + 1
            await until(lambda: len(member.records) > told + 20, what=member.tail)
            assert member.consumer.health().status is HealthStatus.READY
            assert not member.count("lost", "revoked")
            assert (member.count("assigned"), member.count(events.SessionUnanswered)) == (1, 1)


@pytest.mark.usefixtures("flow")
async def test_13_after_a_blocked_loop_no_record_comes_before_the_answer(kafka_cluster, topic, group):
    """The group went on meanwhile: what is buffered belongs to nobody here, also not to the cursor that was open."""
    member = Member(kafka_cluster, group, topic, **SHORT)
    blocked = []

    async def block(_record):
        if not blocked and len(member.records) > 5:
            blocked.append(len(member.log))
            time.sleep(2 * SESSION_MS / 1000)  # noqa: ASYNC251 (this is what is tested)

    member.at_record = block
    async with running(member):
        await until(lambda: member.count("lost"), what=member.tail)
        (since,) = blocked
        lost_at = next(index for index, entry in enumerate(member.log) if entry[0] == "lost")
        assert [entry for entry in member.log[since:lost_at] if entry[0] == "record"] == []
        await until(lambda: any(entry[0] == "record" for entry in member.log[lost_at:]), what=member.tail)
