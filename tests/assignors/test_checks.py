"""No answer of an assignor reaches the group that its members could not act on."""

from __future__ import annotations

import gc

import pytest
from aiokafka.structs import TopicPartition

from aiogroup import AssignorError
from aiogroup.assignors import Assignor, MemberSubscription, is_cooperative
from aiogroup.assignors.checks import run

BOTH = {"a": MemberSubscription(("t", "u")), "b": MemberSubscription(("t",))}
PARTITIONS = {"t": 2, "u": 1}


class Says(Assignor):
    name = "says"

    def __init__(self, answer, is_cooperative=False):
        self.answer = answer
        self.cooperates = is_cooperative

    @property
    def is_cooperative(self):
        return self.cooperates

    def assign(self, members, partitions, racks):
        return self.answer


def tps(*words):
    return [TopicPartition(topic, int(number)) for topic, number in (word.split("-") for word in words)]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"a": tps("t-0"), "b": tps("t-0")}, "gave t-0 twice, to 'a' and to 'b'"),
        ({"a": tps("t-1", "t-1")}, "gave t-1 twice, to 'a' and to 'a'"),
        ({"b": tps("u-0")}, "gave u-0 to 'b', which did not subscribe"),
        ({"a": tps("t-2")}, "gave t-2 to 'a': there is no such partition"),
        ({"a": [TopicPartition("t", -1)]}, "gave t--1 to 'a': there is no such partition"),
        ({"c": [], "a": []}, "members that are not in the group: 'c'"),
        ({f"c{n}": [] for n in range(7)}, "'c0', 'c1', 'c2', 'c3', 'c4' and 2 more"),
        (None, "returned None, not a mapping of members to partitions"),
        ([("a", [])], "returned a list, not a mapping"),
        ({"a": ["t-0"]}, "gave 't-0' to 'a': a TopicPartition is needed"),
        ({"a": [("t", 0)]}, "gave ('t', 0) to 'a': a TopicPartition is needed"),
        ({"a": "t-0"}, "gave 't' to 'a': a TopicPartition is needed"),
        ({"a": 3}, "failed: TypeError"),
    ],
)
def test_a_broken_answer_is_refused_with_what_is_wrong(answer, told):
    with pytest.raises(AssignorError, match=r"^assignor 'says' ") as caught:
        run(Says(answer), BOTH, PARTITIONS, {})
    assert told in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_an_async_assign_is_refused_without_a_warning():
    class Async(Says):
        async def assign(self, members, partitions, racks):
            return {}

    with pytest.raises(AssignorError, match=r"'says' returned a coroutine \(assign is not async\)"):
        run(Async(None), BOTH, PARTITIONS, {})
    gc.collect()


def test_what_an_assignor_raises_is_the_cause():
    class Breaks(Says):
        def assign(self, members, partitions, racks):
            raise LookupError("no idea")

    with pytest.raises(AssignorError, match="assignor 'says' failed: LookupError") as caught:
        run(Breaks(None), BOTH, PARTITIONS, {})
    assert isinstance(caught.value.__cause__, LookupError)


def test_members_and_partitions_may_be_left_out_and_any_iterable_will_do():
    assert run(Says({"a": (tp for tp in tps("t-1"))}), BOTH, PARTITIONS, {}) == {"a": tps("t-1")}


def owning(**owned):
    return {who: MemberSubscription(("t", "u"), owned=tuple(tps(*held.split()))) for who, held in owned.items()}


@pytest.mark.parametrize(
    ("answer", "moved"),
    [
        ({"a": tps("t-0"), "b": tps("t-1")}, None),  # both keep
        ({"a": tps("t-0", "u-0")}, None),  # t-1 waits for its next owner, u-0 had none
        ({"a": tps("t-0", "t-1")}, "t-1"),
        ({"a": tps("t-1"), "b": tps("t-0")}, "t-0, t-1"),
    ],
)
def test_a_cooperative_assignor_moves_nothing_at_once(answer, moved):
    members = owning(a="t-0", b="t-1")
    assert run(Says(answer), members, PARTITIONS, {}) == answer
    if moved is None:
        assert run(Says(answer, is_cooperative=True), members, PARTITIONS, {}) == answer
    else:
        with pytest.raises(AssignorError, match=f"another still owns: {moved};"):
            run(Says(answer, is_cooperative=True), members, PARTITIONS, {})


def test_a_member_is_cooperative_only_if_all_its_assignors_are():
    eager, cooperative = Says({}), Says({}, is_cooperative=True)
    assert is_cooperative([cooperative])
    assert is_cooperative([cooperative, cooperative])
    assert not is_cooperative([cooperative, eager])
    assert not is_cooperative([eager])
