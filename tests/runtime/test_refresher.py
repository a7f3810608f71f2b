"""Metadata that a whole cluster is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aiogroup.cluster import Cluster, TopicInfo
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConnectionLostError
from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.metadata.refresher import Refresher


class ReadsNothing:
    def wanted(self):
        return frozenset()

    def on_refreshed(self, cluster):
        pass


class BreaksAtFirst:
    """A link whose connections break twice, as at the end of their SASL sessions (KIP-368)."""

    cluster = Cluster(topics={"orders": TopicInfo("orders", ZERO_UUID, {})})

    def __init__(self, breaks_count):
        self.breaks_count = breaks_count

    async def fetch_metadata(self, topics, _limit_ms):
        assert topics is None
        self.breaks_count -= 1
        if self.breaks_count >= 0:
            raise ConnectionLostError("the session ended")
        return self.cluster


@pytest.mark.parametrize("breaks_count", [0, 1, 2])
async def test_all_topics_are_asked_for_again_when_a_connection_breaks(breaks_count):
    config = ConsumerConfig(retry_backoff_ms=1, retry_backoff_max_ms=1)
    refresher = Refresher(SimpleNamespace(config=config, link=BreaksAtFirst(breaks_count)), ReadsNothing())
    assert (await refresher.all_topics()).topics.keys() == {"orders"}


async def test_all_topics_are_asked_for_until_the_time_is_over():
    config = ConsumerConfig(request_timeout_ms=600, fetch_max_wait_ms=100, retry_backoff_ms=20, retry_backoff_max_ms=20)
    refresher = Refresher(SimpleNamespace(config=config, link=BreaksAtFirst(10**6)), ReadsNothing())
    began_at_ms = now_ms()
    with pytest.raises(ConnectionLostError, match="the session ended"):
        await refresher.all_topics()
    assert now_ms() - began_at_ms >= 600
