"""The epoch of the record before an offset, as far as it was read."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.fetching.epochs import MAX_RUNS, NO_EPOCH, Epochs
from aiogroup._core.fetching.partition import Partition
from tests.fetching import wire_batches as w
from tests.support.effort import examples
from tests.support.records import LATEST, fetched, tp


def started(offset=0, epoch=NO_EPOCH):
    epochs = Epochs()
    epochs.start(offset, epoch)
    return epochs


def test_nothing_is_known_at_first_but_what_the_position_came_with():
    assert Epochs().before(7) == NO_EPOCH
    assert started(7).before(7) == NO_EPOCH
    epochs = started(7, 4)
    assert (epochs.before(7), epochs.before(6)) == (4, NO_EPOCH)


def test_an_offset_has_the_epoch_of_the_record_before_it():
    epochs = started(0)
    epochs.learn([(0, 3), (10, 5)])
    assert [epochs.before(each) for each in (0, 1, 10, 11, 99)] == [NO_EPOCH, 3, 3, 5, 5]


def test_a_batch_that_begins_before_the_position_says_nothing_of_what_was_not_read():
    epochs = started(7, 2)
    epochs.learn([(5, 3)])
    assert (epochs.before(7), epochs.before(8)) == (2, 3)


def test_what_is_dropped_is_forgotten_and_what_comes_instead_counts():
    epochs = started(0)
    epochs.learn([(0, 3), (10, 4)])
    epochs.forget_from(8)
    epochs.learn([(8, 6)])
    assert [epochs.before(each) for each in (8, 9, 11)] == [3, 6, 6]


def test_only_the_newest_are_kept():
    epochs = started(0)
    for epoch in range(1_000):
        epochs.learn([(epoch * 10, epoch)])
    assert epochs.before(9_990) == 998
    assert len(epochs) == MAX_RUNS


def test_a_broker_without_epochs_is_reported_as_none():
    epochs = started(0, 4)
    epochs.learn([(0, -7)])
    assert epochs.before(1) == NO_EPOCH


RUNS = st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 9)), max_size=6).map(sorted)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10), st.integers(-1, 9), RUNS, st.integers(0, 30))
def test_they_are_a_plain_table_of_records(start, epoch, runs, asked):
    """Written out: every offset behind the start has the epoch of the last run that begins at or before it."""
    table = {start - 1: epoch}
    for offset in range(start, 40):
        known = [each for begin, each in runs if begin <= offset]
        table[offset] = known[-1] if known else epoch
    epochs = started(start, epoch)
    epochs.learn(runs)
    assert epochs.before(start + asked) == table[start + asked - 1]
    epochs.forget_from(start + asked)
    assert epochs.before(start + asked) == table[start + asked - 1]
    assert epochs.first_above(8) == next(
        (offset for offset in range(start - 1, start + asked) if table[offset] > 8), None
    )


def test_a_position_is_committed_with_the_epoch_of_the_last_record_before_it():
    partition = Partition(tp(0), 1, LATEST)
    partition.start_at(5, leader_epoch=2)
    partition.put(fetched(partition, 3, base=5), w.epochs_of(w.built(3, base=5, epoch=2) + w.built(2, base=8, epoch=4)))
    assert (partition.epoch_before(5), partition.epoch_before(9)) == (2, NO_EPOCH)  # 9 was not delivered yet
    partition.ledger.deliver([5, 6, 7, 8], 9)
    assert [partition.epoch_before(each) for each in (5, 8, 9)] == [2, 2, 4]
    partition.start_at(6)
    assert partition.epoch_before(6) == NO_EPOCH
