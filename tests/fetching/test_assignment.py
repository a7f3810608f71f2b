"""Which partitions are ours, and since when."""

from __future__ import annotations

from aiogroup._core.fetching import assignment as assignments
from aiogroup._core.fetching.assignment import Assignment
from tests.support.records import LATEST, tp


def test_ownership_ends_with_a_revoke_also_when_the_partition_comes_back():
    assignment = Assignment()
    (first,) = assignment.add({tp(0): LATEST})
    assert assignment.is_owned_since(tp(0), first.ownership)
    assignment.remove([tp(0)])
    assert not assignment.is_owned_since(tp(0), first.ownership)
    (second,) = assignment.add({tp(0): LATEST})
    assert not assignment.is_owned_since(tp(0), first.ownership)
    assert assignment.is_owned_since(tp(0), second.ownership)


def test_records_of_an_earlier_ownership_acknowledge_nothing_in_the_later_one():
    assignment = Assignment()
    (first,) = assignment.add({tp(0): LATEST})
    first.start_at(0)
    first.ledger.deliver([0, 1], 2)
    assignment.remove([tp(0)])
    (second,) = assignment.add({tp(0): LATEST})
    second.start_at(0)
    second.ledger.deliver([0, 1], 2)
    first.ledger.ack(0)
    assert second.ledger.committable == 0


def test_owned_once_is_not_owned_now():
    assignment = Assignment()
    assert not assignment.was_owned(tp(0))
    assignment.add({tp(0): LATEST})
    assert not assignment.was_owned(tp(0))
    assignment.remove([tp(0), tp(9)])
    assert assignment.was_owned(tp(0))
    assert not assignment.was_owned(tp(9))


def test_of_the_partitions_that_were_given_up_the_latest_are_remembered(monkeypatch):
    monkeypatch.setattr(assignments, "FORMER_COUNT", 2)
    assignment = Assignment()
    for number in (0, 1, 0, 2):
        assignment.add({tp(number): LATEST})
        assignment.remove([tp(number)])
    assert [assignment.was_owned(tp(number)) for number in range(3)] == [True, False, True]


def test_every_change_is_counted():
    assignment = Assignment()
    assignment.add({tp(0): LATEST})
    before = assignment.changes_count
    assignment.remove([tp(0)])
    assert assignment.changes_count > before
    assert len(assignment) == 0


def test_partitions_are_found_by_name():
    assignment = Assignment()
    (partition,) = assignment.add({tp(3): LATEST})
    assert tp(3) in assignment
    assert tp(4) not in assignment
    assert assignment[tp(3)] is assignment.get(tp(3)) is partition
    assert assignment.get(tp(4)) is None
    assert assignment.names == {tp(3)}
    assert list(assignment) == [partition]
