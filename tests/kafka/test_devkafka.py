"""devkafka against the real thing: what it starts serves, and what it started goes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from aiogroup.devkafka import Cluster, DevKafkaError, storage, unsecured_jws, up, warm, wire
from aiogroup.devkafka.ports import free_ports
from aiogroup.devkafka.sharing import BorrowedCluster, Lender
from aiogroup.devkafka.waiting import wait_until


async def _round_trip(topic: str, **link) -> None:
    producer = AIOKafkaProducer(**link)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"value")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **link)
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"value"
    finally:
        await consumer.stop()


async def test_a_record_goes_there_and_back(kafka_cluster, unique_name):
    topic = unique_name("topic")
    kafka_cluster.create_topic(topic, partitions=1)
    await _round_trip(topic, bootstrap_servers=kafka_cluster.bootstrap_servers)


def test_a_topic_is_led_on_every_node_when_made(kafka_cluster_3, unique_name):
    topic = unique_name("topic")
    kafka_cluster_3.create_topic(topic, 6, replication_factor=3, config={"retention.ms": "1000"})
    for node in kafka_cluster_3.nodes:
        assert set(wire.metadata(node.port, (topic,)).leaders[topic]) == set(range(6))


def test_a_topic_is_served_when_made(kafka_cluster, unique_name):
    """Kafka names a leader before that one has opened its logs: what was sent without acks until then was lost."""
    (node,) = kafka_cluster.nodes
    for partitions in (1, 20, 50):
        topic = unique_name("topic")
        kafka_cluster.create_topic(topic, partitions)
        assert wire.serves(node.port, topic, range(partitions))
    assert not wire.serves(node.port, topic, [50])


def test_a_refused_topic_says_why(kafka_cluster, unique_name):
    topic = unique_name("topic")
    kafka_cluster.create_topic(topic)
    with pytest.raises(DevKafkaError, match="already exists"):
        kafka_cluster.create_topic(topic)
    with pytest.raises(DevKafkaError, match="no\\.such\\.setting"):
        kafka_cluster.create_topic(unique_name("topic"), config={"no.such.setting": "1"})


def test_a_training_that_does_not_end_is_an_error_of_devkafka(tmp_path, monkeypatch):
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17"')
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")  # a Java that refuses an option ends at once
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(DevKafkaError, match=r"^the training of the tools did not end$"):
        warm.use_tools("127.0.0.1:1", tmp_path / "cache", timeout_ms=1)


def test_a_tool_of_the_same_jars_runs(kafka_cluster, unique_name):
    topic = unique_name("topic")
    kafka_cluster.create_topic(topic)
    tool = kafka_cluster.java(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", kafka_cluster.bootstrap_servers, "--topic", topic, "--max-messages", "3"),
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(line) for line in tool.communicate(timeout=60)[0].splitlines()]
    assert tool.returncode == 0
    assert [line["name"] for line in lines].count("producer_send_success") == 3


def _without_times(checkpoint: bytes) -> bytes:
    """The record batches without their checksums and time stamps."""
    left, at = b"", 0
    while at < len(checkpoint):
        end = at + 12 + int.from_bytes(checkpoint[at + 8 : at + 12], "big")
        left += checkpoint[at : at + 17] + checkpoint[at + 21 : at + 27] + checkpoint[at + 43 : end]
        at = end
    return left


def test_the_storage_that_is_copied_is_what_kafkas_tool_writes(kafka_cluster, unique_name, tmp_path):
    home = kafka_cluster.directory / "node-1"
    settings = tmp_path / "server.properties"
    settings.write_text((home / "server.properties").read_text().replace(str(home / "data"), str(tmp_path / "data")))
    arguments = ("format", "-t", kafka_cluster.cluster_id, "-c", str(settings))
    tool = kafka_cluster.java("kafka.tools.StorageTool", *arguments, stdout=subprocess.DEVNULL)
    assert tool.wait(60) == 0
    ours, theirs = (folder / storage.CHECKPOINT for folder in (home / "data", tmp_path / "data"))
    assert b"metadata.version" in _without_times(theirs.read_bytes())
    assert _without_times(ours.read_bytes()) == _without_times(theirs.read_bytes())
    written, known = (
        dict(line.split("=") for line in (folder / "meta.properties").read_text().split() if "=" in line)
        for folder in (tmp_path / "data", home / "data")
    )
    assert len(written.pop("directory.id")) == len(known.pop("directory.id"))
    assert known == written


def test_three_nodes_go_on_while_one_is_stopped_killed_or_paused(kafka_cluster_3, unique_name, is_gone):
    cluster, node = kafka_cluster_3, kafka_cluster_3.nodes[0]
    port = node.port
    others = {each.node_id for each in cluster.nodes} - {node.node_id}

    def only_others_are_listed() -> bool:
        try:
            return all(wire.metadata(each.port).broker_ids == others for each in cluster.nodes[1:])
        except wire.WireError:
            return False

    for down, back in ((node.stop, node.start), (node.kill, node.start), (node.pause, node.resume)):
        pid = node.pid
        down()
        assert node.is_paused or is_gone(pid)
        wait_until(only_others_are_listed, 30_000, cluster.log_tail)
        cluster.create_topic(unique_name("topic"), 3, replication_factor=2)
        back()
        cluster.await_ready()
        assert node.port == port
        assert wire.metadata(port).broker_ids == others | {node.node_id}


def test_data_outlives_a_kill(is_gone):
    with Cluster() as cluster:
        node = cluster.nodes[0]
        cluster.create_topic("kept", 2)
        pid, directory = node.pid, cluster.directory
        node.kill()
        assert is_gone(pid)
        assert "ended -9" in cluster.log_tail(5)
        with pytest.raises(DevKafkaError, match="does not run"):
            node.pause()
        node.start()
        wait_until(lambda: len(wire.metadata(node.port, ("kept",)).leaders["kept"]) == 2, 30_000, node.log_tail)
        with pytest.raises(DevKafkaError, match="runs already"):
            node.start()
        pid = node.pid
    assert is_gone(pid)
    assert not directory.exists()


async def test_a_failing_block_shows_the_log():
    async def fail() -> None:
        async with Cluster() as cluster:
            assert wire.api_versions(cluster.nodes[0].port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await fail()
    assert "--- node 1 (running)" in caught.value.__notes__[0]


def test_a_failing_start_shows_the_end_of_the_log():
    cluster = Cluster(properties={"num.io.threads": "-5"})
    with pytest.raises(DevKafkaError, match=r"num\.io\.threads"):
        cluster.start()
    with pytest.raises(DevKafkaError, match="not started"):
        _ = cluster.directory


def test_a_taken_port_is_named(kafka_cluster):
    port = kafka_cluster.nodes[0].port
    with pytest.raises(DevKafkaError, match=f"port {port} is taken"):
        Cluster(port=port).start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind_when_the_parent_is_ended(number, is_gone):
    code = """
        import json, time
        from aiogroup.devkafka import Cluster
        with Cluster(nodes=1) as cluster:
            cluster.nodes[0].pause()
            tool = cluster.java("org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server",
                cluster.bootstrap_servers, "--topic", "t", "--group-id", "g")
            pids = [cluster.nodes[0].pid, tool.pid]
            print(json.dumps({"pids": pids, "directory": str(cluster.directory)}), flush=True)
            while True:
                time.sleep(0.5)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        seen = json.loads(child.stdout.readline())
        assert Path(seen["directory"]).is_dir()
        assert not any(map(is_gone, seen["pids"]))
        try:
            child.send_signal(number)
            child.wait(30)
        finally:
            child.kill()
    wait_until(lambda: all(map(is_gone, seen["pids"])), 15_000, lambda: f"gone: {seen['pids']}")
    wait_until(lambda: not Path(seen["directory"]).exists(), 15_000, lambda: "the data is gone")


def test_the_workers_of_one_run_share_one_node_and_it_ends_with_the_run(tmp_path, is_gone):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]')
    code = """
        import json
        from pathlib import Path
        import pytest
        from aiogroup.devkafka import DevKafkaError

        def test_it(kafka_cluster, worker_id):
            (node,) = kafka_cluster.nodes
            kafka_cluster.create_topic(worker_id)
            for end in (node.stop, node.kill, node.pause, node.resume, node.start):
                with pytest.raises(DevKafkaError, match="shared with other processes"):
                    end()
            seen = {"pid": node.pid, "directory": str(kafka_cluster.directory), "id": kafka_cluster.cluster_id}
            assert node.is_running
            Path(__file__).with_name(worker_id + ".json").write_text(json.dumps(seen))
    """
    (tmp_path / "test_shared.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "each"]
    command += ["-o", "kafka_cluster_shared=true", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    one, another = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("gw*.json")))
    assert one == another
    assert is_gone(one["pid"])
    assert not Path(one["directory"]).exists()


def test_who_asks_a_lender_that_is_gone_or_that_cannot_start_learns_it(tmp_path):
    with pytest.raises(DevKafkaError, match="is gone"):
        BorrowedCluster(str(tmp_path / "nobody")).start()
    lender = Lender(lambda: Cluster(properties={"num.io.threads": "-5"}))
    try:
        for _ in range(2):
            borrowed = BorrowedCluster(lender.address)
            with pytest.raises(DevKafkaError, match=r"num\.io\.threads"):
                borrowed.start()
            with pytest.raises(DevKafkaError, match="not started"):
                _ = borrowed.directory
    finally:
        lender.close()


def test_up_and_down(tmp_path, is_gone):
    # Its own record, so that a developer's running `up` is left alone; the jars' own record comes along.
    cache = tmp_path / "aiogroup" / "devkafka"
    cache.mkdir(parents=True)
    for record in up.cache_dir().glob("kafka-*.json"):
        (cache / record.name).write_bytes(record.read_bytes())
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    base = [sys.executable, "-m", "aiogroup.devkafka"]
    with subprocess.Popen([*base, "up"], stdout=subprocess.PIPE, text=True, env=env) as started:
        lines = iter(started.stdout.readline, "")
        servers = next(line for line in lines if line.startswith("bootstrap servers: ")).split(": ")[1].strip()
        assert wire.metadata(int(servers.rpartition(":")[2])).broker_ids == {1}
        ended = subprocess.run([*base, "down"], capture_output=True, text=True, env=env, check=True)
        assert ended.stdout.strip() == f"ended {servers}"
        assert started.wait(30) == 0
    again = subprocess.run([*base, "down"], capture_output=True, text=True, env=env, check=True)
    assert "nothing to end" in again.stdout
    assert is_gone(started.pid)


def test_up_has_the_security_that_it_was_given_at_the_port_that_it_was_given():
    (port,) = free_ports(1)
    options = ("--security", "SASL_SSL", "--port", str(port), "--topic", "orders", "--topic", "bills:2")
    command = [sys.executable, "-m", "aiogroup.devkafka", "up", *options, "--partitions", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as started:
        try:
            said = iter(started.stdout.readline, "")
            lines = list(itertools.takewhile(lambda line: not line.startswith("Ctrl-C"), said))
            assert lines[1:5] == [
                "TOPIC   PARTITIONS\n",
                "orders           3\n",
                "bills            2\n",
                f"bootstrap servers: 127.0.0.1:{port}\n",
            ]
            more = re.search(
                r"authority to trust: (\S+)\n.*without security: 127.0.0.1:(\d+)\n", "".join(lines), re.DOTALL
            )
            leaders = wire.metadata(int(more[2]), ("orders", "bills")).leaders
            assert {name: len(of) for name, of in leaders.items()} == {"orders": 3, "bills": 2}
            link = {"bootstrap_servers": f"127.0.0.1:{port}", "security_protocol": "SASL_SSL"}
            trusting = ssl.create_default_context(cafile=more[1])
            asyncio.run(_round_trip("orders", ssl_context=trusting, **link, **_account("PLAIN", "alice-secret")))

            (export,) = (line for line in lines if line.startswith("  export "))
            script = f'{export}exec "$0" -m aiogroup tail orders --from earliest'
            read = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False)
            assert (read.returncode, read.stderr) == (0, "")
            assert read.stdout.endswith("  value\n")

            started.send_signal(signal.SIGINT)
            assert next(said) == "ended\n"
            assert started.wait(60) == 130
        finally:
            started.terminate()


class _Token(AbstractTokenProvider):
    async def token(self) -> str:
        return unsecured_jws("alice")


def _account(mechanism: str, password: str = "s3cret-of-alice") -> dict[str, object]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _Token()}
    return {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_each_mechanism_connects(secure, unique_name, protocol, mechanism):
    topic = unique_name("topic")
    secure.create_topic(topic)
    await _round_trip(
        topic,
        bootstrap_servers=secure.bootstrap(protocol),
        security_protocol=protocol,
        ssl_context=ssl.create_default_context(cafile=secure.ca_pem) if "SSL" in protocol else None,
        **_account(mechanism),
    )


async def test_ssl_connects(secure, unique_name):
    topic = unique_name("topic")
    secure.create_topic(topic)
    await _round_trip(
        topic,
        bootstrap_servers=secure.bootstrap("SSL"),
        security_protocol="SSL",
        ssl_context=ssl.create_default_context(cafile=secure.ca_pem),
    )
