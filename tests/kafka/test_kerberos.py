"""GSSAPI: a realm of its own, and a broker with short sessions in it."""

from __future__ import annotations

import logging

import pytest
from aiokafka.structs import TopicPartition

from aiogroup import ConnectionLostError, Consumer
from aiogroup._core.telemetry import events
from aiogroup._runtime.net.link import COMMIT, FETCH, HEARTBEAT, JOIN
from aiogroup.devkafka import Cluster
from tests.kafka.conftest import START_MS
from tests.support.group_members import QUICK, Member, produce, running, shared_out, until
from tests.support.kafka import eventually
from tests.support.kerberos import java_home, realm, why_no_realm
from tests.support.workers import by_one_worker

if why := why_no_realm():
    pytest.skip(why, allow_module_level=True)

LIFETIME_MS = 2_000
PARTITIONS = 4
BROKER = "kafka/broker.test"
SETTINGS = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_domain_name": "broker.test",
}


@pytest.fixture(scope="session")
def kerberos(tmp_path_factory):
    with realm(tmp_path_factory.mktemp("realm")) as made:
        made.add(BROKER)
        made.add("alice")
        yield made


@pytest.fixture(scope="session", params=by_one_worker("kerberos"))
def in_realm(kerberos):
    listener = "listener.name.sasl_plaintext"
    properties = {
        "connections.max.reauth.ms": str(LIFETIME_MS),
        f"{listener}.sasl.enabled.mechanisms": "GSSAPI",
        f"{listener}.sasl.kerberos.service.name": "kafka",
        f"{listener}.gssapi.sasl.jaas.config": kerberos.jaas(BROKER),
    }
    options = [f"-Djava.security.krb5.conf={kerberos.krb5_conf}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java_home()))
        cluster = Cluster(
            security="SASL_PLAINTEXT", properties=properties, java_options=options, start_timeout_ms=START_MS
        )
        with cluster:
            yield cluster


@pytest.fixture
def tickets(kerberos, tmp_path, monkeypatch):
    """Where this process looks for tickets; there are none."""
    monkeypatch.setenv("KRB5_CONFIG", str(kerberos.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    return tmp_path / "tickets"


def open_connections(*members):
    links = [member.consumer.inside().link for member in members]
    found = {link.opened(1, channel) for link in links for channel in (JOIN, HEARTBEAT, COMMIT, FETCH)}
    return found - {None}  # the heartbeat thread has a link of its own


async def test_sessions_are_renewed_and_the_group_does_not_notice(in_realm, kerberos, tickets, unique_name, caplog):
    """Heartbeats in the loop and in a thread, while a third member comes and goes."""
    kerberos.log_in("alice", tickets)
    topic, group = unique_name("topic"), unique_name("group")
    in_realm.create_topic(topic, PARTITIONS)
    settings = SETTINGS | {
        "bootstrap_servers": in_realm.bootstrap("SASL_PLAINTEXT"),
        "partition_assignment_strategy": "cooperative-sticky",
    }
    caplog.set_level(logging.WARNING)
    first, second, third = (
        Member(in_realm, group, topic, auto_commit_interval_ms=100, heartbeat_thread=in_thread, **settings)
        for in_thread in (False, True, False)
    )
    async with running(first, second):
        await shared_out(PARTITIONS, first, second)
        sent = await produce(in_realm, topic, PARTITIONS, PARTITIONS)
        await until(lambda: first.seen() | second.seen() == sent, what=first.tail)
        connections = open_connections(first, second)
        async with running(third):
            await shared_out(PARTITIONS, first, second, third)
            sent |= await produce(in_realm, topic, PARTITIONS, 100)
            await until(lambda: third.records)
            await first.beats(2 * LIFETIME_MS // QUICK["heartbeat_interval_ms"])
        await shared_out(PARTITIONS, first, second)
        sent |= await produce(in_realm, topic, PARTITIONS, 100)
        await until(lambda: first.seen() | second.seen() | third.seen() == sent, what=first.tail)
        assert connections <= open_connections(first, second)
    # A heartbeat or a commit that crosses the end of a round is refused whether sessions end or not.
    crossing = ("ILLEGAL_GENERATION", "the group is rebalancing")
    warnings = [record.getMessage() for record in caplog.records]
    assert [each for each in warnings if not any(why in each for why in crossing)] == []
    for member in (first, second):
        assert not member.count("lost"), member.tail()
        assert member.error is None
    async with Consumer(group_id=group, **(settings | {"partition_assignment_strategy": "range"})) as asking:
        ends = [await asking.committed(TopicPartition(topic, number)) for number in range(PARTITIONS)]
    assert sum(ends) == len(sent)


async def refused(in_realm, **more):
    """The error with which a consumer does not start; "" if it starts."""
    settings = SETTINGS | {"bootstrap_servers": in_realm.bootstrap("SASL_PLAINTEXT")} | more
    try:
        async with Consumer("topic", **settings):
            return ""
    except ConnectionLostError as error:
        return str(error)


async def test_what_is_wrong_with_the_ticket_is_said_with_what_to_do(in_realm, kerberos, tickets):
    missing = await refused(in_realm)
    assert "GSSAPI failed for kafka@broker.test" in missing
    assert f"No Kerberos credentials available (default cache: FILE:{tickets}). Get a ticket with kinit" in missing
    assert "KRB5_CLIENT_KTNAME" in missing
    kerberos.log_in("alice", tickets, "-l", "1s")
    expired = await eventually(lambda: refused(in_realm))
    assert "Ticket expired. Get a ticket with kinit" in expired


async def test_a_wrong_name_of_the_broker_is_said_with_the_settings_that_make_it(in_realm, kerberos, tickets):
    kerberos.log_in("alice", tickets)
    wrong = await refused(in_realm, sasl_kerberos_service_name="other")
    assert "GSSAPI failed for other@broker.test" in wrong
    assert "Server other/broker.test@TEST.LOCAL not found in Kerberos database" in wrong
    assert "sasl_kerberos_service_name@sasl_kerberos_domain_name" in wrong
    assert "kafka@127.0.0.1" in await refused(in_realm, sasl_kerberos_domain_name=None)


async def test_a_ticket_that_is_away_while_reading_is_told_and_asked_for_again(
    in_realm, kerberos, tickets, unique_name
):
    kerberos.log_in("alice", tickets)
    topic = unique_name("topic")
    in_realm.create_topic(topic, 1)
    reader = Member(in_realm, None, topic, bootstrap_servers=in_realm.bootstrap("SASL_PLAINTEXT"), **SETTINGS)
    async with running(reader):
        await produce(in_realm, topic, 1, 1)
        await until(lambda: reader.records)
        tickets.unlink()
        (failed, *_) = await until(lambda: reader.all(events.FetchFailed))
        assert "its session could not be renewed: GSSAPI failed for kafka@broker.test" in failed.why
        kerberos.log_in("alice", tickets)
        await produce(in_realm, topic, 1, 1)
        await until(lambda: len(reader.records) == 2, what=reader.tail)
