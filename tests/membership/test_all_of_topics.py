"""What a consumer without a group reads: which partitions, and which of them are new."""

from __future__ import annotations

from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.membership.assignments import AllOfTopics
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.structs import TopicPartition

ORDERS = frozenset({"orders"})
NONE = frozenset()
BROKEN = Cluster(errors={"orders": ErrorCode.LEADER_NOT_AVAILABLE})
WITHOUT = Cluster(errors={"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def cluster(**counts):
    return Cluster(
        topics={
            name: TopicInfo(name, ZERO_UUID, {number: PartitionInfo(1, 0, (1,), (1,)) for number in range(count)})
            for name, count in counts.items()
        }
    )


def orders(count):
    return frozenset(TopicPartition("orders", number) for number in range(count))


def chosen(choice):
    return choice.wanted, choice.new


def test_at_first_all_of_a_topic_is_wanted_and_nothing_of_it_new():
    assert chosen(AllOfTopics().choose(ORDERS, NONE, cluster(orders=2, others=1))) == (orders(2), NONE)


def test_what_a_topic_grew_by_is_new():
    assert chosen(AllOfTopics().choose(ORDERS, orders(1), cluster(orders=3))) == (orders(3), orders(3) - orders(1))


def test_a_topic_that_did_not_exist_is_new_when_it_comes():
    all_of_topics = AllOfTopics()
    assert chosen(all_of_topics.choose(ORDERS, NONE, WITHOUT)) == (NONE, NONE)
    assert chosen(all_of_topics.choose(ORDERS, NONE, cluster(orders=2))) == (orders(2), orders(2))


def test_one_that_a_pattern_matches_since_is_new():
    choice = AllOfTopics().choose(ORDERS, NONE, cluster(orders=2), appeared=ORDERS)
    assert chosen(choice) == (orders(2), orders(2))


def test_what_no_broker_describes_now_is_kept():
    assert chosen(AllOfTopics().choose(ORDERS, orders(2), BROKEN)) == (orders(2), NONE)
    assert chosen(AllOfTopics().choose(ORDERS, orders(2), WITHOUT)) == (orders(2), NONE)  # one broker may be behind


def test_what_is_gone_is_given_up():
    assert chosen(AllOfTopics().choose(ORDERS, orders(2), WITHOUT, gone=ORDERS)) == (NONE, NONE)


def test_what_is_not_subscribed_to_any_more_is_given_up():
    assert chosen(AllOfTopics().choose(NONE, orders(2), cluster(orders=2))) == (NONE, NONE)
