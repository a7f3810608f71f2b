"""A broker that limits the lifetime of sessions (KIP-368): connections stay, and the group does not notice."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.protocol.admin import SaslAuthenticateRequest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.telemetry import events
from aiogroup._runtime.net.connection import Connection
from aiogroup._runtime.net.link import COMMIT, FETCH, HEARTBEAT, JOIN, METADATA, Link
from aiogroup.config import ConsumerConfig
from aiogroup.devkafka import Cluster, unsecured_jws
from tests.kafka.conftest import START_MS, USERS
from tests.support.group_members import Member, produce, running, shared_out, until
from tests.support.kafka import Ears
from tests.support.workers import by_one_worker

LIFETIME_MS = 4_000
TOKENS_LIFETIME_MS = 2_000
RUN_S = 30
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PARTITIONS = 6


@pytest.fixture(scope="session", params=by_one_worker("accounts"))
def short_sessions():
    properties = {"connections.max.reauth.ms": str(LIFETIME_MS)}
    with Cluster(security="SASL_SSL", users=USERS, properties=properties, start_timeout_ms=START_MS) as cluster:
        yield cluster


class Tokens:
    """Where tokens come from; the next `failures_count` calls fail."""

    def __init__(self):
        self.lifetime_ms = 3_600_000
        self.principal = "alice"
        self.failures_count = 0
        self.asked_count = 0

    async def token(self):
        self.asked_count += 1
        if self.failures_count:
            self.failures_count -= 1
            raise OSError("the identity provider is away")
        return unsecured_jws(self.principal, self.lifetime_ms)


def secured(cluster, mechanism, protocol="SASL_SSL"):
    given = {
        "bootstrap_servers": cluster.bootstrap(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "ssl_context": ssl.create_default_context(cafile=cluster.ca_pem) if protocol == "SASL_SSL" else None,
    }
    if mechanism == "OAUTHBEARER":
        return given | {"sasl_oauth_token_provider": Tokens()}
    return given | {"sasl_plain_username": "alice", "sasl_plain_password": USERS["alice"]}


class Group:
    """Two members that stay, and one that comes and goes; the callbacks of the second outlast a session."""

    def __init__(self, cluster, mechanism, topic, group):
        cluster.create_topic(topic, PARTITIONS)
        self.topic = topic
        self.first = self._member(cluster, mechanism, group)
        self.second = self._member(cluster, mechanism, group, heartbeat_thread=mechanism != "OAUTHBEARER")
        self.make_third = lambda: self._member(cluster, mechanism, group)

    def _member(self, cluster, mechanism, group, **more):
        settings = {**secured(cluster, mechanism), "partition_assignment_strategy": "cooperative-sticky", **more}
        return Member(cluster, group, self.topic, auto_commit_interval_ms=100, **settings)

    async def be_slow(self, name):
        if name == "revoked":
            await asyncio.sleep(LIFETIME_MS / 1_000 + 1)

    async def rebalance(self, until_s):
        async with running(self.first, self.second):
            await shared_out(PARTITIONS, self.first, self.second)
            connections = self._connections()
            self.second.in_callback = self.be_slow
            while time.monotonic() < until_s:
                third = self.make_third()
                async with running(third):
                    await until(lambda: third.partitions, what=self.first.tail)  # noqa: B023
                    await shared_out(PARTITIONS, self.first, self.second, third)
                await shared_out(PARTITIONS, self.first, self.second)
            self.second.in_callback = None  # at its stop it would not be done in time
            self.kept_connections = connections == self._connections()

    def _connections(self):
        link = self.first.consumer.inside().link
        return [link.opened(1, channel) for channel in (JOIN, HEARTBEAT, COMMIT, FETCH)]

    def gaps_ms(self, control):
        """Between two records of a partition that the first member kept meanwhile: how long it had not got the second
        while `control` had it.
        """
        last = {}
        for what, detail, at in self.first.log:
            if what in ("revoked", "assigned"):
                for tp in detail:
                    last.pop(tp.partition, None)
            elif what == "record":
                partition, offset = detail
                if partition in last:
                    there_at = control.get((self.topic, partition, offset), at)
                    yield round(1_000 * (at - max(last[partition], there_at)))
                last[partition] = at


async def read_beside(cluster, groups, seen, is_over):
    """Note in `seen` when a consumer without sessions that end has each record, in the same loop. What keeps the
    producer, the broker or this machine waiting keeps it waiting, too.
    """
    tps = [TopicPartition(group.topic, partition) for group in groups for partition in range(PARTITIONS)]
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        while not is_over.is_set():
            for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                for record in records:
                    seen[tp.topic, tp.partition, record.offset] = time.monotonic()


async def produce_to(cluster, groups, is_over):
    """A record each 10 ms, by turns in every partition of every group. Returns how long the slowest took, in ms: on a
    machine that has much to do everything is as slow as that, without a session that ends.
    """
    slowest_s = 0.0
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        number = 0
        while not is_over.is_set():
            began_at = time.monotonic()
            value, partition = b"%d" % number, number % PARTITIONS
            await asyncio.gather(*[await producer.send(each.topic, value, partition=partition) for each in groups])
            number += 1
            await asyncio.sleep(0.01)
            slowest_s = max(slowest_s, time.monotonic() - began_at)
    return round(1_000 * slowest_s)


async def test_sessions_end_and_groups_do_not_notice(short_sessions, unique_name, caplog):
    caplog.set_level(logging.WARNING)
    groups = [Group(short_sessions, each, unique_name("topic"), unique_name(each)) for each in MECHANISMS]
    is_over, control = asyncio.Event(), {}
    producing = asyncio.create_task(produce_to(short_sessions, groups, is_over))
    reading_beside = asyncio.create_task(read_beside(short_sessions, groups, control, is_over))
    ends_at = time.monotonic() + RUN_S
    try:
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(group.rebalance(ends_at - LIFETIME_MS / 1_000))
    finally:
        is_over.set()
        slowest_ms, _ = await asyncio.gather(producing, reading_beside)
    warnings = [record.getMessage() for record in caplog.records]
    # A commit that crosses the end of a round is refused whether sessions end or not.
    assert [each for each in warnings if "the group is rebalancing" not in each] == []
    for group in groups:
        assert group.kept_connections
        for member in (group.first, group.second):
            assert not member.count("lost"), member.tail()
            assert member.error is None
        assert group.first.rebalances >= 4
        # Where a session ends, four requests lie between two records: SaslHandshake, SaslAuthenticate twice (SCRAM),
        # and Fetch. That takes 20 ms, and in ten minutes at most 42 on a quiet machine.
        gaps_ms = sorted(group.gaps_ms(control))
        assert gaps_ms[-1] < 500 + 5 * slowest_ms, (slowest_ms, gaps_ms[-5:])


@pytest.fixture
def with_tokens(short_sessions):
    """Settings of a reader whose sessions are as short as the life of its tokens."""
    settings = secured(short_sessions, "OAUTHBEARER", "SASL_PLAINTEXT")
    settings["sasl_oauth_token_provider"].lifetime_ms = TOKENS_LIFETIME_MS
    return settings | {"auto_offset_reset": "earliest"}


@asynccontextmanager
async def reading(cluster, topic, settings):
    """A consumer that reads, and what it reports; all its connections are open."""
    cluster.create_topic(topic, 1)
    await produce(cluster, topic, 1, 1)
    ears = Ears()
    async with Consumer(topic, observers=[ears], **settings) as consumer:
        await asyncio.wait_for(consumer.getone(), 10)
        yield settings["sasl_oauth_token_provider"], ears


async def test_a_refused_renewal_closes_the_connection_with_its_reason(short_sessions, with_tokens, unique_name):
    """A connection belongs to one user as long as it lives. A new one may be another's."""
    async with reading(short_sessions, unique_name("topic"), with_tokens) as (tokens, ears):
        tokens.principal = "bob"
        (failed, *_) = await until(lambda: ears.heard(events.FetchFailed))
        assert "its session could not be renewed: the broker refused the credentials" in failed.why
        asked_count = tokens.asked_count
        await until(lambda: tokens.asked_count > asked_count + 5)  # bob's sessions are renewed
        assert len(ears.heard(events.FetchFailed)) == 1


async def test_a_token_that_cannot_be_had_is_asked_for_again_while_the_session_lasts(
    short_sessions, with_tokens, unique_name
):
    async with reading(short_sessions, unique_name("topic"), with_tokens) as (tokens, ears):
        tokens.failures_count = 2
        asked_count = tokens.asked_count
        await until(lambda: tokens.asked_count > asked_count + 6)
        assert not ears.heard(events.FetchFailed)
        tokens.failures_count = 1_000
        (failed, *_) = await until(lambda: ears.heard(events.FetchFailed))
        assert "its session could not be renewed: sasl_oauth_token_provider raised OSError" in failed.why


async def test_a_connection_without_requests_is_closed_as_idle_though_it_is_renewed(short_sessions, with_tokens):
    config = ConsumerConfig.of(**with_tokens, connections_max_idle_ms=round(1.5 * TOKENS_LIFETIME_MS))
    async with Link(config) as link:
        began_at = time.monotonic()
        connection = await link.connect(-1, METADATA)
        await until(lambda: not connection.is_open)
        assert time.monotonic() - began_at < 1.8 * TOKENS_LIFETIME_MS / 1_000
        assert with_tokens["sasl_oauth_token_provider"].asked_count == 2


async def test_requests_are_written_during_a_renewal_and_answered_after_it(short_sessions, with_tokens):
    """A storm of them, on one connection."""
    async with Link(ConsumerConfig.of(**with_tokens)) as link:
        connection = await link.connect(-1, METADATA)
        until_s, count = time.monotonic() + 2.5 * TOKENS_LIFETIME_MS / 1_000, 0
        while time.monotonic() < until_s:
            answers = [connection.write(MetadataRequest(topics=())) for _ in range(3)]
            await asyncio.gather(*(connection.answer(each, 5_000) for each in answers))
            count += 1
        assert connection.is_open
        assert count > 100
    assert with_tokens["sasl_oauth_token_provider"].asked_count >= 3


async def test_a_session_is_counted_from_when_it_was_asked_for(short_sessions, with_tokens, monkeypatch):
    """For the broker it began then, however late its answer is read."""
    send = Connection.send

    async def read_late(self, request):
        answer = send(self, request)
        if isinstance(request, SaslAuthenticateRequest):
            time.sleep(0.3 * TOKENS_LIFETIME_MS / 1_000)  # noqa: ASYNC251
        return await answer

    monkeypatch.setattr(Connection, "send", read_late)
    async with Link(ConsumerConfig.of(**with_tokens)) as link:
        connection = await link.connect(-1, METADATA)
        while with_tokens["sasl_oauth_token_provider"].asked_count < 4:
            await connection.answer(connection.write(MetadataRequest(topics=())), 5_000)
        assert connection.is_open


async def test_a_loop_that_was_blocked_beyond_the_end_of_the_session_renews_it_first(short_sessions, with_tokens):
    async with Link(ConsumerConfig.of(**with_tokens)) as link:
        connection = await link.connect(-1, METADATA)
        time.sleep(1.2 * TOKENS_LIFETIME_MS / 1_000)  # noqa: ASYNC251
        answer = connection.write(MetadataRequest(topics=()))
        assert (await connection.answer(answer, 5_000)).brokers
