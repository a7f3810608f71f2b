"""Clients that do not know the draft, in a cluster that has it, in real time. Consumers of confluent-kafka and Java are
dynamic members, or static members whose session time-out counts as their registration time-out. Java's console consumer
reads the map. (aiokafka's consumers are in test_consumers.py.)
"""

from __future__ import annotations

import json
import subprocess
import threading

import confluent_kafka
import pytest

from aiogroup.embedded import caught_up, stable
from tests.support.brokers import EmbeddedCluster
from tests.support.java_member import java_member

LIMIT_S = 120
"""The time limit for a JVM on a busy machine."""
SESSION_MS = 6_000


@pytest.fixture
def broker():
    with EmbeddedCluster(seed=1, static_membership="draft") as broker:
        broker.create_topic("orders", 4)
        yield broker


class Confluent:
    """A consumer in a thread of its own, which commits what it has read. With a name it closes without leaving."""

    def __init__(self, broker, name=None):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "client.id": name or "nameless",
        }
        self._consumer = confluent_kafka.Consumer({**settings, **({"group.instance.id": name} if name else {})})
        self._consumer.subscribe(["orders"])
        self.commit_errors = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._is_over.is_set():
            record = self._consumer.poll(0.1)
            if record is not None and record.error() is None:
                try:
                    self._consumer.commit(record, asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    self.commit_errors.append(error.args[0].code())
        self._consumer.close()

    def end(self):
        self._is_over.set()
        self._thread.join(LIMIT_S)


@pytest.fixture
def confluent(broker):
    """Starts consumers by `confluent(name)`; all are ended after the test."""
    made = []

    def make(name=None):
        made.append(Confluent(broker, name))
        return made[-1]

    yield make
    for each in made:
        each.end()


def shares(broker):
    """The partitions by name, and the generation."""
    group = broker.group("billing")
    return {each.name: each.partitions for each in group.members}, group.generation


def produce_all(broker, count=20):
    for number in range(count):
        broker.produce("orders", b"%d" % number, partition=number % 4)


def test_confluents_consumers_are_static_by_their_session(broker, confluent):
    first = confluent("A")
    broker.wait(stable("billing", members=1), LIMIT_S)
    second = confluent("B")
    broker.wait(stable("billing", members=2), LIMIT_S)
    produce_all(broker)
    broker.wait(caught_up("billing"), LIMIT_S)
    assert first.commit_errors == second.commit_errors == [], "they have their names with them"
    before = shares(broker)
    second.end()
    joins_count = broker.count("JoinGroup")
    second = confluent("B")
    broker.wait(lambda: broker.count("JoinGroup") > joins_count, LIMIT_S)
    broker.wait(stable("billing", members=2), LIMIT_S)
    assert shares(broker) == before, "it was away for less than its session: its share by SyncGroup, and no rebalance"
    second.end()
    broker.wait(stable("billing", members=1), LIMIT_S)
    ((alone,), generation), everything = shares(broker), [tp for share in before[0].values() for tp in share]
    assert (alone, generation) == ("A", before[1] + 1)
    assert sorted(shares(broker)[0]["A"]) == sorted(everything)
    assert broker.troubles == []


def test_confluents_consumers_without_names_are_dynamic(broker, confluent):
    first, second = confluent(), confluent()
    broker.wait(stable("billing", members=2), LIMIT_S)
    produce_all(broker)
    broker.wait(caught_up("billing"), LIMIT_S)
    assert first.commit_errors == second.commit_errors == []
    second.end()
    broker.wait(stable("billing", members=1), LIMIT_S)
    assert broker.count("LeaveGroup") == 1
    assert broker.records("static_member_map") == [] or broker.records("static_member_map")[-1].value is None


def test_a_nameless_member_of_a_static_group_cannot_commit(broker, confluent):
    nameless = confluent()
    broker.wait(stable("billing", members=1), LIMIT_S)
    confluent("A")  # the first join after a stable state decides
    broker.wait(stable("billing", members=2), LIMIT_S)
    produce_all(broker)
    broker.wait(lambda: nameless.commit_errors, LIMIT_S)
    assert set(nameless.commit_errors) == {10345}
    mine = {tp for each in broker.group("billing").members if each.name is None for tp in each.partitions}
    assert mine
    assert not mine & set(broker.committed("billing"))


def test_a_nameless_member_makes_a_group_dynamic(broker, confluent):
    confluent("A")
    broker.wait(stable("billing", members=1), LIMIT_S)
    nameless = confluent()
    broker.wait(stable("billing", members=2), LIMIT_S)
    produce_all(broker)
    broker.wait(caught_up("billing"), LIMIT_S)
    assert nameless.commit_errors == []
    assert broker.records("static_member_map")[-1].value is None


def java(broker, directory, name=None):
    place = directory / (name or "nameless")
    place.mkdir(exist_ok=True)
    return java_member(
        broker, place, "billing", "orders", assignor="range", instance_id=name, session_timeout_ms=SESSION_MS
    )


def test_javas_consumers_are_static_by_their_session(broker, tmp_path):
    with java(broker, tmp_path, "A"):
        broker.wait(stable("billing", members=1), LIMIT_S)
        with java(broker, tmp_path, "B") as second:
            broker.wait(stable("billing", members=2), LIMIT_S)
            produce_all(broker)
            broker.wait(caught_up("billing"), LIMIT_S)
            before = shares(broker)
            second.stop(LIMIT_S)
        (map_of_it,) = [json.loads(each.value) for each in broker.records("static_member_map")[-1:]]
        assert sorted(map_of_it["members"]) == ["A", "B"]
        broker.wait(stable("billing", members=1), LIMIT_S)
        after = shares(broker)
        assert (list(after[0]), after[1]) == (["A"], before[1] + 1), "one rebalance, when its session is over"
    assert broker.count("LeaveGroup") == 0
    assert broker.troubles == []


def test_javas_consumer_without_a_name_is_dynamic(broker, tmp_path):
    with java(broker, tmp_path) as member:
        broker.wait(stable("billing", members=1), LIMIT_S)
        produce_all(broker)
        broker.wait(caught_up("billing"), LIMIT_S)
        member.stop(LIMIT_S)
    broker.wait(lambda: broker.group("billing").members == (), LIMIT_S)
    assert broker.count("LeaveGroup") == 1


def test_javas_console_consumer_reads_the_map(broker, confluent):
    confluent("A")
    broker.wait(stable("billing", members=1), LIMIT_S)
    process = broker.java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", "static_member_map", "--from-beginning"),
        *("--max-messages", "1", "--timeout-ms", str(1_000 * LIMIT_S), "--formatter-property", "print.key=true"),
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=2 * LIMIT_S)
    key, value = output.split("\t")
    (member,) = broker.group("billing").members
    assert key == "billing"
    assert json.loads(value)["members"]["A"]["id"] == member.member_id
