"""What fails of a round is found, and everything else is done once: without Spark and without a broker."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aiogroup import TopicPartition
from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import LogId, Token
from aiogroup.spark import IncompleteError, Pending
from aiogroup.spark.isolation import FAILURES_IN_A_ROW, MOST_ATTEMPTS, SUSPICIOUS_FAILURES, isolate
from aiogroup.spark.slices import cut
from tests.support.effort import examples


class BadRecordError(Exception):
    pass


class Sink:
    """Fails for slices that have one of the bad offsets; `refuses` says of how many attempts all fail."""

    def __init__(self, bad=(), refuses=0):
        self.bad, self.refuses = set(bad), refuses
        self.attempts, self.sizes, self.done = 0, [], []

    def __call__(self, slices):
        self.attempts += 1
        (part,) = slices.values()
        self.sizes.append(len(part))
        offsets = offsets_of(part.tp, part.ranges)
        if self.attempts <= self.refuses or self.bad & set(offsets):
            return BadRecordError(f"attempt {self.attempts}")
        self.done += offsets
        return True


def offsets_of(tp, ranges):
    return [(tp.partition, offset) for each in ranges for offset in range(each.start, each.end)]


def backlog(*partitions, log_start=0):
    """A slice of each partition, which has these ranges."""
    standing = {}
    for number, pairs in enumerate(partitions):
        place = LogId("cluster", "orders", UUID(int=1), number)
        standing[TopicPartition("orders", number)] = Pending(
            place, Token("0" * 16, 10**6, 0, read(pairs)), (), log_start, 10**6
        )
    return cut(standing, standing.keys(), 10**6, 10**6)


def failed_offsets(failed):
    return sorted(offset for each in failed for offset in offsets_of(each.tp, each.ranges))


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_bad_records_are_found_alone_and_all_others_are_done_once(data):
    partitions = data.draw(st.lists(st.sampled_from([[(0, 40)], [(3, 4)], [(5, 6), (10, 90)]]), min_size=1, max_size=4))
    slices = backlog(*partitions, log_start=data.draw(st.integers(0, 20)))
    everything = [each for part in slices.values() for each in offsets_of(part.tp, part.ranges)]
    there = [
        (piece.tp.partition, at)
        for part in slices.values()
        for piece in part.pieces
        for at in range(piece.start, piece.end)
    ]
    assume(there)
    bad = data.draw(st.lists(st.sampled_from(there), min_size=1, max_size=3, unique=True))
    sink = Sink(bad)
    failed = isolate(slices, BadRecordError("first"), sink)
    assert all(sum(map(len, cut_of(each, slices))) == 1 for each in failed)
    assert sorted(sink.done + failed_offsets(failed)) == sorted(everything)
    assert len(failed) == len(bad)
    assert set(bad) <= set(failed_offsets(failed))


def cut_of(failed, slices):
    """The pieces of a failed part: what there is to read of it."""
    return [
        range(max(piece.start, span.start), min(piece.end, span.end))
        for piece in slices[failed.tp].pieces
        for span in failed.ranges
        if piece.start < span.end and span.start < piece.end
    ]


def test_a_sink_that_is_down_is_no_bad_record():
    sink, first = Sink(refuses=10**9), BadRecordError("first")
    with pytest.raises(BadRecordError, match="first"):
        isolate(backlog([(0, 1_000)], [(0, 1_000)]), first, sink)
    assert sink.attempts == FAILURES_IN_A_ROW - 1  # besides the round
    assert sink.sizes[:2] == [1_000, 1_000]
    assert sink.sizes[SUSPICIOUS_FAILURES - 1 :] == [1] * (FAILURES_IN_A_ROW - SUSPICIOUS_FAILURES)


def test_a_sink_that_goes_down_meanwhile_leaves_the_rest_failed():
    sink = Sink()

    def work(slices):
        if len(sink.done) >= 250:
            return BadRecordError("down")
        return sink(slices)

    failed = isolate(backlog([(0, 250)], [(0, 1_000)], [(0, 10)]), BadRecordError("first"), work)
    assert len(sink.done) == 250
    assert sorted(sink.done + failed_offsets(failed)) == sorted(
        (number, offset) for number, end in enumerate((250, 1_000, 10)) for offset in range(end)
    )


@pytest.mark.parametrize(
    ("bad", "least_done"),
    [(range(0, 10_000, 100), 2_000), (range(0, 10_000, 9), 0), (range(1_000), 8_000), (range(5_000, 5_100), 9_800)],
    ids=["one of a hundred", "one of nine", "a whole tenth", "a whole hundredth"],
)
def test_however_many_records_are_bad_it_ends_and_much_is_done(bad, least_done):
    sink = Sink((0, offset) for offset in bad)
    failed = isolate(backlog([(0, 10_000)]), BadRecordError("first"), sink)
    assert sink.attempts <= MOST_ATTEMPTS + 1
    assert sorted(sink.done + failed_offsets(failed)) == [(0, offset) for offset in range(10_000)]
    assert len(sink.done) > least_done


def test_the_only_record_that_is_pending_may_be_the_bad_one():
    (failed,) = isolate(backlog([(7, 8)]), BadRecordError("first"), Sink())
    assert (failed.ranges, str(failed.error)) == (((7, 8),), "first")


def test_when_the_claim_has_ended_nothing_more_is_tried():
    tried = []
    assert isolate(backlog([(0, 9)], [(0, 9)]), BadRecordError("first"), lambda slices: tried.append(slices)) == ()
    assert len(tried) == 1


def test_what_is_no_error_of_process_is_raised():
    def work(slices):
        raise IncompleteError("records are missing")

    with pytest.raises(IncompleteError):
        isolate(backlog([(0, 9)], [(0, 9)]), BadRecordError("first"), work)


@pytest.mark.parametrize(("count", "each"), [(1_024, 64), (1_024, 2), (10_000, 1_000)])
def test_bad_records_at_equal_distances_are_not_taken_for_a_sink_that_is_down(count, each):
    sink = Sink({(0, offset) for offset in range(0, count, each)})
    failed = failed_offsets(isolate(backlog([(0, count)]), BadRecordError(), sink))
    assert sink.done
    assert sorted([*sink.done, *failed]) == [(0, offset) for offset in range(count)]
