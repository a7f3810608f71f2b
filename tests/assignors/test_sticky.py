"""What the sticky assignors promise: even loads, few moves, and no partition with two owners in any interleaving."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.assignors import BY_NAME, Held, MemberSubscription
from aiogroup.assignors.checks import run
from aiogroup.assignors.previous import read_generation, read_held, write_held
from tests.support.effort import examples

STICKY = ("sticky", "cooperative-sticky")
TOPICS = [f"t{n}" for n in range(5)]
TPS = [TopicPartition(topic, n) for topic in TOPICS for n in range(10)]
IDS = ["".join(letters) for length in (1, 2, 3, 4) for letters in itertools.product("abc-", repeat=length)]


def joining(name, topics, held=None, generation=-1, rack=None):
    """What a member says that was assigned `held` in `generation`; a cooperative one holds it still."""
    assignor = BY_NAME[name]
    last = Held(tuple(held or ()), generation)
    return MemberSubscription(
        tuple(topics),
        assignor.subscription_user_data(topics, last),
        last.partitions if assignor.is_cooperative else (),
        generation,
        rack,
    )


def everything(members, partitions):
    topics = {topic for member in members.values() for topic in member.topics}
    return sorted(TopicPartition(t, n) for t in topics & partitions.keys() for n in range(partitions[t]))


# Made once: hypothesis checks again what is made again for each example.
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8), min_size=1)
NAMES = st.lists(st.sampled_from(IDS), min_size=1, max_size=7, unique=True)
SOME = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
CLAIM = st.tuples(st.lists(st.sampled_from(TPS), max_size=8, unique=True), st.integers(-1, 3))


@st.composite
def groups(draw, alike):
    """(partitions, topics of each member, what each held and when); the claims may be nonsense."""
    partitions, ids = draw(PARTITIONS), draw(NAMES)
    everywhere = tuple(sorted(partitions))
    wanted = {
        who: everywhere if alike else tuple(t for t in draw(SOME) if t in partitions) or everywhere[:1] for who in ids
    }
    return partitions, wanted, {who: draw(CLAIM) for who in ids}


GROUPS = {alike: groups(alike) for alike in (True, False)}


def members_of(name, wanted, claims):
    return {who: joining(name, topics, *claims[who]) for who, topics in wanted.items()}


def is_even(answer, members):
    """No partition could go to a subscriber that has at least two fewer."""
    load = {who: len(tps) for who, tps in answer.items()}
    return not any(
        load[other] + 1 < load[who] and tp.topic in members[other].topics
        for who, tps in answer.items()
        for tp in tps
        for other in members
    )


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "various"])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_every_partition_once_and_even_whatever_was_claimed(alike, data):
    partitions, wanted, claims = data.draw(GROUPS[alike])
    members = members_of("sticky", wanted, claims)
    answer = run(BY_NAME["sticky"], members, partitions, {})
    assert sorted(tp for tps in answer.values() for tp in tps) == everything(members, partitions)
    assert answer.keys() == members.keys()
    assert is_even(answer, members)


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "various"])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_the_order_of_members_says_nothing(alike, data):
    partitions, wanted, claims = data.draw(GROUPS[alike])
    order = data.draw(st.permutations(list(wanted)))
    for name in STICKY:
        members = members_of(name, wanted, claims)
        shuffled = {who: members[who] for who in order}
        assert BY_NAME[name].assign(members, partitions, {}) == BY_NAME[name].assign(shuffled, partitions, {}), name


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "various"])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_nothing_moves_when_nothing_changes(alike, data):
    partitions, wanted, _ = data.draw(GROUPS[alike])
    for name in STICKY:
        first = BY_NAME[name].assign({who: joining(name, topics) for who, topics in wanted.items()}, partitions, {})
        again = {who: joining(name, topics, first[who], 1) for who, topics in wanted.items()}
        assert BY_NAME[name].assign(again, partitions, {}) == first, name


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_members_alike_keep_all_that_an_even_load_allows(data):
    partitions, wanted, _ = data.draw(GROUPS[True])
    tps = everything(members_of("sticky", wanted, dict.fromkeys(wanted, ((), -1))), partitions)
    held = {who: [] for who in wanted}
    for tp in data.draw(st.permutations(tps)):
        held[data.draw(st.sampled_from([*wanted, min(wanted)]))].append(tp)
    members = {who: joining("sticky", topics, held[who], 1) for who, topics in wanted.items()}
    answer = BY_NAME["sticky"].assign(members, partitions, {})
    least, extra = divmod(len(tps), len(members))
    kept = sum(len(set(answer[who]) & set(held[who])) for who in members)
    more = min(extra, sum(len(each) > least for each in held.values()))
    assert kept == sum(min(len(each), least) for each in held.values()) + more


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_whoever_stays_loses_nothing_when_somebody_leaves(data):
    partitions, wanted, _ = data.draw(GROUPS[True])
    first = BY_NAME["sticky"].assign({who: joining("sticky", t) for who, t in wanted.items()}, partitions, {})
    leaver = data.draw(st.sampled_from(sorted(wanted)))
    rest = {who: joining("sticky", t, first[who], 1) for who, t in wanted.items() if who != leaver}
    answer = BY_NAME["sticky"].assign(rest, partitions, {})
    assert all(set(first[who]) <= set(answer[who]) for who in rest)


def test_a_member_of_an_older_generation_does_not_get_what_others_hold_now():
    """AbstractStickyAssignorTest.testAssignmentWithMultipleGenerations1."""
    sticky, partitions = BY_NAME["sticky"], {"t": 6}
    first = sticky.assign({who: joining("sticky", ["t"]) for who in "abc"}, partitions, {})
    assert [len(first[who]) for who in "abc"] == [2, 2, 2]
    second = sticky.assign({who: joining("sticky", ["t"], first[who], 1) for who in "ab"}, partitions, {})
    assert all(set(second[who]) > set(first[who]) for who in "ab")
    third = sticky.assign(
        {"b": joining("sticky", ["t"], second["b"], 2), "c": joining("sticky", ["t"], first["c"], 1)}, partitions, {}
    )
    assert set(third["b"]) == set(second["b"])
    assert len(third["c"]) == 3


def test_racks_come_after_even_loads():
    racks = {TopicPartition("t", n): frozenset({"r1" if n < 4 else "r2"}) for n in range(6)}
    members = {"a": joining("sticky", ["t"], rack="r1"), "b": joining("sticky", ["t"], rack="r2")}
    answer = BY_NAME["sticky"].assign(members, {"t": 6}, racks)
    assert {who: [tp.partition for tp in tps] for who, tps in answer.items()} == {"a": [0, 1, 2], "b": [3, 4, 5]}


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.builds(TopicPartition, st.text("tä-", min_size=1, max_size=3), st.integers(0, 2**31 - 1)), unique=True),
    st.integers(-1, 2**31 - 1),
)
def test_user_data_is_read_as_it_was_written(tps, generation):
    again = read_held(write_held(Held(tuple(tps), generation)))
    assert (sorted(again.partitions), again.generation) == (sorted(tps), generation)


@settings(max_examples=examples(25), deadline=None)
@given(st.binary())
def test_any_bytes_are_user_data_of_somebody(data):
    assert isinstance(read_held(data), Held)
    assert isinstance(read_generation(data), int)


# Cooperative members.


@dataclasses.dataclass
class Reader:
    """A member that adopts late or never; `is_fenced` says that the group went on without it."""

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    given: frozenset[TopicPartition] | None = None
    is_fenced: bool = False


class Life:
    """A group whose members join, leave, fall behind and come back, in the order that `rng` says."""

    def __init__(self, rng, assignor):
        self.rng = rng
        self.assignor = assignor
        self.partitions = {topic: rng.randint(1, 5) for topic in rng.sample(TOPICS, rng.randint(1, 3))}
        self.alike = rng.random() < 0.5
        self.readers = {}
        self.generation = 0
        self.born = 0
        self.join()

    def topics(self):
        topics = sorted(self.partitions)
        return tuple(topics if self.alike else self.rng.sample(topics, self.rng.randint(1, len(topics))))

    def join(self):
        self.born += 1
        self.readers[f"m{self.rng.randrange(100)}-{self.born}"] = Reader(self.topics())

    def change(self):
        kind = self.rng.randrange(6)
        who = self.rng.choice(sorted(self.readers))
        if kind <= 1 and len(self.readers) < 7:
            self.join()
        elif kind == 2 and len(self.readers) > 1:
            del self.readers[who]
        elif kind == 3 and not self.alike:
            self.readers[who].topics = self.topics()
        elif kind == 4:
            self.partitions[self.rng.choice(sorted(self.partitions))] += 1

    def round(self, *, may_fail=True):
        """Everybody joins, save those that are too slow; then each adopts what it was given, or not in time."""
        self.generation += 1
        joined = {}
        for who, reader in self.readers.items():
            if may_fail and joined and self.rng.random() < 0.15:
                reader.is_fenced = True  # it still believes that it owns what it owns, and may say so next time
                continue
            if reader.is_fenced and self.rng.random() < 0.7:
                reader.owned = frozenset()  # it was told: what it had is lost
            reader.owned = frozenset(tp for tp in reader.owned if tp.topic in reader.topics)
            reader.given = None
            joined[who] = reader
        said = {
            who: dataclasses.replace(
                joining("cooperative-sticky", each.topics, sorted(each.owned), each.generation),
            )
            for who, each in joined.items()
        }
        for who, tps in run(self.assignor, said, self.partitions, {}).items():
            joined[who].given = frozenset(tps)
        self.check(joined)
        needs_another = False
        for who in self.rng.sample(sorted(joined), len(joined)):
            if may_fail and self.rng.random() < 0.2:
                continue  # the next round comes before SyncGroup's answer
            reader = joined[who]
            needs_another |= not reader.owned <= reader.given
            reader.owned, reader.generation, reader.is_fenced = reader.given, self.generation, False
            self.check(joined)
        return needs_another

    def check(self, joined):
        """What a fenced member believes counts for nothing: its commits are refused, and it is told to give up."""
        owners = {}
        for who, reader in joined.items():
            for tp in reader.owned if not reader.is_fenced else ():
                assert owners.setdefault(tp, who) == who, f"{tp} belongs to {owners[tp]} and {who}"

    def settle(self):
        """Without further trouble: rounds until nobody has anything to give up."""
        for count in range(1, 6):
            if not self.round(may_fail=False):
                return count
        raise AssertionError("the group does not come to rest")


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_partition_has_two_owners_in_any_interleaving(seed):
    life = Life(random.Random(seed), BY_NAME["cooperative-sticky"])
    for _ in range(12):
        life.change()
        life.round()
    assert life.settle() <= 3
    members = {who: joining("cooperative-sticky", each.topics) for who, each in life.readers.items()}
    answer = {who: each.owned for who, each in life.readers.items()}
    assert sorted(tp for tps in answer.values() for tp in tps) == everything(members, life.partitions)
    assert is_even(answer, members)
