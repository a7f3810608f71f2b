"""The embedded broker's rules are the proxy's: the same script of rules gives a consumer the same life, whether it runs
against a proxy in front of a cluster or against the embedded broker's own rules.
"""

from __future__ import annotations

import pytest

from aiogroup.embedded import Broker
from aiogroup.testing import Proxy
from tests.support.rule_scripts import SCRIPTS, played


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_same_rules_tell_the_same_events(kafka_cluster, unique_name, name):
    topic, group = unique_name("rules"), unique_name("group")
    kafka_cluster.create_topic(topic)
    servers = kafka_cluster.bootstrap_servers
    async with Proxy(servers) as proxy:
        behind_a_proxy = await played(proxy, proxy.bootstrap_servers, servers, topic, group, SCRIPTS[name])
    with Broker() as broker:
        broker.create_topic(topic)
        own = broker.bootstrap_servers
        by_itself = await played(broker, own, own, topic, group, SCRIPTS[name])
    assert by_itself == behind_a_proxy
    assert len(by_itself) >= 3
