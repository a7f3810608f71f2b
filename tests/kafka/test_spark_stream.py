"""What is pending as a stream of Spark: exactly, each batch under one id, and marked as done by whoever may."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from aiokafka.admin import NewTopic, RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from aiogroup.admin import list_members
from aiogroup.spark import drain, pending_ranges, settle
from tests.support.kafka import eventually
from tests.support.programs import ROOT
from tests.support.spark import access, commit_explicitly, conf, leave_behind, run
from tests.support.spark_stream import rows_of, start_stream, write_to, written

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


def start(spark, place, checkpoint, process, *, trigger=None, **more):
    return start_stream(spark, options(place, **more), checkpoint, process, trigger or {"availableNow": True})


class Batches:
    """A function for `foreachBatch` that keeps what it was given, by batch id, and then does something."""

    def __init__(self, then=lambda: None):
        self.kept = {}
        self.then = then

    def __call__(self, frame, number):
        self.kept.setdefault(number, []).append(rows_of(frame))
        self.then()

    def all(self):
        return sorted(row for each in self.kept.values() for rows in each for row in rows)


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


async def members_of(place):
    return await list_members(f"{place.group}.catchup", bootstrap_servers=place.cluster.bootstrap_servers)


def test_available_now_drains_what_is_pending_and_ends(spark, place, tmp_path):
    run(leave_behind(place, PENDING, live=160))
    batches = Batches()
    for _ in range(2):
        query = start(spark, place, tmp_path, batches, task_records="20")
        assert query.awaitTermination(120)
        left = settle(query, options(place))
        assert not any(each.ranges for each in left.values())
        assert left_of(place) == {}
        assert run(members_of(place)) == ()
    assert batches.kept == {0: [offsets(PENDING)]}  # the second run found nothing, and had no batch


def test_the_next_run_marks_what_the_last_one_has_read(spark, make_place, unique_name, tmp_path):
    """Markers and an aborted record are done, too."""
    place = make_place()

    async def produce():
        async with place.producer(transactional_id=unique_name("id")) as producer:
            for values, ends in (("12", "commit"), ("45", "abort"), ("7", "commit")):  # markers at 2, 5 and 7
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(place.topic, value.encode(), partition=0)
                await getattr(producer, f"{ends}_transaction")()

    run(produce())
    run(leave_behind(place, {0: [(0, 8)]}, live=8, read_committed=True))
    batches = Batches()
    assert start(spark, place, tmp_path, batches).awaitTermination(120)
    assert left_of(place) == {0: ((0, 8),)}
    assert start(spark, place, tmp_path, batches).awaitTermination(120)
    assert left_of(place) == {}
    assert batches.kept == {0: [[(0, offset) for offset in (0, 1, 6)]], 1: [[]]}


def test_a_failed_batch_is_read_again_as_it_was_but_for_what_retention_has_deleted(spark, place, tmp_path):
    token = run(leave_behind(place, PENDING, live=160))
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        start(spark, place, tmp_path, Batches(lambda: 1 / 0)).awaitTermination(120)
    more = {**PENDING, 0: [*PENDING[0], (160, 170)]}
    run(leave_behind(place, more, live=170, id=token))
    run(delete_before(place, 1, 20))
    batches, left = Batches(), []
    for _ in range(2):  # Spark makes one batch in a run, and this is the one that has failed
        query = start(spark, place, tmp_path, batches)
        assert query.awaitTermination(120)
        settle(query, options(place))
        left.append(left_of(place))
    assert batches.kept == {0: [offsets({**PENDING, 1: [(20, 150)]})], 1: [offsets({0: [(160, 170)]})]}
    assert left == [{0: ((160, 170),)}, {}]


async def delete_before(place, partition, offset):
    async with place.admin() as admin:
        await admin.delete_records({place.tp(partition): RecordsToDelete(offset)})


@pytest.mark.parametrize(
    ("step", "again"),
    [
        pytest.param("read", 1, marks=pytest.mark.thorough),
        ("written", 2),
        pytest.param("ended", 1, marks=pytest.mark.thorough),
    ],
)
def test_a_driver_killed_at_a_step_repeats_the_same_batch_or_none(spark, place, tmp_path, step, again):
    run(leave_behind(place, PENDING, live=160))
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    arguments = [json.dumps(options(place)), str(checkpoint), str(out), step]
    victim = subprocess.run([sys.executable, "-m", "tests.support.spark_stream", *arguments], cwd=ROOT, check=False)
    assert victim.returncode == -signal.SIGKILL
    assert left_of(place) == {p: tuple(pairs) for p, pairs in PENDING.items()}
    query = start(spark, place, checkpoint, write_to(out))
    assert query.awaitTermination(120)
    assert {number: batches for number, batches in written(out).items() if batches != [[]]} == {
        0: [offsets(PENDING)] * again
    }
    settle(query, options(place))
    assert left_of(place) == {}


def test_a_token_that_changed_meanwhile_is_not_overwritten(spark, place, tmp_path):
    run(leave_behind(place, PENDING, live=160))
    anew = {0: [(10, 60)], 1: [(5, 160)]}
    query = start(spark, place, tmp_path, Batches(lambda: run(leave_behind(place, anew, live=160))))
    assert query.awaitTermination(120)
    left = settle(query, options(place))
    assert {tp.partition: each.ranges for tp, each in left.items()} == {p: tuple(pairs) for p, pairs in anew.items()}
    batches = Batches()
    query = start(spark, place, tmp_path, batches)
    assert query.awaitTermination(120)
    assert batches.kept == {1: [offsets(anew)]}
    assert left_of(place) == {p: tuple(pairs) for p, pairs in anew.items()}  # the first batch was not marked in it
    settle(query, options(place))
    assert left_of(place) == {}


def test_a_stream_goes_on_beside_a_drain_and_its_secrets_are_nowhere(spark, place, tmp_path, capfd):
    run(leave_behind(place, PENDING, live=160))
    file = tmp_path / "client.properties"
    file.write_text("ssl.truststore.password=hush-file\n")
    more = {"command_config": str(file), "ssl_key_password": "hush-option"}
    with ThreadPoolExecutor() as pool:
        drains = []

        def drain_beside():
            if not drains:  # it joins, and has to wait for what the stream is at work on
                drains.append(pool.submit(drain, spark, lambda frame: frame.count(), **access(place)))
                run(eventually(two_members, within_s=60))

        async def two_members():
            return len(await members_of(place)) == 2

        batches = Batches(drain_beside)
        query = start(spark, place, tmp_path / "checkpoint", batches, trigger={"processingTime": "1 second"}, **more)
        try:
            run(eventually(lambda: left_of(place) == {} or query.exception(), within_s=120))
            assert drains[0].result(60).record_count == 0
            later = {0: [(130, 170)], 1: [(150, 151)]}  # another crash
            run(leave_behind(place, later, live=170))
            run(eventually(lambda: left_of(place) == {} or query.exception(), within_s=120))
            assert query.exception() is None
            with pytest.raises(ValueError, match="the query is running"):
                settle(query, options(place))
            query.explain(extended=True)
            told = f"{query.lastProgress.json}{capfd.readouterr()}"
        finally:
            query.stop()
    assert batches.all() == sorted(offsets(PENDING) + offsets(later))
    run(eventually(lambda: gone(place), within_s=20))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert place.topic.encode() in kept
    assert "hush" not in f"{told}{kept}"


async def gone(place):
    return await members_of(place) == ()


@pytest.mark.thorough
def test_a_topic_that_was_made_anew_ends_the_query(spark, place, tmp_path):
    run(leave_behind(place, PENDING, live=160))
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        start(spark, place, tmp_path, Batches(lambda: 1 / 0)).awaitTermination(120)

    async def make_anew():
        async with place.admin() as admin:
            await admin.delete_topics([place.topic])
            await eventually(partial(made, admin), within_s=30)

    async def made(admin):
        (_, code, *_), *_ = (await admin.create_topics([NewTopic(place.topic, 2, 1)])).topic_errors
        return code == 0

    run(make_anew())
    with pytest.raises(StreamingQueryException, match="TopicRecreatedError"):
        start(spark, place, tmp_path, Batches()).awaitTermination(120)


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from aiogroup.spark import AiogroupDataSource, settle

told = json.loads(sys.argv[1])
builder = SparkSession.builder.remote("local[2]")
for name, value in told["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(AiogroupDataSource)
frame = spark.readStream.format("aiogroup").options(**told["options"]).load().select("partition", "offset")
query = (
    frame.writeStream.format("parquet").option("path", told["path"] + "/out")
    .option("checkpointLocation", told["path"] + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination(120)
left = settle(query, told["options"])
print(json.dumps({
    "kind": type(query).__module__,
    "left": sum(each.record_count for each in left.values()),
    "parquet": sorted(list(row) for row in spark.read.parquet(told["path"] + "/out").collect()),
}))
spark.stop()
"""


def test_over_connect(spark, place, tmp_path):  # `spark` skips it where there is no Spark
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    pytest.importorskip("pandas", reason="pyspark[connect] is not installed")
    run(leave_behind(place, PENDING, live=160))
    told = {"options": options(place), "path": str(tmp_path), "conf": conf()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(told)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in said["kind"]
    assert said["left"] == 0
    assert said["parquet"] == [list(row) for row in offsets(PENDING)]
    assert left_of(place) == {}
