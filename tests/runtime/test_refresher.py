"""Metadata that a whole cluster is asked for, and what a start waits for where topics are created."""

from __future__ import annotations

import pytest

from aiogroup._core.cluster import Cluster, TopicInfo
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Failures
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AuthenticationFailedError, ConnectionLostError, KafkaTimeoutError


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
    refresher = Refresher(config, BreaksAtFirst(breaks_count), None, None, None, ReadsNothing())
    assert (await refresher.all_topics()).topics.keys() == {"orders"}


async def test_all_topics_are_asked_for_until_the_time_is_over():
    config = ConsumerConfig(request_timeout_ms=600, fetch_max_wait_ms=100, retry_backoff_ms=20, retry_backoff_max_ms=20)
    refresher = Refresher(config, BreaksAtFirst(10**6), None, None, None, ReadsNothing())
    began_at_ms = now_ms()
    with pytest.raises(ConnectionLostError, match="the session ended"):
        await refresher.all_topics()
    assert now_ms() - began_at_ms >= 600


class ReadsOrders:
    def wanted(self):
        return frozenset({"orders"})

    def on_refreshed(self, cluster):
        pass


class Creates:
    """A link to a cluster that has the topic at the so-manieth question, or fails then."""

    def __init__(self, number, error=None):
        self.number, self.error = number, error
        self.cluster = Cluster()
        self.asked_count = 0

    async def fetch_metadata(self, topics, _limit_ms=None):
        assert topics == {"orders"}
        self.asked_count += 1
        if self.asked_count == self.number:
            if self.error is not None:
                raise self.error
            self.cluster = BreaksAtFirst.cluster
        return self.cluster


def starting(link, **settings):
    """The refresher of a consumer that starts, and the events that it emits."""
    heard = []
    config = ConsumerConfig(allow_auto_create_topics=True, **settings)
    failures = Failures(heard.append, now_ms)
    return Refresher(config, link, failures.emit, failures, None, ReadsOrders()), heard


@pytest.mark.parametrize(("number", "waited_ms"), [(1, 0), (2, 100), (4, 300), (10**6, 1_000)])
async def test_a_start_waits_for_a_topic_that_is_created_for_a_second_at_most(number, waited_ms):
    began_at_ms = now_ms()
    refresher, _ = starting(Creates(number), retry_backoff_ms=100)
    await refresher.refresh_first()
    assert now_ms() - began_at_ms == waited_ms


async def test_that_second_is_not_longer_with_a_long_back_off():
    began_at_ms = now_ms()
    refresher, _ = starting(link := Creates(2), retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    await refresher.refresh_first()
    assert now_ms() - began_at_ms == 1_000
    assert link.asked_count == 2


@pytest.mark.parametrize("error", [ConnectionLostError("cut"), KafkaTimeoutError("silent")])
async def test_a_start_goes_on_without_the_topic_if_no_broker_answers_again(error):
    refresher, heard = starting(Creates(2, error))
    await refresher.refresh_first()
    assert [type(each) for each in heard] == [events.MetadataFailed]


async def test_a_start_fails_if_the_credentials_are_refused_meanwhile():
    refresher, _ = starting(Creates(2, AuthenticationFailedError("no")))
    with pytest.raises(AuthenticationFailedError):
        await refresher.refresh_first()
