"""What `partition_assignment_strategy` takes."""

from __future__ import annotations

import re
from pathlib import Path

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
from aiogroup.assignors.checks import run
from aiogroup.assignors.foreign import resolve
from aiogroup.assignors.previous import read_held
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
    assert (assignors[0], assignors[1], assignors[4]) == tuple(BY_NAME[n] for n in ("roundrobin", "range", "sticky"))
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


def test_aiokafkas_sticky_members_and_ours_understand_each_other():
    (sticky,) = resolve([StickyPartitionAssignor])
    held = [TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("u", 0)]
    ours = sticky.subscription_user_data(["t", "u"], Held(tuple(held), 5))
    said = StickyPartitionAssignor.parse_member_metadata(ConsumerProtocolMemberMetadata(0, ["t", "u"], ours))
    assert (sorted(said.partitions), said.generation) == (sorted(held), 5)
    StickyPartitionAssignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [3, 1]), ("u", [0])], b""))
    theirs = StickyPartitionAssignor.metadata(["t", "u"]).user_data
    assert read_held(theirs) == Held(tuple(held), -1)  # aiokafka never tells its assignor the generation


def test_the_documented_assignor_of_ones_own_works():
    page = (Path(__file__).parents[2] / "docs" / "assignors.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    written = {}
    exec(program, written)
    own, _ = resolve((written["ByHash"](), "range"))
    members = {"a": MemberSubscription(("t", "u")), "b": MemberSubscription(("t",))}
    answer = run(own, members, {"t": 3, "u": 1}, {})
    assert {who: sorted((tp.topic, tp.partition) for tp in tps) for who, tps in answer.items()} == {
        "a": [("t", 0), ("t", 2), ("u", 0)],
        "b": [("t", 1)],
    }
    assert (own.name, own.is_cooperative, own.subscription_user_data(["t"], Held())) == ("by-hash", False, None)


class Half(Assignor):
    name = "half"


class Duck:
    name = "duck"

    def assign(self, members, partitions, racks):
        return {}


class Numbered(Assignor):
    name = 3

    def assign(self, members, partitions, racks):
        return {}


class Nameless(FirstTakesAll):
    @property
    def name(self):
        return "late"


@pytest.mark.parametrize(
    "strategy",
    [
        ["rnage"], "rnage", [], [Ours], [int], [None], [3], ["range", RangePartitionAssignor], [Nameless], [Duck()],
        Ours, 3, [Numbered()],
    ],
    ids=[
        "mistyped",
        "mistyped-alone",
        "empty",
        "a-class-of-ours",
        "a-type",
        "none",
        "a-number",
        "twice",
        "nameless",
        "duck",
        "a-class-of-ours-alone",
        "a-number-alone",
        "a-name-that-is-a-number",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_known(strategy):
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        resolve(strategy)


def test_one_alone_needs_no_list():
    ours = Ours()
    assert resolve(ours) == (ours,)
    assert [assignor.name for assignor in resolve(RangePartitionAssignor)] == ["range"]


def test_a_class_in_place_of_an_object_is_reported():
    with pytest.raises(ConfigError, match=r"Ours is a class: pass an object, Ours\(\)"):
        resolve([Ours])


def test_an_assignor_without_assign_cannot_even_be_made():
    with pytest.raises(TypeError, match="assign"):
        Half()


def test_the_refusal_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'rnage'.*'range', 'roundrobin'"):
        resolve(["rnage"])
