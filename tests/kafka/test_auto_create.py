"""Topics that Kafka makes when a consumer asks for them (`allow_auto_create_topics=True`)."""

from __future__ import annotations

import pytest

from aiogroup import Consumer
from aiogroup._core.telemetry import events
from tests.support.kafka import QUICK, Ears, Listener, eventually

CREATES = {**QUICK, "allow_auto_create_topics": True}
PROPERTIES = {"auto.create.topics.enable": "true", "num.partitions": "2"}


@pytest.fixture(scope="module")
def creating(make_cluster):
    with make_cluster(properties=PROPERTIES) as cluster:
        yield cluster


@pytest.mark.parametrize("number", range(3))
async def test_a_topic_that_start_creates_is_assigned_once_start_returns(creating, unique_name, number):
    topic, heard, ears = unique_name("made"), Listener(), Ears()
    settings = {"bootstrap_servers": creating.bootstrap_servers, "group_id": unique_name("group"), **CREATES}
    async with Consumer(topic, **settings, listener=heard, observers=[ears]) as consumer:
        assert {tp.partition for tp in consumer.assignment()} == {0, 1}
    assert [(what, len(tps)) for what, tps in heard.calls] == [("assigned", 2), ("revoked", 2)]
    assert len(ears.heard(events.RebalanceCompleted)) == 1


async def test_without_a_group_it_is_assigned_too(creating, unique_name):
    settings = {"bootstrap_servers": creating.bootstrap_servers, "group_id": None, **CREATES}
    async with Consumer(unique_name("made"), **settings) as consumer:
        assert {tp.partition for tp in consumer.assignment()} == {0, 1}


async def test_a_topic_that_kafka_does_not_create_is_waited_for_a_moment_only(kafka_cluster, unique_name):
    settings = {"bootstrap_servers": kafka_cluster.bootstrap_servers, "group_id": None, **CREATES}
    ears = Ears()
    async with Consumer(unique_name("never"), **settings, observers=[ears]) as consumer:
        assert consumer.assignment() == frozenset()
        await eventually(lambda: ears.heard(events.TopicMissing))
