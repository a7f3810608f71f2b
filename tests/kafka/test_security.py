"""Every secure listener is read from; what is refused is refused at once, and no secret is told anywhere."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import traceback
from datetime import UTC, datetime, timedelta

import pytest
import trustme
import uvloop
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from aiogroup import (
    AiogroupError,
    AuthenticationFailedError,
    ConnectionLostError,
    Consumer,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TopicPartition,
)
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.telemetry.events import HeartbeatAcknowledged
from aiogroup._runtime.net.group_link import from_outside
from aiogroup.config import ConsumerConfig
from aiogroup.devkafka import Cluster, unsecured_jws
from tests.support.kafka import Ears, eventually
from tests.support.workers import by_one_worker

USER = "alice"
PASSWORD = f"s3cret-of-{USER}"
WITHOUT_RIGHTS = {"user": "mallory", "password": "s3cret-of-mallory"}
WRONG = "wr0ng-s3cret"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Token(AbstractTokenProvider):
    def __init__(self, principal: str = "alice", lifetime_ms: int = 3_600_000) -> None:
        self.given = unsecured_jws(principal, lifetime_ms)
        self.asked_count = 0

    async def token(self) -> str:
        self.asked_count += 1
        return self.given


@pytest.fixture(scope="session", params=by_one_worker("accounts"))
def with_client_certificates():
    with Cluster(security="SASL_SSL", users={USER: PASSWORD}, properties={"ssl.client.auth": "required"}) as cluster:
        yield cluster


@pytest.fixture
def everything_logged(caplog):
    """Every logger at DEBUG, into caplog."""
    caplog.set_level(logging.DEBUG)
    changed = []
    for name in list(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        changed.append((logger, logger.level))
        logger.setLevel(logging.DEBUG)
    yield caplog
    for logger, level in changed:
        logger.setLevel(level)


def _settings(cluster, protocol, mechanism="PLAIN", password=PASSWORD, user=USER, **more):
    given = {
        "bootstrap_servers": cluster.bootstrap(protocol),
        "security_protocol": protocol,
        "auto_offset_reset": "earliest",
        "request_timeout_ms": 8_000,
    }
    if protocol.endswith("SSL"):
        given["ssl_context"] = ssl.create_default_context(cafile=cluster.ca_pem)
    if protocol.startswith("SASL"):
        given["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            given["sasl_oauth_token_provider"] = Token()
        else:
            given |= {"sasl_plain_username": user, "sasl_plain_password": password}
    return given | more


def _shown(error: BaseException) -> str:
    """All that an error says of itself, of its causes and of its contexts."""
    parts, todo, seen = [], [error], set()
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        parts += [str(each), repr(each), repr(each.args), repr(vars(each))]
        todo += [each.__cause__, each.__context__]
    parts += traceback.format_exception(error)
    return "\n".join(parts)


def _assert_hidden(caplog, ears, consumer, *secrets, errors=()):
    logged = "\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)
    events = "\n".join(map(repr, ears.events))
    shown = [repr(consumer), str(consumer), repr(consumer.config), str(consumer.config), repr(consumer.health())]
    shown += map(_shown, errors)
    assert logged
    for secret in secrets:
        for where in (logged, events, *shown):
            assert secret not in where
            assert repr(secret.encode()) not in where


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN")] + [(protocol, each) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for each in MECHANISMS],
)
async def test_each_listener_is_read_in_a_group_and_nothing_is_reported(
    secure, unique_name, everything_logged, protocol, mechanism
):
    ears = Ears()
    settings = _settings(secure, protocol, mechanism)
    consumer = Consumer("secured", group_id=unique_name("group"), observers=[ears], **settings)
    async with consumer:
        values = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(3)]
        await consumer.commit()
        assert await consumer.committed(TopicPartition("secured", 0)) == 3
    assert values == [b"0", b"1", b"2"]
    provider = settings.get("sasl_oauth_token_provider")
    _assert_hidden(everything_logged, ears, consumer, PASSWORD, *([provider.given] if provider else []))


async def test_a_token_provider_may_be_of_any_class(secure, unique_name):
    class Tokens:
        async def token(self):
            return await Token().token()

    settings = _settings(secure, "SASL_PLAINTEXT", "OAUTHBEARER", sasl_oauth_token_provider=Tokens())
    async with Consumer("secured", group_id=unique_name("group"), **settings) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"0"


def test_tls_on_uvloop(secure, unique_name):
    """Which has a TLS of its own."""

    async def read() -> list[bytes]:
        settings = _settings(secure, "SASL_SSL", "SCRAM-SHA-256")
        async with asyncio.timeout(30), Consumer("secured", group_id=unique_name("group"), **settings) as consumer:
            return [(await consumer.getone()).value for _ in range(3)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(read()) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_credentials_are_refused_at_once(secure, everything_logged, mechanism, monkeypatch):
    ears = Ears()
    settings = _settings(secure, "SASL_SSL", mechanism, WRONG)
    provider = settings.get("sasl_oauth_token_provider")
    if provider is not None:
        provider.given = "no.real." + WRONG
    attempts = []
    connect = asyncio.BaseEventLoop.create_connection

    def counted(self, *args, **kwargs):
        attempts.append(args)
        return connect(self, *args, **kwargs)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", counted)
    consumer = Consumer("secured", group_id="g", observers=[ears], **settings)
    started_at = asyncio.get_running_loop().time()
    with pytest.raises(AuthenticationFailedError, match=mechanism) as raised:
        await consumer.start()
    assert asyncio.get_running_loop().time() - started_at < 5
    assert len(attempts) == 1
    await consumer.stop()
    _assert_hidden(everything_logged, ears, consumer, WRONG, errors=[raised.value])


async def test_a_mechanism_that_the_broker_does_not_have_is_refused(secure, everything_logged):
    """The listener itself offers all, so a listener without SASL stands for the broker that refuses."""
    consumer = Consumer("secured", **_settings(secure, "SASL_PLAINTEXT", bootstrap_servers=secure.bootstrap_servers))
    with pytest.raises(AiogroupError) as raised:
        await asyncio.wait_for(consumer.start(), 20)
    assert PASSWORD not in _shown(raised.value)
    assert not isinstance(raised.value, TimeoutError)


async def test_an_unknown_authority_is_named_with_what_to_do(secure, everything_logged, tmp_path):
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    settings = _settings(secure, "SASL_SSL") | {
        "ssl_context": ssl.create_default_context(cafile=tmp_path / "other.pem")
    }
    ears = Ears()
    consumer = Consumer("secured", observers=[ears], **settings)
    with pytest.raises(ConnectionLostError, match="ssl_context") as raised:
        await consumer.start()
    assert "cafile" in str(raised.value)
    _assert_hidden(everything_logged, ears, consumer, PASSWORD, errors=[raised.value])


async def test_plain_text_to_a_secure_listener_ends_with_a_typed_error(secure):
    consumer = Consumer("secured", bootstrap_servers=secure.bootstrap("SSL"), request_timeout_ms=3_000)
    with pytest.raises(AiogroupError) as raised:
        await asyncio.wait_for(consumer.start(), 10)
    assert "security_protocol" in str(raised.value)


async def test_tls_to_a_plain_listener_ends_with_a_typed_error(secure):
    settings = _settings(secure, "SSL", bootstrap_servers=secure.bootstrap_servers)
    consumer = Consumer("secured", **(settings | {"request_timeout_ms": 3_000}))
    with pytest.raises(AiogroupError) as raised:
        await asyncio.wait_for(consumer.start(), 10)
    assert "security_protocol" in str(raised.value)


NO_SASL, SILENT, OTHER = "takes no credentials", "before the first answer", "another protocol than"


@pytest.mark.parametrize(
    ("ours", "theirs", "told", "advice"),
    [
        ("SASL_PLAINTEXT", "PLAINTEXT", NO_SASL, "security_protocol='PLAINTEXT'"),
        ("SASL_SSL", "SSL", NO_SASL, "security_protocol='SSL'"),
        ("PLAINTEXT", "SASL_PLAINTEXT", SILENT, "One with SASL closes"),
        ("SSL", "SASL_SSL", SILENT, "One with SASL closes"),
        ("SSL", "PLAINTEXT", OTHER, "security_protocol='SSL'"),
        ("PLAINTEXT", "SSL", OTHER, "security_protocol='PLAINTEXT'"),
        ("SASL_PLAINTEXT", "SSL", OTHER, "security_protocol='SASL_PLAINTEXT'"),
        ("SASL_SSL", "SASL_PLAINTEXT", OTHER, "security_protocol='SASL_SSL'"),
    ],
)
async def test_another_listeners_protocol_is_reported_with_what_to_do(secure, ours, theirs, told, advice):
    settings = _settings(secure, ours, bootstrap_servers=secure.bootstrap(theirs), request_timeout_ms=3_000)
    consumer = Consumer("secured", **settings)
    with pytest.raises(AiogroupError) as raised:
        await asyncio.wait_for(consumer.start(), 10)
    assert told in str(raised.value)
    assert advice in str(raised.value)
    assert "refused the credentials" not in str(raised.value)


def loaded(context, certificate, path):
    certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    context.load_cert_chain(path)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_what_is_wrong_with_the_client_certificate_is_said(with_client_certificates, tmp_path, version):
    cluster, other = with_client_certificates, trustme.CA()

    async def why(load):
        settings = _settings(cluster, "SSL", request_timeout_ms=3_000)
        settings["ssl_context"].maximum_version = version
        load(settings["ssl_context"])
        with pytest.raises(ConnectionLostError) as raised:
            await Consumer("secured", **settings).start()
        return str(raised.value)

    missing = await why(lambda _: None)
    is_new = version is ssl.TLSVersion.TLSv1_3
    assert f"with the alert {'CERTIFICATE_REQUIRED' if is_new else 'HANDSHAKE_FAILURE'}: " in missing
    assert "requires a client certificate and got none: load one with ssl_context.load_cert_chain" in missing
    refused = "with the alert CERTIFICATE_UNKNOWN: it refused the client certificate: it must be valid now, and issued"
    assert refused in await why(lambda context: loaded(context, other.issue_cert("me"), tmp_path / "other.pem"))
    past = datetime.now(UTC) - timedelta(days=1)
    expired = other.issue_cert("me", not_after=past)
    assert refused in await why(lambda context: loaded(context, expired, tmp_path / "expired.pem"))


async def test_a_client_certificate_is_taken(with_client_certificates, unique_name):
    settings = _settings(with_client_certificates, "SSL")
    keystore = with_client_certificates.ca_pem.with_name("keystore.pem")  # whose certificate is for clients, too
    settings["ssl_context"].load_cert_chain(keystore)
    with_client_certificates.create_topic(topic := unique_name("topic"), 1)
    async with Consumer(topic, group_id=unique_name("group"), **settings) as consumer:
        assert consumer.partitions_for_topic(topic) == {0}


async def test_a_token_provider_that_fails_is_a_typed_error_without_the_token(secure, everything_logged):
    class Broken(Token):
        async def token(self) -> str:
            raise ValueError(f"cannot use {self.given}")

    provider, ears = Broken(), Ears()
    settings = _settings(secure, "SASL_SSL", "OAUTHBEARER", sasl_oauth_token_provider=provider)
    consumer = Consumer("secured", observers=[ears], **settings)
    with pytest.raises(AiogroupError, match="sasl_oauth_token_provider") as raised:
        await asyncio.wait_for(consumer.start(), 10)
    _assert_hidden(everything_logged, ears, consumer, provider.given, errors=[raised.value])


async def test_credentials_that_are_revoked_while_reading_are_reported_to_the_application(secure, everything_logged):
    """The broker goes away; when it is back it refuses the token: told once, no storm of attempts."""
    provider, ears = Token(), Ears()
    settings = _settings(secure, "SASL_PLAINTEXT", "OAUTHBEARER", sasl_oauth_token_provider=provider)
    consumer = Consumer("secured", observers=[ears], **settings)
    async with consumer:
        assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"0"
        provider.given = "no.real.token"
        asked_count = provider.asked_count
        await asyncio.to_thread(secure.nodes[0].stop)
        await asyncio.to_thread(secure.nodes[0].start)
        with pytest.raises(AuthenticationFailedError):
            await _drain(consumer)
        assert provider.asked_count - asked_count <= 8
        with pytest.raises(AuthenticationFailedError):  # fatal: raised again
            await asyncio.wait_for(consumer.getone(), 2)


async def _drain(consumer: Consumer) -> None:
    async with asyncio.timeout(20):
        while True:
            await consumer.getone()


# Authorization.


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_the_heartbeat_thread_speaks_the_same_security(secure, unique_name, protocol):
    """Its connection alone answers: the loop is blocked for twice the session."""
    ears = Ears()
    more = {"group_id": unique_name("thread"), "session_timeout_ms": 1_500, "heartbeat_interval_ms": 200}
    settings = _settings(secure, protocol, "SCRAM-SHA-256", observers=[ears], heartbeat_thread=True, **more)
    async with Consumer("secured", **settings) as consumer:
        generation = consumer.group_metadata().generation
        await consumer.getone()
        time.sleep(3)  # noqa: ASYNC251
        await consumer.getone()
        await consumer.commit()
        assert consumer.group_metadata().generation == generation
    acknowledged = [event for event in ears.events if isinstance(event, HeartbeatAcknowledged)]
    assert len(acknowledged) >= 10


async def test_a_topic_without_the_right_to_read_it_is_a_typed_error(secure):
    consumer = Consumer("secured", **_settings(secure, "SASL_PLAINTEXT", **WITHOUT_RIGHTS))
    with pytest.raises(TopicAuthorizationError, match="secured") as raised:
        async with consumer:
            await asyncio.wait_for(consumer.getone(), 15)
    assert raised.value.topics == {"secured"}


async def test_a_group_without_the_right_to_join_it_is_a_typed_error_at_once(secure):
    settings = _settings(secure, "SASL_PLAINTEXT", **WITHOUT_RIGHTS)
    consumer = Consumer("secured", group_id="theirs", **settings)
    with pytest.raises(GroupAuthorizationError, match="theirs"):
        await asyncio.wait_for(consumer.start(), 15)


# What suffices: docs/errors.md, docs/recovery.md and the messages say so.

SECURED = TopicPartition("secured", 0)


@pytest.fixture
async def somebody(secure, unique_name):
    """Settings of a principal without rights, and what grants it one: `await grant("GROUP", "billing", "READ")`."""
    principal = unique_name("somebody")

    def grant_at_once(kind, name, operation):
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        right = AclBinding(kind, name, literal, f"User:{principal}", "*", operation, allow)
        # A client of its own for each call: as long as one lives, its thread reports brokers that went away.
        admin = AdminClient({"bootstrap.servers": secure.bootstrap_servers})
        (done,) = admin.create_acls([right]).values()
        done.result(10)

    async def grant(kind, name, operation):
        await asyncio.to_thread(grant_at_once, ResourceType[kind], name, AclOperation[operation])

    token = {"sasl_oauth_token_provider": Token(principal)}
    return _settings(secure, "SASL_PLAINTEXT", "OAUTHBEARER", **token, retry_backoff_ms=20), grant


@pytest.fixture
async def with_commit(secure, unique_name):
    """A group that has committed 2."""
    group = unique_name("group")
    async with Consumer(group_id=group, bootstrap_servers=secure.bootstrap_servers) as consumer:
        consumer.assign([SECURED])
        await consumer.commit({SECURED: 2})
    return group


async def _until_granted(ask, refused):
    """What `ask` returns, once every node knows of the right whose lack is this error."""

    async def answer():
        try:
            return (await ask(),)
        except refused:
            return None

    (found,) = await eventually(answer)
    return found


async def test_read_on_the_topic_and_on_the_group_is_all_that_a_member_needs(somebody, unique_name):
    (settings, grant), group = somebody, unique_name("group")
    await grant("TOPIC", "secured", "READ")
    await grant("GROUP", group, "READ")

    async def read():
        async with Consumer("secured", group_id=group, **settings) as consumer:
            await asyncio.wait_for(consumer.getone(), 10)
            await consumer.commit()
            return await consumer.committed(SECURED)

    assert await _until_granted(read, (GroupAuthorizationError, TopicAuthorizationError)) == 1


async def test_describe_on_group_and_topic_is_enough_to_ask_what_a_group_has_committed(somebody, with_commit):
    """As KafkaApis.handleOffsetFetchRequest and handleFindCoordinatorRequest have it."""
    settings, grant = somebody
    config = ConsumerConfig.of(**settings, group_id=with_commit)

    async def ask():
        async with from_outside(config) as groups:
            found, refused = await groups.committed(with_commit, [SECURED])
        return [each.offset for each in found.values()], list(refused.values())

    async def consumers_own():
        async with Consumer(group_id=with_commit, enable_auto_commit=False, **settings) as consumer:
            consumer.assign([SECURED])
            return await consumer.committed(SECURED)

    with pytest.raises(GroupAuthorizationError, match=f"group '{with_commit}': grant DESCRIBE on the group"):
        await ask()
    await grant("GROUP", with_commit, "DESCRIBE")
    assert await _until_granted(ask, GroupAuthorizationError) == ([], [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(TopicAuthorizationError, match="grant READ on the topic"):
        await consumers_own()
    await grant("TOPIC", "secured", "DESCRIBE")
    await eventually(lambda: _is(ask(), ([2], [])))
    assert await consumers_own() == 2


async def _is(found, wanted):
    return await found == wanted


async def test_the_progress_of_jobs_is_read_with_describe_on_their_group(somebody, unique_name):
    (settings, grant), group = somebody, unique_name("group")
    await grant("TOPIC", "secured", "READ")
    await grant("GROUP", group, "READ")
    settings |= {"group_id": group, "enable_parallel_rebalance": True, "parallel_handoff": True}

    async def read():
        async with Consumer("secured", **settings) as consumer:
            return (await asyncio.wait_for(consumer.getone(), 10)).offset

    with pytest.raises(GroupAuthorizationError, match=rf"group '{group}\.catchup': grant DESCRIBE on the group"):
        await read()
    await grant("GROUP", f"{group}.catchup", "DESCRIBE")
    assert await _until_granted(read, GroupAuthorizationError) == 0
