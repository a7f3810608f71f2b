"""What `partition_assignment_strategy` takes."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import TopicPartition

from aiogroup.assignors import BY_NAME, Assignor, Held, MemberSubscription
from aiogroup.assignors.foreign import resolve
from aiogroup.errors import ConfigError


class FirstTakesAll(AbstractPartitionAssignor):
    name = "first-takes-all"
    seen = None

    @classmethod
    def assign(cls, cluster, members):
        cls.seen = {who: metadata.user_data for who, metadata in members.items()}
        first = min(members)
        topics = [(t, sorted(cluster.partitions_for_topic(t))) for t in sorted(cluster.topics())]
        assert cluster.partitions_for_topic("no such topic") is None
        return {first: ConsumerProtocolMemberAssignment(0, topics, b"")}

    @classmethod
    def metadata(cls, topics):
        return ConsumerProtocolMemberMetadata(0, list(topics), b"mine")

    @classmethod
    def on_assignment(cls, assignment):
        pass


class Ours(Assignor):
    name = "ours"

    def assign(self, members, partitions, racks):
        return {who: [] for who in members}


def test_names_and_classes_become_assignors_in_order():
    ours = Ours()
    strategy = ["roundrobin", RangePartitionAssignor, FirstTakesAll, ours, StickyPartitionAssignor]
    assignors = resolve(strategy)
    assert [a.name for a in assignors] == ["roundrobin", "range", "first-takes-all", "ours", "sticky"]
    assert assignors[:2] == (BY_NAME["roundrobin"], BY_NAME["range"])
    assert assignors[3] is ours
    assert resolve((RoundRobinPartitionAssignor,)) == resolve("roundrobin") == (BY_NAME["roundrobin"],)
    assert [a.name for a in resolve([FirstTakesAll()])] == ["first-takes-all"]


def test_an_aiokafka_class_assigns_through_ours():
    (foreign,) = resolve([FirstTakesAll])
    assert foreign.subscription_user_data(["t"], Held()) == b"mine"
    members = {"b": MemberSubscription(("t",), b"data"), "a": MemberSubscription(("t",))}
    assert foreign.assign(members, {"t": 2}, {}) == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "b": [],
    }
    assert FirstTakesAll.seen == {"a": b"", "b": b"data"}


def test_aiokafkas_sticky_assignor_works_behind_the_view():
    (sticky,) = resolve([StickyPartitionAssignor])
    data = sticky.subscription_user_data(("t",), Held())
    answer = sticky.assign({who: MemberSubscription(("t",), data) for who in "ab"}, {"t": 4}, {})
    assert sorted(len(tps) for tps in answer.values()) == [2, 2]


class Nameless(FirstTakesAll):
    @property
    def name(self):
        return "late"


@pytest.mark.parametrize(
    "strategy",
    [["rnage"], "rnage", [], [Ours], [int], [None], [3], ["range", RangePartitionAssignor], [Nameless]],
    ids=repr,
)
def test_anything_else_is_refused_with_what_is_known(strategy):
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        resolve(strategy)


def test_the_refusal_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'rnage'.*'range', 'roundrobin'"):
        resolve(["rnage"])
