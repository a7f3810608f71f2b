"""Which reset policy a partition gets: one that is younger than the member is read from its own policy."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.membership.first_sight import FirstSight
from aiogroup.config import ResetPolicy
from aiogroup.structs import TopicPartition

LATEST, EARLIEST = ResetPolicy("latest"), ResetPolicy("earliest")
FIRST, SECOND = UUID(int=1), UUID(int=2)


def cluster(count, topic_id=FIRST):
    partitions = {number: PartitionInfo(1, 0, (1,), (1,)) for number in range(count)}
    return Cluster(topics={"orders": TopicInfo("orders", topic_id, partitions)})


def seen(*clusters):
    first_sight = FirstSight(LATEST, of_new=EARLIEST)
    for each in clusters:
        first_sight.note(["orders"], each)
    return first_sight


def policies(first_sight, count=3):
    return [first_sight.policy_of(TopicPartition("orders", number)).kind for number in range(count)]


def test_partitions_of_the_first_look_are_old_and_later_ones_new():
    assert policies(seen(cluster(2), cluster(3))) == ["latest", "latest", "earliest"]


def test_a_topic_that_was_never_seen_counts_as_old():
    assert policies(seen(Cluster())) == ["latest"] * 3


@pytest.mark.parametrize(
    "first_sight",
    [
        pytest.param(seen(cluster(2), cluster(2, SECOND)), id="recreated"),
        pytest.param(seen(Cluster(errors={"orders": 3}), cluster(2)), id="made after the first look"),
    ],
)
def test_a_topic_that_is_younger_than_the_member_is_new_as_a_whole(first_sight):
    assert policies(first_sight) == ["earliest"] * 3


def test_an_error_that_does_not_say_that_there_is_no_topic_says_nothing():
    assert policies(seen(Cluster(errors={"orders": 29}), cluster(2))) == ["latest", "latest", "earliest"]


def test_in_a_topic_of_which_the_group_had_commits_a_partition_without_one_is_new():
    first_sight = seen(cluster(2))
    assert first_sight.unknown(["orders", "returns"]) == {"orders", "returns"}
    first_sight.note_commits(["orders", "returns"], {"orders", "payments"})
    assert policies(first_sight) == ["earliest"] * 3
    assert first_sight.policy_of(TopicPartition("returns", 0)).kind == "latest"
    assert first_sight.unknown(["orders", "payments"]) == {"payments"}


@pytest.mark.parametrize("default", ["earliest", "none"])
def test_what_the_group_has_committed_is_not_asked_for_where_it_changes_nothing(default):
    assert FirstSight(ResetPolicy(default), of_new=EARLIEST).unknown(["orders"]) == frozenset()


def test_a_topic_that_began_to_match_is_new():
    first_sight = seen()
    first_sight.note_appeared(["orders"])
    first_sight.note(["orders"], cluster(2))
    assert policies(first_sight) == ["earliest"] * 3


def test_only_the_policy_that_differs_tells_of_a_new_partition():
    new, old = TopicPartition("orders", 2), TopicPartition("orders", 0)
    first_sight = seen(cluster(2))
    assert first_sight.was_new(first_sight.policy_of(new))
    assert not first_sight.was_new(first_sight.policy_of(old))
    same = FirstSight(LATEST, of_new=LATEST)
    same.note(["orders"], cluster(2))
    assert not same.was_new(same.policy_of(new))
