"""The checker of verifiable clients finds each breach: what it never refuses it does not check."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.contract import COOPERATIVE, ContractError, Group, IncrementalMember, Member, member_for, one_owner
from tests.support.verifiable import RANGE

P0 = {"topic": "t", "partition": 0}
P1 = {"topic": "t", "partition": 1}


def line(name, **fields):
    return json.dumps({"timestamp": 1, "name": name, **fields})


def consumed(first, last, of=P0, count=None, inner=None):
    count = last - first + 1 if count is None else count
    summary = {**of, "count": inner or last - first + 1, "minOffset": first, "maxOffset": last}
    return line("records_consumed", count=count, partitions=[summary])


def committed(offset, of=P0, **result):
    return line("offsets_committed", offsets=[{**of, "offset": offset}], **(result or {"success": True}))


START = line("startup_complete")
ASSIGNED = line("partitions_assigned", partitions=[P0])
REVOKED = line("partitions_revoked", partitions=[P0])
END = line("shutdown_complete")
GOOD = [START, ASSIGNED, consumed(0, 4), committed(5), consumed(5, 5), committed(6), REVOKED, END]


def feed(lines, member=None):
    member = member or Member(Group())
    for each in lines:
        member.feed(each)
    return member


def test_an_orderly_life_is_accepted():
    member = feed(GOOD)
    assert (member.total_consumed, member.assigned_count, member.revoked_count) == (6, 1, 1)
    feed([START, ASSIGNED, consumed(0, 4), committed(5, success=False, error="why"), REVOKED, ASSIGNED, consumed(0, 4)])


BAD = [
    ("no JSON", [START, "hello"]),
    ("no timestamp", ['{"name": "startup_complete"}']),
    ("unknown event", [START, line("something")]),
    ("wrong fields", [START, line("partitions_assigned")]),
    ("wrong fields", [START, ASSIGNED, consumed(0, 4), committed(5, success=False)]),
    ("wrong type", [START, line("partitions_assigned", partitions=[{"topic": "t", "partition": "0"}])]),
    ("no list", [START, line("partitions_assigned", partitions=1)]),
    ("while dead", [ASSIGNED]),
    ("while started", [START, START]),
    ("while dead", [*GOOD, ASSIGNED]),
    ("records while started", [START, consumed(0, 0)]),
    ("records while rebalancing", [START, ASSIGNED, REVOKED, consumed(0, 0)]),
    ("records of a partition", [START, ASSIGNED, consumed(0, 0, of=P1)]),
    ("not the next offset", [START, ASSIGNED, consumed(0, 4), committed(5), consumed(6, 7)]),
    ("counts differ", [START, ASSIGNED, consumed(0, 4, count=4)]),
    ("a gap", [START, ASSIGNED, consumed(0, 4, count=4, inner=4)]),
    ("eager revokes everything", [START, ASSIGNED, line("partitions_revoked", partitions=[P1])]),
    ("was not told before", [START, ASSIGNED, consumed(0, 4), REVOKED]),
    ("was not told before", [START, ASSIGNED, consumed(0, 4), ASSIGNED]),
    ("was not told before", [START, ASSIGNED, consumed(0, 4), consumed(5, 6)]),
    ("was not told before", [START, ASSIGNED, consumed(0, 4), END]),
    ("not what was consumed", [START, ASSIGNED, committed(5)]),
    ("not what was consumed", [START, ASSIGNED, consumed(0, 4), committed(6)]),
    ("not what was consumed", [START, ASSIGNED, consumed(0, 4), committed(5, of=P1)]),
]


@pytest.mark.parametrize(("why", "lines"), BAD)
def test_a_breach_is_found_at_its_line(why, lines):
    member = feed(lines[:-1])
    with pytest.raises(ContractError, match=why):
        member.feed(lines[-1])


def test_a_commit_with_auto_commit_is_a_breach():
    member = Member(Group())
    member.commits = False
    feed([START, ASSIGNED, consumed(0, 4), consumed(5, 5)], member)
    with pytest.raises(ContractError, match="auto-commit"):
        member.feed(committed(6))


def test_only_who_is_fenced_ends_without_a_word_of_its_last_commit():
    lines = [START, ASSIGNED, consumed(0, 4), REVOKED]
    member = Member(Group())
    member.may_be_fenced = True
    feed([*lines, END], member)
    for more in (ASSIGNED, committed(5)):
        member = Member(Group())
        member.may_be_fenced = True
        feed(lines, member)
        with pytest.raises(ContractError, match="fenced"):
            member.feed(more)


def test_what_a_frozen_member_tells_late_is_not_judged_by_what_others_did():
    group = Group()
    frozen, other = feed([START, ASSIGNED, consumed(0, 4)], Member(group)), feed([START, ASSIGNED], Member(group))
    frozen.is_overdue = True
    feed([consumed(0, 9), committed(10)], other)
    feed([committed(5), REVOKED, ASSIGNED, consumed(10, 10)], frozen)
    assert group.position == {("t", 0): 11}
    again = feed([committed(11), REVOKED, ASSIGNED], frozen)
    with pytest.raises(ContractError, match="behind"):
        again.feed(consumed(5, 6))


def test_the_group_may_not_go_back_before_its_commit():
    group = Group()
    feed(GOOD, Member(group))
    second = feed([START, ASSIGNED], Member(group))
    with pytest.raises(ContractError, match="behind"):
        second.feed(consumed(5, 6))


def test_the_group_may_not_commit_backwards():
    group = Group()
    first, second = feed(GOOD, Member(group)), feed([START, ASSIGNED], Member(group))
    feed([START, ASSIGNED, consumed(6, 9)], first)
    second.owing = {("t", 0): 5}  # of a batch that it read before it was frozen
    feed([committed(10)], first)
    with pytest.raises(ContractError, match="behind"):
        second.feed(committed(5))


def test_nobody_commits_past_what_the_group_read():
    with pytest.raises(ContractError, match="ahead"):
        Group().feed(json.loads(committed(3)))


BOTH = line("partitions_assigned", partitions=[P0, P1])
NOTHING = line("partitions_assigned", partitions=[])
GAVE_P1 = line("partitions_revoked", partitions=[P1])
GOT_P1 = line("partitions_assigned", partitions=[P1])
GOOD_ROUNDS = [START, NOTHING, BOTH, consumed(0, 4), committed(5), NOTHING, consumed(5, 5), committed(6)]
GOOD_ROUNDS += [consumed(7, 8, of=P1), committed(9, of=P1), GAVE_P1, NOTHING, consumed(6, 7), committed(8)]
GOOD_ROUNDS += [GOT_P1, consumed(20, 21, of=P1), committed(22, of=P1), consumed(8, 8), committed(9)]
GOOD_ROUNDS += [line("partitions_revoked", partitions=[P0, P1]), END]


def incremental(lines):
    return feed(lines, IncrementalMember(Group()))


def test_the_handler_is_chosen_by_the_strategy():
    for strategy in (RANGE, f"{RANGE},{COOPERATIVE}", f"{COOPERATIVE},{RANGE}"):
        assert type(member_for(strategy, Group())) is Member
    assert type(member_for(COOPERATIVE, Group())) is IncrementalMember


def test_an_orderly_cooperative_life_is_accepted():
    member = incremental(GOOD_ROUNDS[:-2])
    assert member.assignment == {("t", 0), ("t", 1)}
    feed(GOOD_ROUNDS[-2:], member)
    assert (member.total_consumed, member.assigned_count, member.revoked_count) == (13, 5, 2)
    assert not member.assignment


BAD_ROUNDS = [
    ("while dead", [NOTHING]),
    ("records while started", [START, consumed(0, 0)]),
    ("records while rebalancing", [START, BOTH, GAVE_P1, consumed(0, 0)]),
    ("records of a partition", [START, NOTHING, consumed(0, 0)]),
    ("records of a partition", [START, BOTH, GAVE_P1, NOTHING, consumed(0, 0, of=P1)]),
    ("not the next offset", [START, BOTH, consumed(0, 4), committed(5), NOTHING, consumed(6, 6)]),
    ("not the next offset", [START, BOTH, consumed(0, 4), committed(5), GAVE_P1, NOTHING, consumed(4, 6)]),
    ("revoked what it does not have", [START, GAVE_P1]),
    ("revoked what it does not have", [START, BOTH, GAVE_P1, GAVE_P1]),
    ("assigned what it has", [START, BOTH, GOT_P1]),
    ("was not told before", [START, BOTH, consumed(0, 4), NOTHING]),
    ("was not told before", [START, BOTH, consumed(0, 4), GAVE_P1]),
    ("not what was consumed", [START, BOTH, consumed(0, 4), committed(5, of=P1)]),
    ("while dead", [*GOOD_ROUNDS, NOTHING]),
]


@pytest.mark.parametrize(("why", "lines"), BAD_ROUNDS)
def test_a_cooperative_breach_is_found_at_its_line(why, lines):
    member = incremental(lines[:-1])
    with pytest.raises(ContractError, match=why):
        member.feed(lines[-1])


def history(*changes):
    """A process's events from (time, name, partitions...)."""
    return [
        {"timestamp": at, "name": name, "partitions": [{"topic": "t", "partition": number} for number in numbers]}
        for at, name, *numbers in changes
    ]


def test_a_hand_over_has_one_owner_at_a_time():
    first = [(1, "partitions_assigned", 0, 1), (5, "partitions_revoked", 1), (5, "partitions_assigned"), (9, "lost")]
    second = [(6, "partitions_assigned", 1), (9, "partitions_assigned", 0), (10, "shutdown_complete")]
    third = [(10, "partitions_assigned", 0, 1)]
    one_owner(history(*first, (11, "partitions_revoked", 0)), history(*second), history(*third))


@pytest.mark.parametrize(
    "second",
    [[(4, "partitions_assigned", 1)], [(6, "partitions_assigned", 0)], [(0, "partitions_assigned", 0)]],
    ids=["too soon", "what is kept", "had it first"],
)
def test_two_owners_are_found(second):
    first = history((1, "partitions_assigned", 0, 1), (5, "partitions_revoked", 1))
    with pytest.raises(ContractError, match="two owners"):
        one_owner(first, history(*second))


@pytest.mark.parametrize("arguments", [["--help"], ["consumer", "--help"], ["producer", "--help"]], ids=" ".join)
def test_help_is_no_failure(arguments):
    run = subprocess.run([sys.executable, "-m", "aiogroup.verifiable", *arguments], capture_output=True, check=False)
    assert run.returncode == 0
    assert b"usage:" in run.stdout
