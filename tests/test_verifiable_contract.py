"""The checker of verifiable clients finds each breach: what it never refuses it does not check."""

from __future__ import annotations

import json

import pytest

from tests.support.contract import ContractError, Group, Member

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


def test_the_group_may_not_go_back_behind_its_commit():
    group = Group()
    feed(GOOD, Member(group))
    second = feed([START, ASSIGNED], Member(group))
    with pytest.raises(ContractError, match="behind"):
        second.feed(consumed(5, 6))


def test_nobody_commits_past_what_the_group_read():
    with pytest.raises(ContractError, match="ahead"):
        Group().feed(json.loads(committed(3)))
