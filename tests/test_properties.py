"""Java properties files and class names, as the verifiable clients read them."""

from __future__ import annotations

import pytest
import trustme

from aiogroup._command.properties import (
    assignors_of,
    check_group_protocol,
    consumer_settings,
    load_properties,
    parse_properties,
    producer_settings,
)
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError
from aiogroup.verifiable import consumer

JAVA = "org.apache.kafka.clients.consumer."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\r\nc: 3\rd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# no=1\n! no=2\n\n  \t\n   a=1", {"a": "1"}),
        ("a=one\\\n   two\\\n\n", {"a": "onetwo"}),
        ("a=1\\\n# not a comment\n", {"a": "1# not a comment"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("# a comment is not continued \\\na=1", {"a": "1"}),
        ("a\\=b\\ c=d=e:f g ", {"a=b c": "d=e:f g "}),
        ("tab=\\t|\\n|\\r|\\f|\\q", {"tab": "\t|\n|\r|\f|q"}),
        ("u=\\u00e9\\ud83d\\ude00", {"u": "\u00e9\U0001f600"}),
        ("empty=\nalone\n=no key", {"empty": "", "alone": "", "": "no key"}),
        ("a=1\na=2", {"a": "2"}),
        ("a \t = \t 1", {"a": "1"}),
        ("ends=in\\", {"ends": "in"}),
    ],
)
def test_the_format_is_javas(text, expected):
    assert parse_properties(text) == expected


def test_a_malformed_escape_is_an_error_as_in_java():
    with pytest.raises(ConfigError, match="malformed"):
        parse_properties("a=\\u12")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            '# no\nsasl.jaas.config=\\\n Plain username="corp\\user1" password="hunter2";',
            "'sasl.jaas.config' in line 2",
        ),
        ("a=1\n\nhunter2\\user1", "the key in line 3"),
        ("hunter2\\u12\\", "the key in line 1"),
    ],
)
def test_a_malformed_escape_is_named_without_a_value(text, where):
    with pytest.raises(ConfigError) as raised:
        parse_properties(text)
    assert where in str(raised.value)
    assert r"write \\ for a backslash" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_advised_backslashes_are_read_as_one():
    jaas = r'sasl.jaas.config=Plain username="corp\\\\user1" password="hunter2";'
    settings, _ = consumer_settings(parse_properties(f"security.protocol=SASL_PLAINTEXT\n{jaas}"))
    assert settings["sasl_plain_username"] == r"corp\user1"


def test_a_file_is_latin_1(tmp_path):
    path = tmp_path / "file.properties"
    path.write_bytes(b"name=\xe9\n")
    assert load_properties(path) == {"name": "\u00e9"}


def test_java_classes_have_our_names():
    assert assignors_of(JAVA + "RangeAssignor") == ("range",)
    assert assignors_of(f" {JAVA}RoundRobinAssignor , {JAVA}RangeAssignor,") == ("roundrobin", "range")
    assert assignors_of("range") == ("range",)


def test_what_is_not_there_is_refused_until_it_is():
    name = JAVA + "CooperativeStickyAssignor"
    with pytest.raises(ConfigError, match=r"does not have it yet; it has .*\.RangeAssignor"):
        assignors_of(name, {"range"})
    assert assignors_of(f"{name},{JAVA}StickyAssignor", {"cooperative-sticky", "sticky"}) == (
        "cooperative-sticky",
        "sticky",
    )


@pytest.mark.parametrize("text", ["com.example.Mine", "", ",", "RangeAssignorr"])
def test_what_is_no_assignor_is_refused(text):
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy"):
        assignors_of(text)


def test_keys_become_settings_of_their_kind():
    settings, ignored = consumer_settings(
        {
            "heartbeat.interval.ms": " 200 ",
            "max.poll.records": "7",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": "FALSE",
            "partition.assignment.strategy": JAVA + "RoundRobinAssignor",
            "group.protocol": "CLASSIC",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "reconnect.backoff.ms": "50",
            "auto.ack": "false",
        }
    )
    assert settings == {
        "heartbeat_interval_ms": 200,
        "max_poll_records": 7,
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        "partition_assignment_strategy": ("roundrobin",),
    }
    assert ignored == ("key.deserializer", "reconnect.backoff.ms", "auto.ack")
    ConsumerConfig.of(group_id="g", **settings)


@pytest.mark.parametrize(
    "properties",
    [
        {"max.poll.records": "many"},
        {"check.crcs": "yes"},
        {"group.protocol": "consumer"},
        {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere/at.all"},
    ],
)
def test_a_value_that_is_not_of_its_kind_is_refused_by_its_key(properties):
    with pytest.raises(ConfigError, match=list(properties)[-1]):
        consumer_settings(properties)


@pytest.mark.parametrize(
    "key", ["sasl.mechanism", "sasl.jaas.config", "sasl.plain.password", "ssl.truststore.location"]
)
@pytest.mark.parametrize("read", [consumer_settings, producer_settings])
def test_what_a_secure_connection_is_meant_with_is_not_ignored_without_one(read, key):
    with pytest.raises(ConfigError, match=rf"{key}: without effect, as security\.protocol is not set: .*SASL_SSL"):
        read({"bootstrap.servers": "a:1", key: "PLAIN"})


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_file_for_several_protocols_is_read_as_by_java(protocol):
    """Those of Kafka's system tests name a mechanism and a store whatever the protocol is."""
    settings, ignored = consumer_settings({"security.protocol": protocol, "sasl.mechanism": "GSSAPI"})
    assert ConsumerConfig.of(group_id="g", **settings).security_protocol == protocol
    assert ignored == ()


def test_only_the_classic_protocol_is_spoken():
    check_group_protocol("classic")
    with pytest.raises(ConfigError, match="'classic' only"):
        check_group_protocol("consumer")


def test_credentials_are_read_from_jaas():
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a b" password="x\\"y;=";'
    settings, ignored = consumer_settings(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    )
    config = ConsumerConfig.of(group_id="g", **settings)
    assert (config.sasl_plain_username, config.sasl_plain_password) == ("a b", 'x"y;=')
    assert ignored == ()


def test_a_pem_truststore_is_trusted(tmp_path):
    path = tmp_path / "trust.pem"
    trustme.CA().cert_pem.write_to_path(path)
    asked = {"security.protocol": "SSL", "ssl.truststore.location": str(path)}
    settings, _ = consumer_settings(asked)
    assert settings["ssl_context"].check_hostname
    assert len(settings["ssl_context"].get_ca_certs()) == 1
    settings, _ = producer_settings({**asked, "ssl.endpoint.identification.algorithm": ""})
    assert not settings["ssl_context"].check_hostname


def test_a_java_keystore_is_refused_with_a_way_out(tmp_path):
    path = tmp_path / "trust.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigError, match="only PEM"):
        consumer_settings({"security.protocol": "SSL", "ssl.truststore.location": str(path)})


def test_the_producers_keys_are_aiokafkas():
    settings, ignored = producer_settings(
        {
            "acks": "-1",
            "compression.type": "none",
            "linger.ms": "5",
            "batch.size": "100",
            "enable.idempotence": "true",
            "security.protocol": "PLAINTEXT",
            "retries": "3",
        }
    )
    assert settings == {
        "acks": "all",
        "compression_type": None,
        "linger_ms": 5,
        "max_batch_size": 100,
        "enable_idempotence": True,
        "security_protocol": "PLAINTEXT",
    }
    assert ignored == ("retries",)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--group-protocol", "consumer"], "KIP-848"),
        (["--assignment-strategy", "com.example.Mine"], "no assignor"),
        (["--session-timeout", "0"], "session_timeout_ms"),
        (["--reset-policy", "sometimes"], "auto_offset_reset"),
        (["--command-config", "/nowhere/at.all"], "cannot be read"),
        (["--unknown"], "unrecognized"),
    ],
)
def test_bad_arguments_end_with_1_and_say_why_on_stderr(capsys, extra, words):
    with pytest.raises(SystemExit) as ended:
        consumer.main(["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--group-id", "g", *extra])
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert said.out == ""
    assert words in said.err
