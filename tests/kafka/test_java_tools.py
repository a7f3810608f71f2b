"""Kafka's console tools print and answer the same of the embedded broker and of Kafka: golden_tools.json."""

from __future__ import annotations

import re
import time

from aiogroup.embedded.messages.ranges import RANGES
from tests.support.brokers import EmbeddedCluster
from tests.support.brokers_differ import HIGHER_VERSIONS
from tests.support.java_tools import golden, run_all

APIS = "api versions"
API = re.compile(r"(\w+)\(\d+\):")


def as_the_embedded_broker_offers(lines):
    """What the tool tells of Kafka, without the APIs and versions that are not offered."""
    offered = {request.api_name(): highest for request, (_, highest) in RANGES.items()}
    for line in lines:
        api = API.match(line)
        if api is None or (api[1] in offered and api[1] not in HIGHER_VERSIONS):
            yield line
        elif api[1] in offered:
            real, ours = HIGHER_VERSIONS[api[1]], offered[api[1]]
            yield line.replace(f"to {real} [usable: {real}]", f"to {ours} [usable: {ours}]")
        else:
            yield f"{api[0]} UNSUPPORTED{',' if line.endswith(',') else ''}"


def test_the_tools_print_the_same(java_tools, breakable_cluster, tmp_path):
    """On a node of its own, as they change its settings."""
    expected = golden()
    if isinstance(breakable_cluster, EmbeddedCluster):
        code, *lines = expected[APIS]
        expected[APIS] = [code, *sorted(as_the_embedded_broker_offers(lines))]
    found = run_all(java_tools, breakable_cluster, f"{time.time_ns():x}", tmp_path)
    assert {name: told for name, told in found.items() if told != expected[name]} == {}
    assert found.keys() == expected.keys()
