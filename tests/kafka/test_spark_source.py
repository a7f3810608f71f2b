"""The backlog as a data source of Spark: in classic sessions, over Connect, and in SQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from aiogroup.spark import AiogroupDataSource, PendingDataSource, pending_ranges
from tests.support.programs import ROOT
from tests.support.spark import access, commit_explicitly, conf, leave_behind, run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

COLUMNS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>,slice:string>"
)


def options(place, **more):
    there = access(place)
    return {
        "bootstrap.servers": there["bootstrap_servers"],
        "group": there["group_id"],
        "topics": there["topics"],
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def backlog(spark, place, name="aiogroup", **more):
    spark.dataSource.register(AiogroupDataSource)
    spark.dataSource.register(PendingDataSource)
    return spark.read.format(name).options(**options(place, **more)).load()


@pytest.fixture
def place(make_place):
    """200 records in each of two partitions, all of them read by a group that left nothing to jobs."""
    place = make_place(2)
    for partition in range(2):
        run(place.produce(range(200), partition))
    run(commit_explicitly(place, {place.tp(partition): OffsetAndMetadata(200, "") for partition in range(2)}))
    return place


async def produce_one(place, **record):
    async with place.producer() as producer:
        await producer.send_and_wait(place.topic, partition=0, **record)


def test_a_time_that_spark_cannot_keep_is_null_and_the_record_is_read(spark, make_place):
    """As of a producer that takes nanoseconds for milliseconds, which brokers up to 3.5 accept."""
    place = make_place(**{"message.timestamp.after.max.ms": str(2**63 - 1)})
    run(place.produce(range(2), 0))
    run(produce_one(place, value=b"odd", timestamp_ms=1_790_000_000_000_000_000))
    run(leave_behind(place, {0: [(0, 3)]}, live=3))
    rows = backlog(spark, place).orderBy("offset").collect()
    assert [(row.offset, row.timestamp is None) for row in rows] == [(0, False), (1, False), (2, True)]


def test_what_is_pending_is_read_and_stays_pending(spark, place):
    pending = {0: [(10, 60), (100, 130)], 1: [(5, 150)]}
    run(leave_behind(place, pending, live=160))
    frame = backlog(spark, place, task_records="20")
    assert frame.schema.simpleString() == COLUMNS
    rows = frame.collect()
    assert sorted((row.partition, row.offset) for row in rows) == sorted(
        (partition, offset) for partition, pairs in pending.items() for pair in pairs for offset in range(*pair)
    )
    assert all(row.value == str(row.offset).encode() and row.topic == place.topic for row in rows)
    assert {row.slice for row in rows if row.partition == 0} == {f"{place.topic}-0-10-60", f"{place.topic}-0-100-130"}
    assert frame.rdd.getNumPartitions() >= 225 // 20
    assert sum(each.record_count for each in pending_ranges(**access(place)).values()) == 225


def test_a_record_is_as_sparks_own_kafka_source_gives_it(spark, place):
    at_ms = 1_700_000_000_123
    run(produce_one(place, value=None, key=b"k", timestamp_ms=at_ms, headers=[("a", b"1"), ("a", b""), ("b", None)]))
    run(produce_one(place, value=b"", timestamp_ms=0))
    run(leave_behind(place, {0: [(200, 202)]}, live=202))
    own = {row.offset: row for row in backlog(spark, place).collect()}
    assert (own[200].key, own[200].value, own[201].key, own[201].value) == (b"k", None, None, b"")
    assert own[200].timestamp.astimezone(UTC) == datetime.fromtimestamp(at_ms / 1_000, UTC)
    connector = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", place.cluster.bootstrap_servers)
        .option("subscribe", place.topic)
        .option("includeHeaders", "true")
        .load()
        .where("partition = 0 AND offset >= 200")
    )
    theirs = {row.offset: row.asDict(recursive=True) for row in connector.collect()}
    assert {offset: {**row.asDict(recursive=True), "slice": None} for offset, row in own.items()} == {
        offset: {**row, "slice": None} for offset, row in theirs.items()
    }


def test_the_ranges_are_a_table(spark, place):
    run(leave_behind(place, {0: [(10, 60), (100, 130)], 1: [(5, 150)]}, live=160))
    run(delete_before(place, 0, 20))
    rows = backlog(spark, place, "aiogroup.pending").collect()
    assert [tuple(row)[1:6] for row in rows] == [(0, 10, 60, 40, 20), (0, 100, 130, 30, 20), (1, 5, 150, 145, 0)]
    assert {row.since.astimezone(UTC).timestamp() for row in rows} == {1_750_000_000}


async def delete_before(place, partition, offset):
    async with place.admin() as admin:
        await admin.delete_records({place.tp(partition): RecordsToDelete(offset)})


def test_what_retention_has_deleted_is_left_out_and_each_action_looks_anew(spark, place):
    run(leave_behind(place, {0: [(10, 60)]}, live=60))
    frame = backlog(spark, place)

    def count():
        """From 4.1 on Spark keeps what the first action of a DataFrame has found."""
        return (frame if spark.version.startswith("4.0.") else backlog(spark, place)).count()

    assert count() == 50
    run(delete_before(place, 0, 20))
    assert count() == 40
    run(leave_behind(place, {0: [(30, 35)]}, live=60))
    assert count() == 5
    run(commit_explicitly(place, {place.tp(0): OffsetAndMetadata(200, "")}))
    assert count() == 0


def test_sql_reads_it(spark, place):
    run(leave_behind(place, {0: [(10, 60)], 1: [(0, 5)]}, live=60))
    backlog(spark, place)
    given = ", ".join(f"'{name}' '{value}'" for name, value in options(place).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW backlog USING aiogroup OPTIONS ({given})")
    found = spark.sql("SELECT partition, count(*), min(offset), max(offset) FROM backlog GROUP BY partition ORDER BY 1")
    assert [tuple(row) for row in found.collect()] == [(0, 50, 10, 59), (1, 5, 0, 4)]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"sasl_password": "hush"}, "option 'sasl.password' is not known: group, topics, catchup.group"),
        ({"group": "nobody"}, "GroupNotFoundError"),
        ({"topics": "nowhere"}, "TopicGoneError"),
        ({"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": "2000"}, "127.0.0.1:1"),
    ],
)
def test_a_wrong_option_is_told(spark, place, more, match):
    run(leave_behind(place, {0: [(10, 60)]}, live=60))
    with pytest.raises(Exception, match=match) as caught:
        backlog(spark, place, **more).count()
    assert "hush" not in str(caught.value)


def test_a_group_that_is_behind_without_a_token_is_an_error(spark, place):
    run(commit_explicitly(place, {place.tp(0): OffsetAndMetadata(150, "")}))
    for name in ("aiogroup", "aiogroup.pending"):
        with pytest.raises(Exception, match="has committed 150 and is 50 offsets behind, and no token says"):
            backlog(spark, place, name).count()


def test_what_is_secret_is_in_a_file_and_in_no_plan(spark, place, tmp_path, capfd):
    run(leave_behind(place, {0: [(10, 60)]}, live=60))
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.password=hush-hush\nsecurity.protocol=PLAINTEXT\n")
    secret = {"ssl_key_password": "hush-hush", "security_protocol": "PLAINTEXT"}
    for more in ({"command_config": str(file)}, secret):
        frame = backlog(spark, place, **more)
        assert frame.count() == 50
        frame.explain(mode="extended")
        frame.explain(mode="cost")
        assert "hush-hush" not in str(capfd.readouterr())


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from aiogroup.spark import AiogroupDataSource, PendingDataSource

told = json.loads(sys.argv[1])
builder = SparkSession.builder.remote("local[2]")
for name, value in told["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(AiogroupDataSource)
spark.dataSource.register(PendingDataSource)
frame = spark.read.format("aiogroup").options(**told["options"]).load()
ranges = spark.read.format("aiogroup.pending").options(**told["options"]).load()
frame.write.parquet(told["path"])
frame.createOrReplaceTempView("backlog")
print(json.dumps({
    "kind": type(frame).__module__,
    "count": frame.count(),
    "sql": [list(row) for row in spark.sql("SELECT partition, count(*) FROM backlog GROUP BY 1 ORDER BY 1").collect()],
    "pending": [list(row)[:5] for row in ranges.collect()],
    "parquet": sorted([row.partition, row.offset] for row in spark.read.parquet(told["path"]).collect()),
}))
spark.stop()
"""


def test_over_connect(spark, place, tmp_path):  # `spark` skips it where there is no Spark
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    pytest.importorskip("pandas", reason="pyspark[connect] is not installed")
    run(leave_behind(place, {0: [(10, 60)], 1: [(0, 5)]}, live=60))
    told = {"options": options(place), "path": str(tmp_path / "out"), "conf": conf()}
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
    assert (said["count"], said["sql"]) == (55, [[0, 50], [1, 5]])
    assert said["pending"] == [[place.topic, 0, 10, 60, 50], [place.topic, 1, 0, 5, 5]]
    assert said["parquet"] == [[0, offset] for offset in range(10, 60)] + [[1, offset] for offset in range(5)]
