"""delivered -> processed -> committable, against the plainest book one could keep."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.offsets.ledger import Ledger
from tests.support.effort import examples


def in_hand(*offsets):
    ledger = Ledger(offsets[0])
    ledger.deliver(offsets, offsets[-1] + 1)
    return ledger


def test_nothing_delivered_is_committable_up_to_the_position():
    assert Ledger(7).committable == 7


def test_what_is_in_hand_is_not_committable():
    ledger = in_hand(3, 4, 5)
    assert (ledger.committable, ledger.position, ledger.in_hand_count) == (3, 6, 3)
    ledger.process_all()
    assert (ledger.committable, ledger.has_unprocessed) == (6, False)


def test_acknowledgements_in_any_order_commit_the_gap_free_part():
    ledger = in_hand(3, 4, 5, 6)
    ledger.ack(5)
    ledger.ack(4)
    assert ledger.committable == 3
    ledger.ack(3)
    assert ledger.committable == 6


def test_commit_that_closes_the_gap_frees_what_was_acknowledged_after_it():
    ledger = in_hand(3, 4, 5)
    ledger.ack(4)
    ledger.process_below(4)
    assert ledger.committable == 5


def test_offsets_without_records_are_passed_with_the_position():
    ledger = Ledger(0)
    ledger.deliver([0, 1, 5], 9)
    ledger.process_all()
    assert ledger.committable == 9
    ledger.pass_over(12)
    assert ledger.committable == 12
    ledger.pass_over(4)
    assert ledger.committable == 12


def test_passing_over_does_not_pass_what_is_in_hand():
    ledger = in_hand(3, 4)
    ledger.pass_over(9)
    assert (ledger.committable, ledger.position) == (3, 9)


def test_seek_takes_back_what_is_in_hand():
    ledger = in_hand(3, 4, 5)
    ledger.move(1)
    assert (ledger.committable, ledger.position, ledger.in_hand_count) == (1, 1, 0)
    ledger.ack(4)
    assert ledger.committable == 1


@pytest.mark.parametrize("size", [1, 500])
@pytest.mark.parametrize("kept", [{0}, {0, 70_001}])
def test_what_is_acknowledged_behind_a_gap_takes_no_memory(size, kept):
    """One record stays in hand for days, and all others are processed."""
    ledger, count = Ledger(0), 100_000
    tracemalloc.start()
    try:
        for first in range(0, count, size):
            offsets = range(first, first + size)
            ledger.deliver(offsets if size > 1 else [first], first + size)
            for offset in offsets:
                if offset not in kept:
                    ledger.ack(offset)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 400_000
    assert (ledger.committable, ledger.position, ledger.in_hand_count) == (0, count, len(kept))
    for offset in kept:
        ledger.ack(offset)
    assert (ledger.committable, ledger.has_unprocessed) == (count, False)


@settings(max_examples=examples(15), deadline=None)
@given(st.permutations(range(40)), st.integers(1, 7), st.integers(0, 8))
def test_acknowledgements_that_are_taken_out_count(order, size, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiogroup._core.offsets.ledger.MOST_NOTED", most)
        ledger, open_offsets = Ledger(0), set(range(40))
        for first in range(0, 40, size):
            ledger.deliver(range(first, min(first + size, 40)), min(first + size, 40))
        for offset in order:
            ledger.ack(offset)
            open_offsets.discard(offset)
            assert ledger.committable == min(open_offsets, default=40)
            assert ledger.has_unprocessed == bool(open_offsets)


def test_acknowledgement_after_the_ownership_ended_changes_nothing():
    ledger = in_hand(3, 4)
    ledger.close()
    ledger.ack(3)
    assert ledger.committable == 3


class Book:
    """The plainest way: every offset delivered since the last seek, each with a tick when it is processed."""

    def __init__(self):
        self.position = 0
        self.ticks = {}

    @property
    def open_offsets(self):
        return [offset for offset, ticked in self.ticks.items() if not ticked]

    @property
    def committable(self):
        return min(self.open_offsets, default=self.position)

    def tick(self, those):
        self.ticks.update({offset: True for offset in self.ticks if those(offset)})


STEPS = st.one_of(
    st.tuples(st.just("deliver"), st.lists(st.sampled_from([0, 0, 2]), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["ack", "ack", "commit"]), st.integers(-1, 4)),
    st.tuples(st.sampled_from(["process_all", "pass_over", "seek"]), st.integers(0, 9)),
)


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_ledger_agrees_with_the_plainest_book(steps):
    ledger, book = Ledger(0), Book()
    for what, number in [("deliver", [0, 0, 0]), *steps]:
        if what == "deliver":
            offsets = []
            for gap in number:
                offsets.append(book.position + gap)
                book.position += gap + 1
            ledger.deliver(offsets, book.position)
            book.ticks.update(dict.fromkeys(offsets, False))
        elif what == "ack":
            offset = book.committable + number
            ledger.ack(offset)
            book.tick(offset.__eq__)
        elif what == "commit":
            offset = book.committable + number
            ledger.process_below(offset)
            book.tick(offset.__gt__)
        elif what == "process_all":
            ledger.process_all()
            book.tick(lambda offset: True)
        elif what == "pass_over":
            book.position += number
            ledger.pass_over(book.position)
        else:
            ledger.move(number)
            book.position, book.ticks = number, {}
        assert ledger.position == book.position
        assert ledger.committable == book.committable
        assert ledger.has_unprocessed == bool(book.open_offsets)
        assert ledger.in_hand_count == len(book.open_offsets)
