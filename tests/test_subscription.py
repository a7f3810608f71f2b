"""What the application wants to read, and whom it wants to be told."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.cluster import Cluster, TopicInfo
from aiogroup._core.subscription import Subscription
from aiogroup.errors import ConfigError, IllegalStateError, InvalidTopicError
from aiogroup.listener import ConsumerRebalanceListener, call_listener, check_listener

TP = TopicPartition("orders", 0)


def cluster(*names, internal=()):
    topics = {name: TopicInfo(name, uuid.UUID(int=0), {}, name in internal) for name in (*names, *internal)}
    return Cluster(topics=topics)


def by_topics(*topics):
    subscription = Subscription()
    subscription.subscribe(topics, None, None)
    return subscription


def test_nothing_is_wanted_at_first():
    subscription = Subscription()
    assert not subscription.is_by_topic
    assert not subscription.is_manual
    assert subscription.names() == subscription.wanted() == frozenset()


def test_topics_are_wanted_by_name():
    subscription = by_topics("orders", "payments", "orders")
    assert subscription.names() == subscription.wanted() == {"orders", "payments"}
    assert subscription.is_by_topic


def test_later_subscription_replaces_the_earlier():
    subscription = by_topics("orders")
    subscription.subscribe(["payments"], None, None)
    assert subscription.names() == {"payments"}
    subscription.subscribe((), "pay", None)
    assert subscription.names() == frozenset()
    assert subscription.wanted() == re.compile("pay")


def test_pattern_matches_from_the_beginning_and_leaves_internal_topics_out():
    subscription = Subscription()
    subscription.subscribe((), "a|__", None)
    subscription.match(cluster("apples", "bananas", internal=("__offsets",)), exclude_internal=True)
    assert subscription.names() == {"apples"}
    subscription.match(cluster("apples", internal=("__offsets",)), exclude_internal=False)
    assert subscription.names() == {"apples", "__offsets"}


def test_matching_changes_nothing_without_a_pattern():
    subscription = by_topics("orders")
    subscription.match(cluster("apples"), exclude_internal=True)
    assert subscription.names() == {"orders"}


@pytest.mark.parametrize(
    ("topics", "pattern", "kind"),
    [
        ("orders", None, TypeError),
        ((), None, TypeError),
        (["orders"], "o", TypeError),
        (["a b"], None, InvalidTopicError),
        ([5], None, InvalidTopicError),
        ((), "(", ConfigError),
    ],
)
def test_refused_subscription_leaves_the_earlier_one(topics, pattern, kind):
    subscription = by_topics("orders")
    with pytest.raises(kind):
        subscription.subscribe(topics, pattern, None)
    assert subscription.names() == {"orders"}
    assert subscription.pattern is None


def test_one_way_of_reading_at_a_time():
    subscription = by_topics("orders")
    with pytest.raises(IllegalStateError, match=r"unsubscribe\(\) before assign"):
        subscription.assign([TP])
    subscription.clear()
    subscription.assign([TP])
    assert subscription.is_manual
    assert subscription.wanted() == {"orders"}
    with pytest.raises(IllegalStateError, match=r"unsubscribe\(\) before subscribe"):
        subscription.subscribe(["orders"], None, None)


@pytest.mark.parametrize(
    ("partitions", "kind"),
    [
        ([("orders", 0)], TypeError),
        (["orders"], TypeError),
        ([TopicPartition("a b", 0)], InvalidTopicError),
        ([TopicPartition("orders", -1)], ValueError),
        ([TopicPartition("orders", "0")], ValueError),
    ],
)
def test_what_is_no_partition_is_not_assigned(partitions, kind):
    subscription = Subscription()
    with pytest.raises(kind):
        subscription.assign(partitions)
    assert not subscription.is_manual


# Listeners.


class OnlyRevoked:
    def __init__(self):
        self.told = []

    def on_partitions_revoked(self, revoked):
        self.told.append(("revoked", revoked))


class Everything(OnlyRevoked):
    async def on_partitions_assigned(self, assigned):
        self.told.append(("assigned", assigned))

    async def on_partitions_lost(self, lost):
        self.told.append(("lost", lost))


class Theirs(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        pass


@pytest.mark.parametrize("listener", [None, OnlyRevoked(), Everything(), Theirs()])
def test_listener_with_any_callback_is_taken(listener):
    check_listener(listener)


@pytest.mark.parametrize("listener", [object(), "listener", print])
def test_listener_without_a_callback_is_refused(listener):
    with pytest.raises(TypeError, match="on_partitions_revoked"):
        by_topics("orders").subscribe(["orders"], None, listener)


class Misspelt(Everything):
    def on_partition_revoked(self, revoked):
        pass


class Renamed(Theirs):
    async def on_partitions_assign(self, assigned):
        pass


class Own(Theirs):
    on_partitions_count = 3

    def when_partitions_go(self):
        pass


@pytest.mark.parametrize(
    ("listener", "name", "meant"),
    [
        (Misspelt(), "on_partition_revoked", "on_partitions_revoked"),
        (Renamed(), "on_partitions_assign", "on_partitions_assigned"),
    ],
)
def test_a_misspelt_callback_is_refused_with_the_name_that_was_meant(listener, name, meant):
    with pytest.raises(TypeError, match=f"has {name}, which is never called: did you mean {meant}?"):
        check_listener(listener)


def test_what_else_a_listener_has_is_its_own():
    check_listener(Own())


async def test_callbacks_are_called_sync_or_async():
    listener = Everything()
    for callback in ("revoked", "assigned", "lost"):
        await call_listener(listener, f"on_partitions_{callback}", frozenset({TP}))
    assert listener.told == [("revoked", {TP}), ("assigned", {TP}), ("lost", {TP})]


async def test_lost_partitions_are_reported_as_revoked_where_nothing_else_listens():
    listener = OnlyRevoked()
    await call_listener(listener, "on_partitions_lost", frozenset({TP}))
    await call_listener(listener, "on_partitions_assigned", frozenset({TP}))
    await call_listener(None, "on_partitions_lost", frozenset({TP}))
    assert listener.told == [("revoked", {TP})]


# What a pattern matches after a refresh.


def by_pattern(pattern="or"):
    subscription = Subscription()
    subscription.subscribe((), pattern, None)
    return subscription


def of_all(*names):
    return replace(cluster(*names), is_of_all=True)


def match(subscription, cluster, gone=()):
    return subscription.match_again(cluster, exclude_internal=True, gone=frozenset(gone))


def test_what_matches_at_first_did_not_appear():
    subscription = by_pattern()
    assert match(subscription, of_all("orders", "others")) == frozenset()
    assert subscription.names() == {"orders"}


def test_what_matches_since_all_topics_were_looked_through_appeared():
    subscription = by_pattern()
    match(subscription, of_all("orders"))
    assert match(subscription, of_all("orders", "organs")) == {"organs"}
    assert match(subscription, of_all("orders", "organs")) == frozenset()


def test_an_answer_about_some_topics_looks_nothing_through():
    subscription = by_pattern()
    match(subscription, cluster("orders"))
    assert match(subscription, of_all("orders", "organs")) == frozenset()


def test_another_pattern_is_looked_through_from_the_beginning():
    subscription = by_pattern("or")
    match(subscription, of_all("orders"))
    assert subscription.subscribe((), "o", None)
    assert match(subscription, of_all("orders", "organs")) == frozenset()


@pytest.mark.parametrize("pattern", ["or", re.compile("or")])
def test_what_matches_the_same_pattern_since_then_appeared(pattern):
    subscription = by_pattern("or")
    match(subscription, of_all("orders"))
    assert not subscription.subscribe((), pattern, None)
    assert subscription.names() == {"orders"}
    assert match(subscription, of_all("orders", "organs")) == {"organs"}


def test_the_same_subscription_is_another_one_with_another_listener_or_after_it_was_given_up():
    subscription, listener = by_topics("orders"), Everything()
    assert not subscription.subscribe(["orders", "orders"], None, None)
    assert subscription.subscribe(["orders"], None, listener)
    assert not subscription.subscribe(["orders"], None, listener)
    assert subscription.subscribe(["orders", "payments"], None, listener)
    subscription.clear()
    assert subscription.subscribe(["orders", "payments"], None, listener)


def test_what_is_not_described_matches_on_until_it_is_gone():
    subscription = by_pattern()
    match(subscription, of_all("orders", "organs"))
    assert match(subscription, of_all("organs")) == frozenset()
    assert subscription.names() == {"orders", "organs"}
    match(subscription, of_all("organs"), gone={"orders"})
    assert subscription.names() == {"organs"}


def test_topics_by_name_never_appear():
    subscription = by_topics("orders")
    match(subscription, of_all())
    assert match(subscription, of_all("orders")) == frozenset()
