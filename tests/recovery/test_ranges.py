"""Ranges against sets of offsets: nothing overlaps, nothing is lost, closing a gap only adds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.recovery import ranges as r
from aiogroup._core.recovery.ranges import Range
from tests.support.effort import examples


@st.composite
def some_ranges(draw, least=0):
    """Ascending and disjoint; neighbours touch now and then."""
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=least, max_size=6))
    at, made = draw(st.integers(0, 4)), []
    for gap, length in steps:
        made.append((at + gap, at + gap + length))
        at += gap + length
    return r.read(made)


def offsets(ranges):
    return {offset for each in ranges for offset in range(each.start, each.end)}


def check(ranges):
    assert r.read(ranges) == ranges
    return offsets(ranges)


@settings(max_examples=examples(40), deadline=None)
@given(some_ranges(), some_ranges())
def test_union_has_the_offsets_of_both_and_is_disjoint(one, other):
    assert check(r.union(one, other)) == offsets(one) | offsets(other)
    assert r.union(one, other) == r.union(other, one)


@settings(max_examples=examples(40), deadline=None)
@given(some_ranges(), some_ranges())
def test_subtracting_leaves_exactly_the_others(one, other):
    assert check(r.subtract(one, other)) == offsets(one) - offsets(other)


@settings(max_examples=examples(40), deadline=None)
@given(some_ranges(), st.integers(0, 40))
def test_below_and_above_part_the_offsets(ranges, offset):
    assert check(r.below(ranges, offset)) == {each for each in offsets(ranges) if each < offset}
    assert check(r.above(ranges, offset)) == {each for each in offsets(ranges) if each >= offset}
    assert r.count(ranges) == len(offsets(ranges))
    found = r.find(ranges, offset)
    assert (found is not None) == (offset in offsets(ranges))
    assert found is None or (found in ranges and found.start <= offset < found.end)


@settings(max_examples=examples(40), deadline=None)
@given(some_ranges(least=2))
def test_closing_the_smallest_gap_only_adds_and_as_little_as_can_be(ranges):
    closed = r.close_smallest_gap(ranges)
    assert len(closed) == len(ranges) - 1
    assert check(closed) >= offsets(ranges)
    gaps = [other.start - one.end for one, other in pairwise(ranges)]
    assert r.count(closed) - r.count(ranges) == min(gaps)


@settings(max_examples=examples(40), deadline=None)
@given(some_ranges())
def test_joining_keeps_the_offsets_and_leaves_nothing_that_touches(ranges):
    joined = r.join(ranges)
    assert check(joined) == offsets(ranges)
    assert all(one.end < other.start for one, other in pairwise(joined))


def test_ranges_of_two_recoveries_that_touch_are_kept_apart():
    assert r.union((Range(70, 100),), (Range(100, 120),)) == (Range(70, 100), Range(100, 120))
    assert r.union((Range(70, 101),), (Range(100, 120),)) == (Range(70, 120),)


@pytest.mark.parametrize("pairs", [[(5, 5)], [(7, 5)], [(-1, 3)], [(0, 5), (4, 9)], [(5, 9), (0, 3)]])
def test_what_is_no_range_is_refused(pairs):
    with pytest.raises(ValueError, match=r"no range|not ascending"):
        r.read(pairs)
