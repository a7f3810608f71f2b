"""What is told of topics that are not there, once, and of those that may not be read, every five seconds."""

from __future__ import annotations

import pytest

from aiogroup._core.cluster import Cluster, TopicInfo
from aiogroup._core.membership.topics import TopicNews, Topics
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.errors import InvalidTopicError, TopicAuthorizationError

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOTHING = TopicNews()


def cluster(*topics, is_of_all=False, **errors):
    described = {name: TopicInfo(name, ZERO_UUID, {}) for name in topics}
    return Cluster(topics=described, errors=errors, is_of_all=is_of_all)


def names(*given):
    return frozenset(given)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
    ],
)
def test_a_topic_that_may_not_be_read_is_reported_every_five_seconds(code, error):
    topics = Topics()
    refusing = cluster(orders=code)
    news = topics.news_in(names("orders"), refusing, 0)
    (told,) = news.refused
    assert isinstance(told, error)
    assert "orders" in str(told)
    assert news.missing == (("orders", code.name),)
    assert topics.news_in(names("orders"), refusing, 4_999) == NOTHING
    again = topics.news_in(names("orders"), refusing, 5_000)
    assert ([*map(type, again.refused)], again.missing) == ([error], ())
    assert topics.news_in(names("orders"), refusing, 9_999) == NOTHING
    assert topics.news_in(names("orders"), cluster("orders"), 20_000) == NOTHING
    assert len(topics.news_in(names("orders"), refusing, 20_001).refused) == 1


def test_a_missing_topic_is_reported_when_every_broker_had_time_to_hear_of_it():
    topics, without = Topics(), cluster(orders=UNKNOWN)
    assert topics.news_in(names("orders"), without, 0) == NOTHING
    assert topics.news_in(names("orders"), without, 1_999) == NOTHING
    assert topics.news_in(names("orders"), without, 2_000).missing == (("orders", "UNKNOWN_TOPIC_OR_PARTITION"),)
    assert topics.news_in(names("orders"), without, 60_000) == NOTHING


def test_one_that_comes_and_goes_is_reported_again():
    topics = Topics()
    for at_ms in (0, 2_000):
        topics.news_in(names("orders"), cluster(orders=UNKNOWN), at_ms)
    assert topics.news_in(names("orders"), cluster("orders"), 3_000) == NOTHING
    assert topics.news_in(names("orders"), cluster(orders=UNKNOWN), 4_000) == NOTHING
    assert [each for each, _ in topics.news_in(names("orders"), cluster(orders=UNKNOWN), 6_000).missing] == ["orders"]


def test_an_answer_about_all_topics_says_what_is_not_there_by_leaving_it_out():
    topics = Topics()
    for at_ms in (0, 2_000):
        news = topics.news_in(names("orders"), cluster("others", is_of_all=True), at_ms)
    assert [each for each, _ in news.missing] == ["orders"]


def test_missing_is_what_nobody_found_since_and_gone_what_was_reported():
    topics, without = Topics(), cluster(orders=UNKNOWN)
    topics.news_in(names("orders"), without, 0)
    assert (set(topics.missing(without)), set(topics.gone(without))) == ({"orders"}, set())
    topics.news_in(names("orders"), without, 2_000)
    assert (set(topics.missing(without)), set(topics.gone(without))) == ({"orders"}, {"orders"})
    assert (set(topics.missing(cluster("orders"))), set(topics.gone(cluster("orders")))) == (set(), set())


def test_a_topic_that_is_read_no_more_is_not_reported():
    topics = Topics()
    topics.news_in(names("orders"), cluster(orders=UNKNOWN), 0)
    assert topics.news_in(names(), cluster(orders=UNKNOWN), 2_000) == NOTHING
