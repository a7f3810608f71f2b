"""Spark drains what a service has left: exactly the ranges, complete, and committed as done for the service to read."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import OffsetAndMetadata
from anyio.from_thread import start_blocking_portal

from aiogroup import ConfigError, GroupError, RecordDeserializationError, TopicPartition
from aiogroup._core.recovery.token import read_done
from aiogroup._core.telemetry import events
from aiogroup.spark import (
    ClaimLostError,
    IncompleteError,
    Missing,
    NotProcessedError,
    claims,
    drain,
    pending_ranges,
    read_ranges,
    rounds,
)
from aiogroup.spark.access import Access
from aiogroup.spark.completeness import WatchedByListener
from aiogroup.spark.gaps import Gap, explain
from aiogroup.spark.readers import reading_of
from aiogroup.spark.slices import pieces_of
from tests.support.kafka import Ears, eventually
from tests.support.recovery import MODE
from tests.support.spark import access, commit_explicitly, leave_behind, members_of, place_of, run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


DESCRIPTION = "spark.job.description"


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
    run(commit_explicitly(place, {place.tp(partition): OffsetAndMetadata(200, "") for partition in range(2)}))
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
    report = drain(spark, kept, **access(place), round_records=120, on_progress=told.append)
    assert kept.all() == expected(pending)
    assert max(len(each) for each in kept.slices) == 120
    assert report.is_complete
    assert (report.record_count, report.missing.total_count, report.dropped_count) == (225, 0, 0)
    assert {tp: each.done for tp, each in pending_ranges(**access(place)).items()} == {
        place.tp(0): ((10, 60), (100, 130)),
        place.tp(1): ((5, 150),),
    }
    assert [each.left_count for each in told] == [120, 0]
    assert run(place.committed(0)) == 10  # the group's own commit is the service's
    assert abs(run(said_done(place)).at_s - time.time()) < 300
    again = Kept()
    assert drain(spark, again, **access(place)).slice_count == 0
    assert again.slices == []


def test_people_see_what_a_round_is_at(spark, place, tmp_path, monkeypatch):
    """Its jobs have a description, and while it lasts it is told how many of its tasks have ended."""
    monkeypatch.setattr(rounds, "ASK_S", 0.01)
    run(leave_behind(place, {0: [(10, 60)], 1: [(5, 150)]}, live=160))
    names, told, is_told = [], [], tmp_path / "is_told"

    def process(frame):
        names.append(spark.sparkContext.getLocalProperty(DESCRIPTION))
        frame.foreach(first_when(is_told))

    def tell(each):
        told.append(each)
        is_told.touch()

    drain(spark, process, **access(place), round_records=150, task_records=10, on_round=tell)
    assert names == [
        f"round 1 of 2: {place.topic} 0-1, 120 offsets",
        f"round 2 of 2: {place.topic} 1, 75 offsets",
    ]
    assert told[0].name == "round 1 of 2"
    assert 0 < told[0].tasks_done < told[0].tasks_count
    assert told[0].offsets_count == 120
    assert spark.sparkContext.getLocalProperty(DESCRIPTION) is None
    assert not [each for each in threading.enumerate() if each.name == "aiogroup round"]


def first_when(path):
    """A function for each row: the first of partition 1 lasts until there is this file."""

    def of_row(row):
        while row.partition == 1 and row.offset == 5 and not path.exists():
            time.sleep(0.01)

    return of_row


def test_the_driver_joins_while_spark_starts(spark, place):
    run(leave_behind(place, {0: [(0, 40)]}, live=60))

    def start():
        run(eventually(lambda: members_of(place), within_s=30))
        return spark

    assert drain(start, Kept(), **access(place)).record_count == 40


def test_a_driver_that_may_not_join_says_so_and_one_without_spark_gives_its_claim_back(spark, place):
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    kept = Kept()
    with pytest.raises(GroupError, match="refuses session_timeout_ms"):
        drain(lambda: spark, kept, **access(place), session_timeout_ms=10**9)

    def start(error):
        run(eventually(lambda: members_of(place), within_s=30))
        raise error

    for error in (ConnectionError("the cluster is full"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            drain(partial(start, error), kept, **access(place))
        assert run(members_of(place)) == ()
    assert kept.slices == []


async def said_done(place):
    """What the second commit log says of the first partition."""
    async with place.admin() as admin:
        found = (await admin.list_consumer_group_offsets(f"{place.group}.catchup"))[place.tp()]
    return read_done(found.metadata, await place_of(place))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("keep", [None, "MEMORY_AND_DISK"])
def test_a_job_leaves_nothing_behind_in_the_session(spark, place, keep, fails):
    """No listener, which Spark would call after each of the application's queries for ever, and no kept records."""
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    before, seen = left_in(spark), []

    def process(frame):
        seen.append(left_in(spark))
        frame.count()
        if fails and len(seen) == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        drain(spark, process, **access(place), keep=keep, slice_records=20)
    listeners, kept_count = before
    assert seen == [(listeners + 1, kept_count + bool(keep))] * 2
    assert left_in(spark) == before


def test_the_session_may_have_other_listeners(spark):
    """Spark compares the one that goes with each that came before. Nothing is read here."""
    pieces, there = pieces_of({TopicPartition("orders", 0): [(0, 10)]}), Access.of("127.0.0.1:1", "billing", "orders")
    first, second = (WatchedByListener(spark, reading_of(spark, pieces, there, 10, "aiogroup")) for _ in range(2))
    counts = [left_in(spark)[0]]
    with first:
        with second:
            counts.append(left_in(spark)[0])
        counts.append(left_in(spark)[0])
    assert [count - counts[0] for count in (*counts, left_in(spark)[0])] == [0, 2, 1, 0]


def test_a_job_that_is_interrupted_while_it_joins_gives_its_claim_back(spark, place, monkeypatch):
    """Or another driver would wait until its session ends."""
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    on_assigned, interrupts = claims.Claims.on_partitions_assigned, []

    async def interrupted(self, assigned):
        if not interrupts:
            interrupts.append(assigned)
            os.kill(os.getpid(), signal.SIGINT)
        await on_assigned(self, assigned)

    monkeypatch.setattr(claims.Claims, "on_partitions_assigned", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drain(spark, Kept(), **access(place))
    assert run(members_of(place)) == ()


@pytest.mark.parametrize("keep", [None, "MEMORY_AND_DISK"])
def test_an_interrupted_job_ends_and_isolates_nothing(spark, place, keep):
    """Ctrl-C while Spark is at work."""
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    before, tried = left_in(spark), []

    def process(frame):
        tried.append(frame)
        with TemporaryDirectory() as folder:
            begun = Path(folder, "begun")
            watching = threading.Thread(target=_interrupt_when, args=(begun,))
            watching.start()
            try:
                frame.foreach(busy_while(begun))
            finally:
                watching.join()

    with pytest.raises(KeyboardInterrupt):
        drain(spark, process, **access(place), keep=keep, on_error="isolate")
    assert len(tried) == 1
    assert left_in(spark) == before
    assert run(members_of(place)) == ()
    assert pending_ranges(**access(place))[place.tp(0)].done == ()


def _interrupt_when(path):
    run(eventually(path.exists, within_s=60))
    os.kill(os.getpid(), signal.SIGINT)


def busy_while(path):
    """A function for each row that lasts until the folder of the file is gone, which it makes."""

    def busy(row):
        if path.parent.exists():
            path.touch()
        while path.exists():
            time.sleep(0.01)

    return busy


def left_in(spark):
    """How many listeners and how many kept RDDs."""
    session, context = attrgetter("_jsparkSession", "sparkContext._jsc")(spark)
    return len(session.listenerManager().listListeners()), context.getPersistentRDDs().size()


def test_two_drivers_share_the_partitions(spark, make_place):
    place = make_place(4)
    for partition in range(4):
        run(place.produce(range(90), partition))
    pending = {partition: [(0, 80)] for partition in range(4)}
    run(leave_behind(place, pending, live=80))
    kept, told, reports, begun = (Kept(), Kept()), ([], []), {}, threading.Event()

    def process(number, frame):
        kept[number](frame)
        if number == 0 and len(kept[0].slices) == 2:
            begun.set()
            run(eventually(lambda: may_share(place), within_s=60))

    def work(number):
        given = {"slice_records": 10, "session_timeout_ms": 3_000, "on_progress": told[number].append}
        reports[number] = drain(spark, partial(process, number), **access(place), **given)

    first, second = (threading.Thread(target=work, args=(number,)) for number in range(2))
    first.start()
    assert begun.wait(60)
    second.start()
    first.join(120)
    second.join(120)
    assert [reports[number].is_complete for number in range(2)] == [True, True]
    assert sum(report.dropped_count for report in reports.values()) == 0
    # Nothing twice: a partition changes hands between two slices. And the second took what the first did not keep.
    assert sorted(kept[0].all() + kept[1].all()) == expected(pending)
    assert len({partition for partition, _ in kept[1].all()}) == 2
    # While it waited, the second one said for whom.
    assert any(
        "waiting for aiogroup-spark at 127.0.0.1, which holds " in str(each).replace("/", "") for each in told[1]
    )


async def may_share(place):
    """Two members, and the first one has been told to give two of the four partitions up."""
    members = await members_of(place)
    return len(members) == 2 and sum(len(each.partitions) for each in members) == 2


@pytest.mark.parametrize("slice_records", [1_000, 50], ids=["the first slice", "a later slice"])
def test_a_service_takes_nothing_back_while_a_job_is_at_work(spark, place, monkeypatch, slice_records):
    """A slice that lasts longer than `parallel_handoff_timeout_ms`: the driver says each minute that it is at work."""
    monkeypatch.setattr(claims, "RENEW_MS", 500)
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(100, "")}))
    ears, instants, slices = Ears(), [], []
    left = {"parallel_handoff": True, "parallel_handoff_timeout_ms": 4_000, "enable_auto_commit": False}

    async def instant():
        said = await said_done(place)
        return said is not None and said.at_s

    def process(frame):
        slices.append(offsets_in(frame))
        if sum(map(len, slices)) == 100:
            instants.append(run(eventually(instant)))
            run(eventually(lambda: is_later(6), within_s=30))

    async def is_later(by_s):
        return await instant() >= instants[0] + by_s

    with start_blocking_portal() as service:
        consumer = place.consumer(**MODE, **left, observers=[ears])
        with service.wrap_async_context_manager(consumer):
            service.call(eventually, lambda: consumer.assignment())
            report = drain(spark, process, **access(place), slice_records=slice_records)
            service.call(eventually, lambda: not consumer.child_consumer_is_alive())
    assert (report.record_count, report.dropped_count, report.is_complete) == (100, 0, True)
    assert ears.heard(events.HandOffOverdue) == []


def test_a_result_under_another_id_is_dropped_and_repeated(spark, place):
    pending = {0: [(0, 50)]}
    run(leave_behind(place, pending, live=60))
    kept = Kept()

    def process(frame):
        kept(frame)
        if len(kept.slices) == 1:
            run(leave_behind(place, {0: [(0, 50), (50, 55)]}, live=60))  # the service recovered, under a new id

    report = drain(spark, process, **access(place))
    assert (report.dropped_count, report.slice_count, report.is_complete) == (1, 1, True)
    assert [len(each) for each in kept.slices] == [50, 55]


def test_a_group_that_is_reset_while_the_job_runs_is_not_called_done(spark, place):
    """Nobody's result counts any more, the service is down, and the records are read by nobody: that is told."""
    run(leave_behind(place, {0: [(0, 50)]}, live=60))

    def process(frame):
        frame.count()
        run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(5, "")}))

    report = drain(spark, process, **access(place))
    assert (report.dropped_count, report.left_count, report.is_complete) == (1, 0, False)
    (lagging,) = report.lagging.values()
    assert (lagging.tp, lagging.committed, lagging.lag_count) == (place.tp(), 5, 195)


def test_a_token_that_changes_each_time_ends_the_job(spark, place):
    run(leave_behind(place, {0: [(0, 5)]}, live=60))
    with pytest.raises(ClaimLostError, match="3 results in a row"):
        drain(spark, lambda frame: (frame.count(), run(leave_behind(place, {0: [(0, 5)]}, live=60))), **access(place))
    assert pending_ranges(**access(place))[place.tp(0)].done == ()


@pytest.mark.parametrize(
    ("process", "error", "match"),
    [
        (lambda frame: 1 / 0, ZeroDivisionError, "division"),
        (lambda frame: frame.where("offset > 3"), NotProcessedError, "without an action"),
        (lambda frame: frame.limit(3).collect(), NotProcessedError, "more than 0 of the 50 offsets"),
        (lambda frame: frame.sparkSession.range(1).count(), NotProcessedError, "more than 0 of the 50"),
        (lambda frame: frame.join(_lookup(frame), "partition"), NotProcessedError, "more than 0 of the 50"),
        (lambda frame: frame.rdd.take(1), NotProcessedError, "read more than"),
        (lambda frame: next(frame.toLocalIterator()), NotProcessedError, "read more than"),
        (lambda frame: frame.select("value").foreachPartition(list), NotProcessedError, "then give keep"),
        (lambda frame: _in_a_thread(frame), NotProcessedError, "then give keep"),
        (lambda frame: _thrice(frame), NotProcessedError, "to have read more than"),
        (lambda frame: _thrice_from_the_start(frame), NotProcessedError, "to have read more than"),
        (lambda frame: _give_up_after_three(frame), NotProcessedError, "to have read more than"),
        (lambda frame: _twice_coalesced(frame), NotProcessedError, "more than 0 of the 50 .* in a union or coalesced"),
        (lambda frame: _some_of_a_union(frame), NotProcessedError, "more than 0 of the 50 .* in a union or coalesced"),
    ],
    ids=[
        "raises",
        "does nothing",
        "reads a part",
        "counts something else",
        "joins what it has counted, and writes nothing",
        "takes one row",
        "reads the first row",
        "cannot be seen",
        "cannot be seen, in a thread",
        "takes the same rows thrice",
        "reads the first rows thrice",
        "fails thrice in one task",
        "takes three of five partitions twice, which are one",
        "takes three of five partitions, and two of them again",
    ],
)
def test_what_was_not_processed_stays_pending(spark, place, process, error, match):
    run(leave_behind(place, {0: [(0, 50)]}, live=60))
    with pytest.raises(error, match=match):
        drain(spark, process, **access(place), task_records=10)
    assert pending_ranges(**access(place))[place.tp(0)].done == ()


def _thrice(frame):
    """Three actions on its RDD, which read 20 of its 50 records each."""
    for _ in range(3):
        assert len(frame.rdd.take(20)) == 20


def _thrice_from_the_start(frame):
    for _ in range(3):
        assert len(list(islice(frame.toLocalIterator(), 15))) == 15


def _twice_coalesced(frame):
    rdd = frame.rdd.coalesce(2)
    for _ in range(2):
        assert len(frame.sparkSession.sparkContext.runJob(rdd, list, [1])) == 30


def _some_of_a_union(frame):
    rdd = frame.rdd.union(frame.rdd)
    assert len(frame.sparkSession.sparkContext.runJob(rdd, list, [0, 1, 2, 5, 6])) == 50


def _give_up_after_three(frame):
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    def send(rows):
        if any(row.offset == 45 for row in rows):
            raise ConnectionError

    for _ in range(3):
        with suppress(Py4JJavaError, PySparkException):  # the second from Spark 4.3 on
            frame.foreachPartition(send)


def _lookup(frame):
    """A table for a join, which was counted before."""
    lookup = frame.sparkSession.range(3).withColumnRenamed("id", "partition")
    assert lookup.count() == 3
    return lookup


def _beside_others(frame):
    frame.isEmpty()
    frame.first()
    frame.show(2)
    frame.sparkSession.range(1).count()
    return frame.orderBy("offset").groupBy("partition").count().collect()


def _in_a_thread(frame):
    """Another one than that which has the job's group of Spark jobs."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: frame.select("value").foreachPartition(list)).result()


def _under_another_name(frame):
    frame.sparkSession.sparkContext.setJobGroup("mine", "of the application")
    frame.select("value").foreachPartition(list)


def _once_more(frame):
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    def send(rows):
        if any(row.offset == 35 for row in rows) and not flag.exists():
            flag.touch()
            raise ConnectionError

    with TemporaryDirectory() as folder:
        flag = Path(folder, "failed")
        with pytest.raises((Py4JJavaError, PySparkException)):
            frame.foreachPartition(send)
        frame.foreachPartition(list)


def _made_first(frame):
    """As Delta's MERGE: what it reads is materialised by another action than that which is written."""
    made = frame.select("offset").localCheckpoint()
    return made.where("offset < 3").collect()


@pytest.mark.parametrize(
    "process",
    [
        lambda frame: frame.foreachPartition(list),
        lambda frame: frame.rdd.map(len).sum(),
        lambda frame: frame.rdd.zipWithIndex().foreach(len),
        lambda frame: frame.rdd.map(lambda row: (row.offset % 3, 1)).reduceByKey(int.__add__).collect(),
        lambda frame: list(frame.toLocalIterator()),
        _once_more,
        _beside_others,
        _made_first,
    ],
    ids=[
        "foreachPartition",
        "rdd",
        "rdd twice",
        "rdd in a shuffle",
        "iterator",
        "once more",
        "beside actions on a part",
        "made first",
    ],
)
def test_one_action_over_all_records_is_enough_whatever_else_is_run(spark, place, process):
    run(leave_behind(place, {0: [(0, 50)]}, live=60))
    report = drain(spark, process, **access(place), task_records=10)
    assert (report.record_count, report.left_count) == (50, 0)


@pytest.mark.parametrize(
    "process",
    [
        lambda frame: frame.select("value").foreachPartition(list),
        lambda frame: (frame.select("offset").rdd.map(len).sum(), frame.where("offset < 3").collect()),
        lambda frame: frame.collect(),
        _in_a_thread,
        _under_another_name,
    ],
    ids=["rows of another frame", "two sinks", "one action", "in a thread", "in a group of its own"],
)
def test_what_is_kept_may_be_read_in_any_way_and_is_read_from_kafka_once(spark, place, process, capsys):
    run(leave_behind(place, {0: [(0, 50)], 1: [(10, 20)]}, live=60))
    frames = []

    def plan_of(frame):
        frame.select("offset").explain()
        return capsys.readouterr().out

    def process_kept(frame):
        frames.append(frame)
        assert "InMemoryTableScan" in plan_of(frame)
        process(frame)

    report = drain(spark, process_kept, **access(place), keep="MEMORY_AND_DISK")
    assert (report.record_count, report.left_count) == (60, 0)
    assert "InMemoryTableScan" not in plan_of(frames[0])


def _charge(bad, frame):
    """A `process` that cannot do with some of the records."""
    if found := sorted(set(offsets_in(frame)) & bad):
        raise ValueError(f"{len(found)} records are bad")


def test_bad_records_do_not_hold_up_the_others(spark, place):
    run(leave_behind(place, {0: [(0, 50)], 1: [(10, 20), (30, 70)]}, live=70))
    bad, told = {(1, 15), (1, 69)}, []
    report = drain(
        spark, partial(_charge, bad), **access(place), on_error="isolate", slice_records=30, on_progress=told.append
    )
    assert (report.record_count, report.left_count, report.is_complete) == (98, 2, False)
    assert {(each.tp.partition, *each.ranges[0]): str(each.error) for each in report.failed} == {
        (1, 15, 16): "1 records are bad",
        (1, 69, 70): "1 records are bad",
    }
    assert told[-1].left_count == 2
    standing = pending_ranges(**access(place))
    assert {tp.partition: each.ranges for tp, each in standing.items()} == {0: (), 1: ((15, 16), (69, 70))}
    again = drain(spark, partial(_charge, set()), **access(place))
    assert (again.record_count, again.is_complete) == (2, True)


def test_a_sink_that_is_down_ends_a_job_that_isolates(spark, place):
    run(leave_behind(place, {0: [(0, 50)], 1: [(0, 50)]}, live=60))
    attempts = []
    with pytest.raises(ConnectionError, match="attempt 1"):
        drain(spark, partial(_down, attempts), **access(place), on_error="isolate")
    assert len(attempts) == 16
    assert [each.done for each in pending_ranges(**access(place)).values()] == [(), ()]


def _down(attempts, frame):
    attempts.append(frame)
    raise ConnectionError(f"attempt {len(attempts)}")


def test_a_bad_record_that_the_service_has_processed_meanwhile_is_not_waited_for(spark, place):
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    slices = []

    def process(frame):
        slices.append(offsets_in(frame))
        if (0, 25) in slices[-1] and not any((0, 25) in each for each in slices[:-1]):
            run(leave_behind(place, {0: [(20, 40)]}, live=60))
        _charge({(0, 5)}, frame)

    given = {"on_error": "isolate", "slice_records": 20, "others_timeout_ms": 60_000}
    report = drain(spark, process, **access(place), **given)
    assert ([each.ranges for each in report.failed], report.left_count) == ([((5, 6),)], 0)
    assert report.elapsed_ms < 60_000


def test_an_error_of_on_progress_is_no_error_of_the_records(spark, place):
    run(leave_behind(place, {0: [(0, 40)], 1: [(0, 40)]}, live=60))
    kept = Kept()
    with pytest.raises(BrokenPipeError):
        drain(spark, kept, **access(place), on_error="isolate", on_progress=_break_pipe)
    assert len(kept.slices) == 1
    assert [each.ranges for each in pending_ranges(**access(place)).values()] == [(), ()]


def _break_pipe(progress):
    raise BrokenPipeError


def test_a_bad_record_may_raise_an_error_of_ours(spark, place):
    run(leave_behind(place, {0: [(0, 8)]}, live=60))

    def process(frame):
        if (0, 3) in offsets_in(frame):
            raise RecordDeserializationError(place.tp(), 3, "value")

    report = drain(spark, process, **access(place), on_error="isolate")
    assert [(each.ranges, type(each.error)) for each in report.failed] == [(((3, 4),), RecordDeserializationError)]
    assert report.record_count == 7


@pytest.mark.parametrize("on_error", ["stop", "isolate"])
def test_retention_that_goes_on_hides_no_error_of_process(spark, place, on_error):
    """Whatever process raises, a part of its slice has been deleted by then."""
    run(leave_behind(place, {0: [(0, 40)]}, live=60))
    slices = []

    def process(frame):
        slices.append(offsets_in(frame))
        if len(slices) < 6:
            run(_delete_before(place, len(slices)))
        if (0, 30) in slices[-1]:
            raise ValueError("a record is bad")

    if on_error == "stop":
        with pytest.raises(ValueError, match="a record is bad"):
            drain(spark, process, **access(place))
        assert len(slices) == 3
    else:
        report = drain(spark, process, **access(place), on_error=on_error)
        assert ([each.ranges for each in report.failed], report.left_count) == ([((30, 31),)], 1)


async def _delete_before(place, offset):
    async with place.admin() as admin:
        await admin.delete_records({place.tp(): RecordsToDelete(before_offset=offset)}, 10_000)


def test_an_unknown_way_with_errors_is_refused(spark, place):
    with pytest.raises(ConfigError, match="on_error='skip': 'stop' or 'isolate'"):
        drain(spark, lambda frame: None, **access(place), on_error="skip")


@pytest.mark.parametrize("keep", [None, "MEMORY_AND_DISK"])
def test_a_slice_without_a_record_is_done_whatever_process_runs(spark, make_place, unique_name, keep):
    place = make_place()

    async def produce():
        async with place.producer(transactional_id=unique_name("id")) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(place.topic, b"0", partition=0)
            await producer.abort_transaction()

    run(produce())
    run(leave_behind(place, {0: [(0, 2)]}, live=2, read_committed=True))
    report = drain(spark, lambda frame: frame.isEmpty() or 1 / 0, **access(place), keep=keep)
    assert (report.record_count, report.left_count, report.missing.total_count) == (0, 0, 2)


def test_what_is_kept_and_not_used_stays_pending(spark, place):
    run(leave_behind(place, {0: [(0, 50)]}, live=60))
    with pytest.raises(NotProcessedError, match="without an action"):
        drain(spark, lambda frame: None, **access(place), keep="MEMORY_AND_DISK")
    assert pending_ranges(**access(place))[place.tp(0)].done == ()


@pytest.mark.parametrize("keep", ["MEMORY", "NONE"])
def test_a_storage_level_that_keeps_nothing_is_refused(spark, place, keep):
    """With NONE Spark keeps nothing: each action would read Kafka, and nobody would count what it reads."""
    with pytest.raises(ConfigError, match=rf"keep='{keep}': a storage level .*MEMORY_AND_DISK"):
        drain(spark, lambda frame: None, **access(place), keep=keep)


def test_records_that_spark_has_read_again_are_no_fault(spark, place):
    """An executor was lost in a shuffle: the tasks that run again count what they read once more."""
    run(leave_behind(place, {0: [(0, 50)]}, live=60))

    def read_some_twice(frame):
        twice = frame.unionByName(frame.where("offset < 10"))
        twice.collect()

    assert drain(spark, read_some_twice, **access(place)).record_count == 50


def test_a_small_backlog_is_left_to_the_service(spark, place):
    run(leave_behind(place, {0: [(0, 50)], 1: [(0, 10)]}, live=60))
    report = drain(spark, Kept(), **access(place), min_records=61)
    assert (report.slice_count, report.left_count) == (0, 60)


# What is missing is explained.


def test_retention_deleted_a_part(spark, place):
    run(leave_behind(place, {0: [(0, 50), (60, 100)], 1: [(0, 50)]}, live=100))

    async def delete():
        async with place.admin() as admin:
            before = {place.tp(0): 70, place.tp(1): 50}
            await admin.delete_records({tp: RecordsToDelete(before_offset=o) for tp, o in before.items()}, 10_000)

    run(delete())
    kept = Kept()
    report = drain(spark, kept, **access(place))
    assert kept.all() == [(0, offset) for offset in range(70, 100)]
    assert report.missing == Missing(expired_count=110)
    assert report.is_complete


@pytest.mark.parametrize(
    ("service", "level", "records", "missing"),
    [
        ("read_uncommitted", "read_committed", [0, 1, 6], Missing(control_count=3, aborted_count=2)),
        ("read_committed", None, [0, 1, 6], Missing(control_count=3, aborted_count=2)),
        ("read_uncommitted", None, [0, 1, 3, 4, 6], Missing(control_count=3)),
    ],
)
def test_transactions(spark, make_place, unique_name, service, level, records, missing):
    place = make_place()

    async def produce():
        async with place.producer(transactional_id=unique_name("id")) as producer:
            for values, ends in (("12", "commit"), ("45", "abort"), ("7", "commit")):  # markers at 2, 5 and 7
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(place.topic, value.encode(), partition=0)
                await getattr(producer, f"{ends}_transaction")()

    run(produce())
    run(leave_behind(place, {0: [(0, 8)]}, live=8, read_committed=service == "read_committed"))
    kept = Kept()
    report = drain(spark, kept, **access(place), properties={"isolation.level": level} if level else {})
    assert kept.all() == [(0, offset) for offset in records]
    assert report.missing == missing
    assert report.is_complete


def test_a_record_that_is_there_is_no_gap(place):
    """What Spark would have to skip for the job to end: our own consumer finds it."""
    there = Access.of(*access(place).values())
    with pytest.raises(IncompleteError, match="has a record at offset 3, and Spark read none between 3 and 5"):
        run(explain(there, [(place.tp(0), Gap(3, 5))]))


def test_a_compacted_topic(spark, make_place):
    place = make_place(
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        }
    )

    async def compact():
        async with place.producer() as producer:
            for number in range(100):
                await producer.send_and_wait(place.topic, b"%d" % number, key=b"%d" % (number % 10), partition=0)

            async def is_compacted():
                await producer.send_and_wait(place.topic, b"roll", key=b"roll", partition=0)
                consumer = place.unsubscribed(group_id=None)
                async with consumer:
                    consumer.assign([place.tp(0)])
                    return (await consumer.getone()).offset > 50

            await eventually(is_compacted, within_s=60)

    run(compact())
    run(leave_behind(place, {0: [(0, 90)]}, live=90))
    kept = Kept()
    report = drain(spark, kept, **access(place))
    assert report.is_complete
    assert report.record_count == len(kept.all()) < 90
    assert report.missing == Missing(compacted_count=90 - report.record_count)
