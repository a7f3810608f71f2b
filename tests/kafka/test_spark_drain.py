"""Spark drains what a service has left: exactly the ranges, complete, and committed as done for the service to read."""

from __future__ import annotations

import pytest

from aiogroup.spark import drain, pending_ranges, read_ranges
from tests.support.spark import access, leave_behind, run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def offsets_in(frame):
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


class Kept:
    """A `process` that keeps what it was given."""

    def __init__(self):
        self.slices = []

    def __call__(self, frame):
        self.slices.append(offsets_in(frame))

    def all(self):
        return sorted(offset for each in self.slices for offset in each)


@pytest.fixture
def place(make_place):
    place = make_place(2)
    for partition in range(2):
        run(place.produce(range(200), partition))
    return place


def expected(ranges):
    return sorted((p, offset) for p, pairs in ranges.items() for start, end in pairs for offset in range(start, end))


def test_ranges_are_read_exactly(spark, place):
    ranges = {place.tp(0): [(10, 60), (60, 61), (100, 130)], place.tp(1): [(5, 6)]}
    frame = read_ranges(spark, ranges, bootstrap_servers=place.cluster.bootstrap_servers, task_records=7)
    rows = frame.collect()
    assert sorted((row.partition, row.offset) for row in rows) == expected(
        {tp.partition: pairs for tp, pairs in ranges.items()}
    )
    assert {row.slice for row in rows if row.offset in (10, 60)} == {
        f"{place.topic}-0-10-60",
        f"{place.topic}-0-60-61",
    }
    assert all(row.value.decode() == str(row.offset) for row in rows)
    assert frame.rdd.getNumPartitions() >= 80 // 7


def test_what_is_pending_is_drained_once_and_committed_as_done(spark, place):
    pending = {0: [(10, 60), (100, 130)], 1: [(5, 150)]}
    run(leave_behind(place, pending, live=160))
    kept, told = Kept(), []
    report = drain(spark, kept, **access(place), slice_records=60, on_progress=told.append)
    assert kept.all() == expected(pending)
    assert max(len(each) for each in kept.slices) == 120
    assert report.is_complete
    assert (report.record_count, report.missing.total_count, report.dropped_count) == (225, 0, 0)
    assert {tp: each.done for tp, each in pending_ranges(**access(place)).items()} == {
        place.tp(0): ((10, 60), (100, 130)),
        place.tp(1): ((5, 150),),
    }
    assert [each.left_count for each in told] == [105, 25, 0]
    assert run(place.committed(0)) == 10  # the group's own commit is the service's
    again = Kept()
    assert drain(spark, again, **access(place)).slice_count == 0
    assert again.slices == []
