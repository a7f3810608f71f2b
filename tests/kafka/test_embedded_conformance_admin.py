"""What administrators ask of a node of Kafka: the answers that the embedded broker is held against."""

from __future__ import annotations

import time

import pytest

from tests.support.admin_scripts import SCRIPTS, AdminTalk, RealAdmin, golden


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_kafka_gives_the_answers_that_are_kept(kafka_cluster, script):
    """The fast tests hold the embedded broker against the same transcripts."""
    host, port = kafka_cluster.bootstrap_servers.split(",")[0].split(":")
    broker = RealAdmin((host, int(port)))
    talk = AdminTalk(broker, f"{time.time_ns():x}")
    try:
        script(talk)
    finally:
        broker.close()
    assert talk.transcript == golden()[script.__name__]
