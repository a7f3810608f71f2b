"""The embedded coordinator against a real one: the same requests, the same answers."""

from __future__ import annotations

import pytest

from tests.support.group_scripts import SCRIPTS, PureCoordinator, RealCoordinator, Script


@pytest.fixture
def topic(kafka_cluster, unique_name):
    name = unique_name("conformance")
    kafka_cluster.create_topic(name, partitions=1)
    return name


@pytest.mark.parametrize("scripted", SCRIPTS, ids=lambda each: each.__name__)
def test_both_give_the_same_answers(kafka_cluster, topic, unique_name, scripted):
    host, port = kafka_cluster.bootstrap_servers.split(",")[0].split(":")
    group = unique_name("scripted")
    real, pure = RealCoordinator((host, int(port))), PureCoordinator()
    try:
        real.wait_until_it_serves(group)
        told = Script(real, group, topic)
        scripted(told)
    finally:
        real.close()
    ours = Script(pure, group, topic)
    scripted(ours)
    assert ours.transcript == told.transcript
