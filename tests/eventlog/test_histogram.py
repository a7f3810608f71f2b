"""The buckets of the event log: fixed, on a logarithmic scale, and merged by addition."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiogroup._core.telemetry.meter import Histogram, bounds_of, bucket_of, coarser
from tests.support.effort import examples

# A busy machine may take seconds for an example.
few = settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALUES = st.floats(0, 2**62) | st.integers(0, 2**62)


@few
@given(VALUES)
def test_a_value_lies_within_the_bounds_of_its_bucket(value):
    lower, upper = bounds_of(bucket_of(value))
    assert lower < value <= upper * (1 + 1e-12) or (value <= 1 and (lower, upper) == (0, 1))


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (0.2, 0), (1, 0), (1.01, 1), (2, 4), (2.01, 5), (1_000, 40), (300_000, 73)]
)
def test_buckets_are_fixed(value, bucket):
    """They are in files that are read years later."""
    assert bucket_of(value) == bucket


@few
@given(st.lists(VALUES), st.lists(VALUES))
def test_histograms_are_merged_by_addition(some, others):
    one, two, both = Histogram(), Histogram(), Histogram()
    for histogram, values in ((one, some), (two, others), (both, [*some, *others])):
        for value in values:
            histogram.note(value)
    assert Counter(one.counts) + Counter(two.counts) == Counter(both.counts)


@few
@given(st.lists(VALUES), st.sampled_from([1, 2, 4, 8]))
def test_coarser_buckets_hold_the_same_values(values, step):
    histogram = Histogram()
    for value in values:
        histogram.note(value)
    found = coarser(histogram.counts, step)
    expected = Counter()
    for value in values:
        expected[next(at for at in range(0, 400, step) if bucket_of(value) <= at)] += 1
    assert found == expected
    assert all(bounds_of(bucket, step)[0] < bounds_of(bucket)[1] for bucket in found)


def test_what_was_taken_is_counted_no_more():
    histogram = Histogram()
    histogram.note(3, 5)
    assert histogram.take() == {7: 5}
    assert histogram.take() == {}
