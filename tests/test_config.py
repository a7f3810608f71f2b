"""Settings: every relation is checked where the value is made, and the message names both sides."""

from __future__ import annotations

import dataclasses
import inspect
import pprint
import ssl
import sys

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider

from aiogroup import Consumer
from aiogroup.config import (
    FRAME_LIMIT_BYTES,
    OBSOLETE,
    ConsumerConfig,
    ResetPolicy,
    check_topic_name,
    parse_reset_policy,
)
from aiogroup.errors import ConfigError, InvalidTopicError

NAMES = {each.name for each in dataclasses.fields(ConsumerConfig)}
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class TokenProvider(AbstractTokenProvider):
    async def token(self):
        return "token"


CONTRADICTIONS = [
    ({"heartbeat_interval_ms": 10_000}, "heartbeat_interval_ms=10000", "session_timeout_ms=10000"),
    ({"request_timeout_ms": 500}, "request_timeout_ms=500", "fetch_max_wait_ms=500"),
    ({"member_name": "a", "group_instance_id": "b", "group_id": "g"}, "member_name='a'", "group_instance_id='b'"),
    ({"group_instance_id": "pod-1"}, "group_instance_id='pod-1'", "group_id"),
    ({"registration_timeout_ms": 900_000, "group_id": "g"}, "registration_timeout_ms=900000", "member_name"),
    ({"expansion_timeout_ms": 1, "group_id": "g"}, "expansion_timeout_ms=1", "member_name"),
    (
        {"registration_timeout_ms": 3_000, "member_name": "a", "group_id": "g"},
        "heartbeat_interval_ms=3000",
        "registration_timeout_ms=3000",
    ),
    ({"max_buffered_bytes": 1_000}, "max_buffered_bytes=1000", "max_partition_fetch_bytes=1048576"),
    (
        {"max_buffered_bytes": 60_000, "max_partition_fetch_bytes": 50_000},
        "max_buffered_bytes=60000 must not be below 65536",
        "fetch_max_bytes=8388608",
    ),
    ({"security_protocol": "SSL"}, "security_protocol='SSL'", "ssl_context"),
    ({"security_protocol": "SASL_SSL"}, "security_protocol='SASL_SSL'", "ssl_context"),
    ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_mechanism='PLAIN'", "sasl_plain_username"),
    (
        {"sasl_plain_username": "alice", "sasl_plain_password": "x"},
        "sasl_plain_username, sasl_plain_password have no effect with security_protocol='PLAINTEXT'",
        "SASL_SSL",
    ),
    ({"sasl_mechanism": "SCRAM-SHA-512"}, "sasl_mechanism has no effect", "security_protocol='PLAINTEXT'"),
    (
        {"sasl_oauth_token_provider": TokenProvider(), "security_protocol": "SSL", "ssl_context": TLS},
        "sasl_oauth_token_provider has no effect",
        "security_protocol='SSL'",
    ),
    ({"ssl_context": TLS}, "ssl_context has no effect", "security_protocol='PLAINTEXT'"),
    (
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
        "sasl_mechanism='OAUTHBEARER'",
        "sasl_oauth_token_provider",
    ),
    (
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": TokenProvider(),
            "heartbeat_thread": True,
        },
        "heartbeat_thread=True",
        "sasl_mechanism='OAUTHBEARER'",
    ),
]
OUT_OF_RANGE = [
    *(
        ({name: value}, name)
        for name in (
            "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "rebalance_timeout_ms",
            "auto_commit_interval_ms", "max_poll_records", "fetch_max_bytes", "max_partition_fetch_bytes",
            "max_buffered_bytes", "request_timeout_ms", "default_api_timeout_ms", "metadata_max_age_ms",
            "connections_max_idle_ms", "registration_timeout_ms",
        )
        for value in (0, -1, 2**31)
    ),
    *(({name: -1}, name) for name in ("fetch_min_bytes", "fetch_max_wait_ms", "retry_backoff_ms")),
    ({"expansion_timeout_ms": -1}, "expansion_timeout_ms"),
    ({"group_id": ""}, "group_id"),
    ({"group_id": "g", "group_instance_id": "a b"}, "group_instance_id"),
    ({"group_id": "g", "group_instance_id": "."}, "group_instance_id"),
    ({"group_id": "g", "group_instance_id": "x" * 250}, "group_instance_id"),
    ({"partition_assignment_strategy": ()}, "partition_assignment_strategy"),
    ({"isolation_level": "serializable"}, "isolation_level"),
    ({"security_protocol": "TLS"}, "security_protocol"),
    ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "MD5"}, "sasl_mechanism"),
    ({"auto_offset_reset": "first"}, "auto_offset_reset"),
    ({"new_partition_reset": "first"}, "new_partition_reset"),
    *(
        ({"bootstrap_servers": value}, "bootstrap_servers")
        for value in ("", [], " ,", [""], "host:port", "host:0", "host:65536", ":9092", "host:\u00b2", 5, [5], None)
    ),
]  # fmt: skip
WRONG_TYPES = [
    ({"session_timeout_ms": "10000"}, "session_timeout_ms"),
    ({"session_timeout_ms": 10.5}, "session_timeout_ms"),
    ({"session_timeout_ms": None}, "session_timeout_ms"),
    ({"max_poll_records": True}, "max_poll_records"),
    ({"enable_auto_commit": "yes"}, "enable_auto_commit"),
    ({"client_id": b"me"}, "client_id"),
    ({"group_id": 5}, "group_id"),
    ({"value_deserializer": "json"}, "value_deserializer"),
    ({"key_deserializer": 3}, "key_deserializer"),
    ({"value_deserializer": TokenProvider.token}, "value_deserializer"),
    ({"ssl_context": 3}, "ssl_context: an ssl.SSLContext is needed, not int"),
    ({"ssl_context": ssl.SSLContext, "security_protocol": "SSL"}, "ssl_context"),
]
NOT_SENDABLE = [
    *(
        ({name: text}, rf"{name}: {why}")
        for name in ("client_id", "client_rack", "group_id", "parallel_group_id")
        for text, why in (("pod-\udcff", "its character 4 is no Unicode"), ("\u00e9" * 16_384, "32768 bytes as UTF-8"))
    ),
    ({"sasl_plain_password": "secret\udcff"}, "sasl_plain_password: its character 6 is no Unicode"),
]
"""Texts with a lone surrogate, as os.environ has it for a byte that is not UTF-8, and texts longer than Kafka's."""


def test_expansion_timeout_that_a_newcomer_would_not_survive_warns():
    static = {"group_id": "g", "member_name": "pod-1"}
    with pytest.warns(UserWarning, match="expansion_timeout_ms=240001 acts as 240000"):
        ConsumerConfig.of(**static, expansion_timeout_ms=240_001)
    ConsumerConfig.of(**static, expansion_timeout_ms=240_000)  # a warning would be an error


TOO_LONG = {"expansion_timeout_ms": 240_001}


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (Consumer, TOO_LONG),
        (ConsumerConfig.of, TOO_LONG),
        (ConsumerConfig, TOO_LONG),
        (Consumer, {"api_version": "auto"}),
        (ConsumerConfig.of, {"api_version": "auto"}),
    ],
)
def test_warnings_point_at_the_line_that_gave_the_setting(make, setting):
    with pytest.warns((UserWarning, DeprecationWarning)) as told:
        make(group_id="g", member_name="pod-1", **setting)
    assert [each.filename for each in told] == [__file__]


def test_defaults_are_kip_62s():
    config = ConsumerConfig()
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (10_000, 3_000)
    assert (config.max_poll_interval_ms, config.max_poll_records) == (300_000, 500)


@pytest.mark.parametrize(("given", "one", "other"), CONTRADICTIONS, ids=lambda each: str(each)[:40])
def test_contradiction_names_both_settings(given, one, other):
    with pytest.raises(ConfigError) as refused:
        ConsumerConfig.of(**given)
    assert one in str(refused.value)
    assert other in str(refused.value)


@pytest.mark.parametrize(("given", "name"), OUT_OF_RANGE + WRONG_TYPES, ids=lambda each: str(each)[:40])
def test_value_out_of_range_or_of_the_wrong_type_is_refused_by_name(given, name):
    with pytest.raises(ConfigError, match=name):
        ConsumerConfig.of(**given)


@pytest.mark.parametrize(("given", "told"), NOT_SENDABLE, ids=lambda each: ascii(each)[:40])
def test_text_that_no_request_can_carry_is_refused_without_repeating_it(given, told):
    with pytest.raises(ConfigError, match=told) as refused:
        ConsumerConfig.of(**given)
    assert "secret" not in str(refused.value)
    str(refused.value).encode()


def test_longest_text_of_a_request_is_taken():
    assert ConsumerConfig.of(group_id="\u00e9" * 16_383 + "g").group_id


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [("sesion_timeout_ms", "session_timeout_ms"), ("max_poll_interval", "max_poll_interval_ms")],
)
def test_unknown_setting_suggests_the_nearest(unknown, meant):
    with pytest.raises(ConfigError, match=rf"'{unknown}'; did you mean '{meant}'\?"):
        ConsumerConfig.of(**{unknown: 1})


@pytest.mark.parametrize(
    ("foreign", "told"),
    [
        ("group_protocol", "classic protocol"),
        ("deserializer", "value_deserializer"),
        ("broker", "bootstrap_servers"),
        ("brokers", "bootstrap_servers"),
        ("topic", "as arguments"),
        ("group", "group_id"),
        ("auto_commit", "enable_auto_commit"),
        ("auto_commit_enable", "enable_auto_commit"),
        ("rebalance_listener", "listener="),
        ("statistics_interval_ms", "observers="),
        ("ssl_cafile", "ssl_context=ssl.create_default_context"),
        ("ssl_check_hostname", "ssl_context"),
    ],
)
def test_a_name_that_other_clients_have_is_answered_with_what_to_write(foreign, told):
    with pytest.raises(ConfigError, match=rf"unknown setting '{foreign}'.*{told}"):
        ConsumerConfig.of(**{foreign: "x"})


def test_unknown_setting_without_a_neighbour_is_refused_all_the_same():
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz'$"):
        ConsumerConfig.of(zzz=1)


def test_every_setting_of_aiokafkas_consumer_is_taken():
    theirs = inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters.keys() - {"self", "topics"}
    assert {name for name in theirs if name not in NAMES and name not in OBSOLETE} == set()


def test_aiokafkas_defaults_are_values_we_take():
    parameters = inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters
    given = {name: each.default for name, each in parameters.items() if each.default is not inspect.Parameter.empty}
    with pytest.warns(DeprecationWarning, match="has no meaning"):
        ConsumerConfig.of(**given)


@pytest.mark.parametrize("name", sorted(OBSOLETE))
def test_obsolete_setting_is_ignored_and_reported(name):
    with pytest.warns(DeprecationWarning, match=name):
        config = ConsumerConfig.of(**{name: object()})
    assert config == ConsumerConfig()


def test_gssapi_that_cannot_be_imported_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"import of gssapi halted.*pip install gssapi.*libkrb5-dev"):
        ConsumerConfig.of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")


def test_secrets_are_not_shown():
    config = ConsumerConfig(
        security_protocol="SASL_SSL",
        ssl_context=TLS,
        sasl_plain_username="alice-secret",
        sasl_plain_password="password-secret",
        sasl_oauth_token_provider="token-secret",
    )
    for shown in (repr(config), pprint.pformat(config)):  # pprint shows field by field
        assert "secret" not in shown
        assert "SSLContext" not in shown


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConsumerConfig().session_timeout_ms = 1


@pytest.mark.parametrize(
    ("session", "poll", "effective"), [(10_000, 300_000, 300_000), (45_000, 20_000, 45_000), (10_000, 10_000, 10_000)]
)
def test_poll_interval_is_never_shorter_than_the_session(session, poll, effective):
    config = ConsumerConfig(session_timeout_ms=session, max_poll_interval_ms=poll)
    assert config.effective_poll_interval_ms == effective
    assert config.effective_rebalance_timeout_ms == effective


def test_join_may_stay_unanswered_longer_than_the_rebalance_takes():
    assert ConsumerConfig().join_timeout_ms == 305_000
    assert ConsumerConfig(rebalance_timeout_ms=60_000).join_timeout_ms == 65_000
    assert ConsumerConfig(rebalance_timeout_ms=1_000).join_timeout_ms == 30_000


def test_member_name_is_another_name_of_the_instance_id():
    assert ConsumerConfig(group_id="g", member_name="pod-1").instance_id == "pod-1"
    assert ConsumerConfig(group_id="g", member_name="pod-1", group_instance_id="pod-1").instance_id == "pod-1"
    assert ConsumerConfig(group_id="g").instance_id is None


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("a:1,", [("a", 1)]),
        (",a:1, ,b:2", [("a", 1), ("b", 2)]),
        (["a:1", ""], [("a", 1)]),
    ],
)
def test_bootstrap_servers_are_read(servers, addresses):
    assert list(ConsumerConfig(bootstrap_servers=servers).bootstrap_addresses) == addresses


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("earliest", ResetPolicy("earliest")),
        ("none", ResetPolicy("none")),
        ("by_duration:PT6H", ResetPolicy("by_duration", 6 * 3_600_000)),
        ("by_duration:P1DT2H3M4.5S", ResetPolicy("by_duration", 93_784_500)),
        ("by_duration:PT0S", ResetPolicy("by_duration", 0)),
    ],
)
def test_reset_policy_is_read(text, policy):
    assert parse_reset_policy(text) == policy


@pytest.mark.parametrize(
    "text", ["", "Earliest", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "6h"]
)
def test_reset_policy_that_means_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="by_duration:PT6H"):
        parse_reset_policy(text)


@pytest.mark.parametrize("topic", ["a", "A.b_c-1", "x" * 249])
def test_topic_kafka_takes_is_taken(topic):
    assert check_topic_name(topic) == topic


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "x" * 250, "\u00e9", "a\n", None, 5, b"a"])
def test_topic_kafka_would_refuse_is_refused(topic):
    with pytest.raises(InvalidTopicError, match="249"):
        check_topic_name(topic)


@pytest.mark.parametrize("topics", [["orders"], ("orders", "payments"), {"orders"}])
def test_several_topics_in_one_argument_are_refused_with_the_right_call(topics):
    with pytest.raises(InvalidTopicError, match=r"Consumer\('orders', 'payments', \.\.\.\)"):
        Consumer(topics, group_id="billing")


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap.servers": "kafka:9092", "sasl.password": "hush"},
        ConsumerConfig.of(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="u",
            sasl_plain_password="hush",
        ),
    ],
)
def test_settings_in_place_of_a_topic_are_told_without_their_values(given):
    with pytest.raises(InvalidTopicError, match="settings are keyword arguments") as caught:
        Consumer(given)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("servers", ["kafka://host:9092", "PLAINTEXT://host:9092", ["a:1", "https://host"]])
def test_bootstrap_servers_with_a_scheme_are_refused_with_the_right_form(servers):
    with pytest.raises(ConfigError, match=r"bootstrap_servers: '.*://host.*' .* without .*://.* security_protocol"):
        ConsumerConfig(bootstrap_servers=servers)


@pytest.mark.parametrize(
    "servers",
    [
        "u:secret@host:9092",
        "u:secret@host",
        "host:9092,kafka://u:secret@host:9092",
        ["host:9092", "u:secret@[::1]:9092"],
        b"u:secret@host:9092",
        {"u:secret@host:9092"},
    ],
)
def test_bootstrap_servers_with_a_password_are_refused_without_repeating_it(servers):
    with pytest.raises(ConfigError, match="bootstrap_servers") as refused:
        ConsumerConfig(bootstrap_servers=servers)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


@pytest.mark.parametrize("name", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_no_answer_is_asked_for_that_would_not_be_read(name):
    most = FRAME_LIMIT_BYTES // 2
    sizes = {"max_buffered_bytes": 2**30, name: most}
    assert getattr(ConsumerConfig(**sizes), name) == most
    with pytest.raises(ConfigError, match=f"{name}={most + 1} must not be above {most}"):
        ConsumerConfig(**(sizes | {name: most + 1}))
