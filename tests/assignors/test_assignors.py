"""Range and round robin against Kafka's own vectors, their rules, and aiokafka's versions."""

from __future__ import annotations

import itertools

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.assignors import BY_NAME, MemberSubscription
from aiogroup.assignors.foreign import ForeignAssignor
from tests.support.effort import examples


def member(*topics, instance=None):
    return MemberSubscription(topics, instance_id=instance)


def assign(name, members, **partitions):
    """The assignment, each member's partitions as "topic-number" words."""
    answer = BY_NAME[name].assign(members, partitions, {})
    return {who: " ".join(f"{tp.topic}-{tp.partition}" for tp in tps) for who, tps in answer.items()}


# (name, members, partitions, expected): facts of Kafka's RangeAssignorTest and RoundRobinAssignorTest.
BOTH = ("t1", "t2")
JAVA = {
    "nothing subscribed": ({"c": member()}, {}, {"c": ""}, {"c": ""}),
    "unknown topic": ({"c": member("t")}, {}, {"c": ""}, {"c": ""}),
    "one member": ({"c": member("t")}, {"t": 3}, {"c": "t-0 t-1 t-2"}, {"c": "t-0 t-1 t-2"}),
    "topic of nobody": ({"c": member("t")}, {"t": 1, "other": 3}, {"c": "t-0"}, {"c": "t-0"}),
    "two topics": (
        {"c": member(*BOTH)},
        {"t1": 1, "t2": 2},
        {"c": "t1-0 t2-0 t2-1"},
        {"c": "t1-0 t2-0 t2-1"},
    ),
    "more members than partitions": (
        {"c2": member("t"), "c1": member("t")},
        {"t": 1},
        {"c1": "t-0", "c2": ""},
        {"c1": "t-0", "c2": ""},
    ),
    "mixed subscriptions": (
        {"c1": member("t1"), "c2": member(*BOTH), "c3": member("t1")},
        {"t1": 3, "t2": 2},
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
    ),
    "two members, six partitions": (
        {"c1": member(*BOTH), "c2": member(*BOTH)},
        {"t1": 3, "t2": 3},
        {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"},
        {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"},
    ),
    "instance ids decide": (
        {"c-b": member(*BOTH, instance="i1"), "c-a": member(*BOTH, instance="i2")},
        {"t1": 3, "t2": 3},
        {"c-b": "t1-0 t1-1 t2-0 t2-1", "c-a": "t1-2 t2-2"},
        {"c-b": "t1-0 t1-2 t2-1", "c-a": "t1-1 t2-0 t2-2"},
    ),
    "static before dynamic": (
        {"c-b": member(*BOTH, instance="i1"), "c-a": member(*BOTH)},
        {"t1": 3, "t2": 3},
        {"c-b": "t1-0 t1-1 t2-0 t2-1", "c-a": "t1-2 t2-2"},
        {"c-b": "t1-0 t1-2 t2-1", "c-a": "t1-1 t2-0 t2-2"},
    ),
    "three static, one dynamic": (
        {f"c{n}": member(*BOTH, instance=f"i{n}") for n in (1, 2, 3)} | {"c0": member(*BOTH)},
        {"t1": 5, "t2": 4},
        {"c1": "t1-0 t1-1 t2-0", "c2": "t1-2 t2-1", "c3": "t1-3 t2-2", "c0": "t1-4 t2-3"},
        {"c1": "t1-0 t1-4 t2-3", "c2": "t1-1 t2-0", "c3": "t1-2 t2-1", "c0": "t1-3 t2-2"},
    ),
}


@pytest.mark.parametrize("case", JAVA)
def test_gives_what_java_gives(case):
    members, partitions, by_range, by_turn = JAVA[case]
    assert assign("range", members, **partitions) == by_range
    assert assign("roundrobin", members, **partitions) == by_turn


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_keep_their_assignment_under_new_member_ids(name):
    def shares(*member_ids):
        members = {m: member(*BOTH, instance=f"i{n}") for n, m in enumerate(member_ids)}
        answer = assign(name, members, t1=5, t2=5)
        return [answer[m] for m in member_ids]

    assert shares("a", "b", "c") == shares("c", "a", "b")


@pytest.mark.parametrize("name", BY_NAME)
def test_members_sort_as_java_strings_do(name):
    # A surrogate pair's first unit (D83D) sorts before U+FF5E in Java, behind it by code point.
    assert assign(name, {"\uff5e": member("t"), "\U0001f600": member("t")}, t=1)["\U0001f600"] == "t-0"


@pytest.mark.parametrize("name", BY_NAME)
def test_nobody_gets_nothing(name):
    assert BY_NAME[name].assign({}, {"t": 3}, {}) == {}


def words(letters, most):
    return ["".join(each) for length in range(1, most + 1) for each in itertools.product(letters, repeat=length)]


TOPICS = st.sampled_from(["t0", "t1", "t2", "t3", "t4"])
MEMBERS = st.dictionaries(
    st.sampled_from(words("abc-", 4)),
    st.builds(
        MemberSubscription,
        topics=st.lists(TOPICS, max_size=5).map(tuple),
        instance_id=st.none() | st.sampled_from(words("xyz", 3)),
    ),
    max_size=8,
)
PARTITIONS = st.dictionaries(TOPICS, st.integers(0, 12))


def sizes(assignment, topic, members):
    return [sum(tp.topic == topic for tp in assignment[who]) for who in members]


@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, partitions=PARTITIONS)
def test_each_partition_goes_to_one_subscriber(members, partitions):
    for name, assignor in BY_NAME.items():
        answer = assignor.assign(members, partitions, {})
        wanted = {topic for subscription in members.values() for topic in subscription.topics}
        everything = [tp for tps in answer.values() for tp in tps]
        assert sorted(everything) == sorted(
            TopicPartition(topic, n) for topic in wanted & partitions.keys() for n in range(partitions[topic])
        ), name
        assert answer.keys() == members.keys(), name
        assert all(tp.topic in members[who].topics for who, tps in answer.items() for tp in tps), name


@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, partitions=PARTITIONS)
def test_range_is_even_per_topic(members, partitions):
    answer = BY_NAME["range"].assign(members, partitions, {})
    for topic in partitions:
        subscribers = [who for who in members if topic in members[who].topics]
        counts = sizes(answer, topic, subscribers)
        assert not counts or max(counts) - min(counts) <= 1
        for who in subscribers:
            run = [tp.partition for tp in answer[who] if tp.topic == topic]
            assert run == list(range(run[0], run[0] + len(run))) if run else True


@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, count=st.integers(0, 12))
def test_range_divides_copartitioned_topics_alike(members, count):
    alike = {
        who: MemberSubscription(BOTH, instance_id=subscription.instance_id) for who, subscription in members.items()
    }
    for tps in BY_NAME["range"].assign(alike, {"t1": count, "t2": count}, {}).values():
        assert [tp.partition for tp in tps if tp.topic == "t1"] == [tp.partition for tp in tps if tp.topic == "t2"]


@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, partitions=PARTITIONS)
def test_round_robin_is_even_when_all_subscribe_to_the_same(members, partitions):
    same = {who: MemberSubscription(tuple(partitions)) for who in members}
    counts = [len(tps) for tps in BY_NAME["roundrobin"].assign(same, partitions, {}).values()]
    assert not counts or max(counts) - min(counts) <= 1


@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, partitions=PARTITIONS, data=st.data())
def test_the_order_of_the_arguments_says_nothing(members, partitions, data):
    shuffled = dict(data.draw(st.permutations(list(members.items()))))
    for name, assignor in BY_NAME.items():
        assert assignor.assign(members, partitions, {}) == assignor.assign(shuffled, partitions, {}), name


@pytest.mark.parametrize(
    ("name", "theirs"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
@settings(max_examples=examples(8), deadline=None)
@given(members=MEMBERS, partitions=PARTITIONS)
def test_agrees_with_aiokafka_without_static_members(name, theirs, members, partitions):
    dynamic = {who: MemberSubscription(tuple(dict.fromkeys(s.topics))) for who, s in members.items()}
    ours = BY_NAME[name].assign(dynamic, partitions, {})
    assert ours == ForeignAssignor(theirs).assign(dynamic, partitions, {})
