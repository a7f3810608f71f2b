"""Requests about transactions: answered as by Kafka 4.3.1 (golden.json)."""

from __future__ import annotations

import pytest

from tests.support.transaction_scripts import SCRIPTS, PureNode, golden, transcript_of


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_the_answers_are_those_of_kafka(script):
    assert transcript_of(script, PureNode(), "pure") == golden()[script.__name__]
