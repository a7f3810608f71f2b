"""The embedded broker's transactions against a node of Kafka: the same requests, the same answers."""

from __future__ import annotations

import pytest

from tests.support.transaction_scripts import SCRIPTS, Cluster, golden, of_kafka
from tests.support.workers import by_one_worker


@pytest.fixture(scope="session", params=by_one_worker("first_transactions"))
def first_transactions():
    """A node whose transactions are those of the first protocol."""
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_kafka_gives_the_answers_that_are_kept(first_transactions, script):
    """The fast tests hold the embedded broker against the same transcripts."""
    assert of_kafka(script, first_transactions) == golden()[script.__name__]
