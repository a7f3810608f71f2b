"""What administrators ask of a node of Kafka: the answers that the embedded broker is held against."""

from __future__ import annotations

import time

import pytest

from tests.support.admin_scripts import SCRIPTS, AdminTalk, RealAdmin, changed_nodes, golden


def kept_answers_are_those_of(cluster, script):
    """The fast tests hold the embedded broker against the same transcripts."""
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")
    broker = RealAdmin((host, int(port)))
    talk = AdminTalk(broker, f"{time.time_ns():x}")
    try:
        script(talk)
    finally:
        broker.close()
    assert talk.transcript == golden()[script.__name__]


@pytest.mark.parametrize(
    "script", [each for each in SCRIPTS if each is not changed_nodes], ids=lambda each: each.__name__
)
def test_kafka_gives_the_answers_that_are_kept(kafka_cluster, script):
    kept_answers_are_those_of(kafka_cluster, script)


def test_kafka_gives_the_answers_about_changed_nodes(breakable_cluster):
    """Other tests may run on the shared node meanwhile, and count on its settings."""
    kept_answers_are_those_of(breakable_cluster, changed_nodes)
