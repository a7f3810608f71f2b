"""What is known of the cluster: newer answers over older ones, but never an older leader over a newer (KIP-320)."""

from __future__ import annotations

from uuid import UUID

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.protocol.codec import ZERO_UUID

TP = TopicPartition("orders", 0)


def cluster(*leaders, topic_id=1, errors=None):
    """Partitions 0, 1, ... led as (leader, epoch) says."""
    partitions = {number: PartitionInfo(*each, (), ()) for number, each in enumerate(leaders)}
    topics = {} if errors else {"orders": TopicInfo("orders", UUID(int=topic_id), partitions)}
    return Cluster({}, topics, errors or {})


@pytest.mark.parametrize(
    ("known", "seen", "kept"),
    [
        ((1, 5), (2, 6), (2, 6)),
        ((1, 5), (2, 4), (1, 5)),  # of a broker that has not heard yet
        ((1, 5), (-1, 4), (1, 5)),
        ((1, 5), (-1, 5), (-1, 5)),  # the leader is gone
        ((1, 5), (1, 5), (1, 5)),
        ((1, 5), (2, -1), (2, -1)),  # of a broker that tells no epochs
        ((1, -1), (2, -1), (2, -1)),
    ],
)
def test_an_older_leader_never_replaces_a_newer(known, seen, kept):
    info = cluster(known).updated(cluster(seen)).partition(TP)
    assert (info.leader, info.leader_epoch) == kept


def test_each_partition_is_compared_for_itself_and_new_ones_are_taken():
    merged = cluster((1, 5), (1, 5)).updated(cluster((2, 4), (2, 6), (3, 0)))
    assert [merged.leader(TopicPartition("orders", number)) for number in range(4)] == [1, 2, 3, -1]


def test_a_topic_recreated_has_epochs_of_its_own():
    assert cluster((1, 5)).updated(cluster((2, 0), topic_id=2)).leader(TP) == 2
    assert cluster((1, 5), topic_id=0).updated(cluster((2, 0), topic_id=0)).leader(TP) == 1
    assert UUID(int=0) == ZERO_UUID


def test_what_an_answer_about_all_topics_does_not_name_is_not_there():
    of_all = Cluster(is_of_all=True)
    assert of_all.lacks("orders")
    assert not cluster((1, 5)).updated(of_all).topics
    assert cluster((1, 5)).updated(of_all).lacks("orders")
    of_another = Cluster(topics={"payments": TopicInfo("payments", UUID(int=2), {})})
    assert cluster((1, 5)).updated(of_another).leader(TP) == 1
    assert not of_another.lacks("orders")
    assert Cluster(errors={"orders": 3}).lacks("orders")
    assert not Cluster(errors={"orders": 5}, is_of_all=True).lacks("orders")


def test_what_a_broker_would_not_describe_is_not_known_any_more():
    merged = cluster((1, 5)).updated(cluster(errors={"orders": 3}))
    assert (merged.topics, merged.errors) == ({}, {"orders": 3})
