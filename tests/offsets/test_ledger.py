"""delivered -> processed -> committable, against the plainest book one could keep."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.offsets.ledger import Ledger
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
        behind = [offset for offset in book.ticks if book.open_offsets and offset >= book.committable]
        assert ledger.in_hand_count == len(behind)
