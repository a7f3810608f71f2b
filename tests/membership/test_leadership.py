"""When a leader's assignment no longer fits the metadata, or leaves a partition out."""

from __future__ import annotations

import pytest

from aiogroup._core.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from aiogroup._core.membership.classic.leadership import Leadership
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup.structs import TopicPartition


def cluster(count, *, rack="a", errors=()):
    partitions = {number: PartitionInfo(1, 0, (1,), (1,)) for number in range(count)}
    topics = {"orders": TopicInfo("orders", ZERO_UUID, partitions)} if count else {}
    return Cluster(brokers={1: Broker(1, "here", 9092, rack)}, topics=topics, errors=dict(errors))


def leading(*, racks=True):
    leadership = Leadership()
    leadership.is_leader = True
    known = cluster(2)
    leadership.on_assigned(known.partition_counts(["orders"]), known.partition_racks(["orders"]) if racks else {})
    return leadership


def shares(*numbers):
    return {TopicPartition("orders", number) for number in numbers}


def test_an_assignment_fits_the_metadata_from_which_it_was_made():
    assert leading().why_stale(cluster(2)) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (cluster(3), "partitions of orders changed"),
        (cluster(0, errors={"orders": 3}), "partitions of orders changed"),
        (cluster(2, rack="b"), "replicas of orders moved to other racks, or brokers that hold them came or went"),
    ],
    ids=["grown", "deleted", "moved"],
)
def test_a_leader_asks_for_another_round_when_what_it_assigned_changed(now, why):
    leadership = leading()
    assert leadership.why_stale(now) == why
    leadership.is_leader = False
    assert leadership.why_stale(now) is None


@pytest.mark.parametrize("now", [cluster(0), cluster(0, errors={"orders": 29})], ids=["not known", "not authorized"])
def test_metadata_that_says_nothing_of_a_topic_is_no_reason(now):
    assert leading().why_stale(now) is None


def test_racks_count_only_where_a_member_names_its_own():
    assert leading(racks=False).why_stale(cluster(2, rack="b")) is None


def test_a_leader_watches_its_topics_until_another_member_leads():
    leadership = leading()
    leadership.on_adopted(leads=True)
    assert leadership.topics == {"orders"}
    leadership.is_leader = False
    assert leadership.topics == frozenset()
    leadership.on_adopted(leads=False)
    leadership.is_leader = True
    assert leadership.topics == frozenset()


def test_a_partition_that_no_member_has_is_a_reason_for_another_round():
    assert leading().why_unfit(shares(0)) == "partitions of orders are assigned to no member"
    assert leading().why_unfit(shares(0, 1)) is None


def test_a_topic_that_was_missing_when_it_was_assigned_is_a_reason_for_another_round():
    assert leading().why_unfit(shares()) == "partitions of orders are assigned to no member"


def test_a_partition_that_no_longer_exists_is_a_reason_for_another_round():
    assert leading().why_unfit(shares(0, 1, 2)) == "partitions of orders are assigned, and do not exist"


def test_a_topic_of_which_nothing_is_known_is_no_reason_for_another_round():
    leadership = leading()
    leadership.on_assigned({"orders": 0}, {})
    assert leadership.why_unfit(shares(0, 1)) is None
