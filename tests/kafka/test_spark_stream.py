"""What is pending as a stream of Spark: exactly, each batch under one id, and marked as done by whoever may."""

from __future__ import annotations

import pytest
from aiokafka.structs import OffsetAndMetadata

from aiogroup.spark import AiogroupDataSource, drain, pending_ranges, settle
from tests.support.spark import access, commit_explicitly, leave_behind, run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PENDING = {0: [(10, 60), (100, 130)], 1: [(5, 150)]}


def options(place, **more):
    there = access(place)
    return {
        "bootstrap.servers": there["bootstrap_servers"],
        "group": there["group_id"],
        "topics": there["topics"],
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def offsets(pending):
    return sorted((p, offset) for p, pairs in pending.items() for start, end in pairs for offset in range(start, end))


class Batches:
    """A function for `foreachBatch` that keeps what it was given, by batch id."""

    def __init__(self, then=lambda: None):
        self.kept = {}
        self.then = then

    def __call__(self, frame, number):
        rows = frame.select("partition", "offset").collect()
        self.kept.setdefault(number, []).append(sorted(map(tuple, rows)))
        self.then()

    def all(self):
        return sorted(row for each in self.kept.values() for rows in each for row in rows)


def start(spark, place, checkpoint, process, *, trigger=None, **more):
    spark.dataSource.register(AiogroupDataSource)
    return (
        spark.readStream.format("aiogroup")
        .options(**options(place, **more))
        .load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )


@pytest.fixture
def place(make_place):
    """200 records in each of two partitions, all of them read by a group that left nothing to jobs."""
    place = make_place(2)
    for partition in range(2):
        run(place.produce(range(200), partition))
    run(commit_explicitly(place, {place.tp(partition): OffsetAndMetadata(200, "") for partition in range(2)}))
    return place


def left_of(place):
    return {tp.partition: each.ranges for tp, each in pending_ranges(**access(place)).items() if each.ranges}


def test_available_now_drains_what_is_pending_and_ends(spark, place, tmp_path):
    run(leave_behind(place, PENDING, live=160))
    batches = Batches()
    for _ in range(3):
        query = start(spark, place, tmp_path, batches)
        assert query.awaitTermination(60)
        assert batches.all() == offsets(PENDING)
        left = settle(query, options(place))
        assert all(each.ranges == () for each in left.values())
        assert left_of(place) == {}
