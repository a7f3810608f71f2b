"""Kafka's console tools print and answer the same of the embedded broker and of Kafka: golden_tools.json."""

from __future__ import annotations

import time

from aiogroup.embedded.messages.ranges import RANGES
from tests.support.brokers import EmbeddedCluster
from tests.support.java_tools import golden, run_all

APIS = "api versions"
FIRST_TRANSACTIONS = {"AddPartitionsToTxn": 5, "EndTxn": 5, "TxnOffsetCommit": 5}
"""Kafka's highest versions of what the embedded broker offers for the first protocol of transactions alone."""


def as_the_embedded_broker_offers(lines):
    """What the tool tells of Kafka, without the APIs and versions that are not offered."""
    offered = {request.api_name(): highest for request, (_, highest) in RANGES.items()}
    for line in lines:
        name, bracket, rest = line.partition("(")
        number, colon, _ = rest.partition(":")
        if not colon or (name in offered and name not in FIRST_TRANSACTIONS):
            yield line
        elif name in offered:
            real, ours = FIRST_TRANSACTIONS[name], offered[name]
            yield line.replace(f"to {real} [usable: {real}]", f"to {ours} [usable: {ours}]")
        else:
            comma = "," if line.endswith(",") else ""
            yield f"{name}{bracket}{number}: UNSUPPORTED{comma}"


def test_the_tools_print_the_same(kafka_cluster, tmp_path):
    expected = golden()
    if isinstance(kafka_cluster, EmbeddedCluster):
        code, *lines = expected[APIS]
        expected[APIS] = [code, *sorted(as_the_embedded_broker_offers(lines))]
    found = run_all(kafka_cluster, f"{time.time_ns():x}", tmp_path)
    assert {name: told for name, told in found.items() if told != expected[name]} == {}
    assert found.keys() == expected.keys()
