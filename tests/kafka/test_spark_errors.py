"""Bad input: each is a clear error that names what to do, and nothing is marked as done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import OffsetAndMetadata

from aiogroup import GroupAuthorizationError, TopicAuthorizationError
from aiogroup.devkafka import Cluster, jars
from aiogroup.errors import ConfigError, GroupNotFoundError
from aiogroup.spark import (
    ForeignTokenError,
    RangeBeyondEndError,
    TopicGoneError,
    TopicRecreatedError,
    UnsupportedSparkError,
    drain,
    make_session,
    pending_ranges,
)
from tests.support.kafka import Place
from tests.support.spark import access, commit_explicitly, conf, leave_behind, members_of, run, why_no_spark

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(make_place):
    place = make_place()
    run(place.produce(range(20)))
    return place


def never(frame):
    raise AssertionError("nothing was to be processed")


def test_a_token_that_another_program_wrote(spark, place):
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(3, "aiogroup/1 something else")}))
    with pytest.raises(ForeignTokenError, match=rf"{place.topic}-0: it is not written as.* Start the service"):
        drain(spark, never, **access(place))


def test_a_token_that_a_mirror_or_an_editor_left(spark, place, make_place):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    other = make_place()
    run(other.produce(range(20)))
    metadata = run(metadata_of(place))
    run(commit_explicitly(other, {other.tp(): OffsetAndMetadata(3, metadata)}))
    with pytest.raises(ForeignTokenError, match="another cluster or topic"):
        pending_ranges(**access(other))
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(4, metadata)}))
    with pytest.raises(ForeignTokenError, match="checksum"):
        drain(spark, never, **access(place))


async def metadata_of(place):
    async with place.admin() as admin:
        return (await admin.list_consumer_group_offsets(place.group))[place.tp()].metadata


def test_a_commit_without_a_token_leaves_nothing_to_jobs_and_is_reported_where_records_are_left(spark, place):
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(3, "the application's own")}))
    standing = pending_ranges(**access(place))
    assert standing == {}
    assert standing.lagging[place.tp()].lag_count == 17
    report = drain(spark, never, **access(place))
    assert not report.is_complete
    assert report.lagging == standing.lagging
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(20, "the application's own")}))
    assert drain(spark, never, **access(place)).is_complete


def test_a_range_beyond_the_logs_end(spark, place):
    run(leave_behind(place, {0: [(3, 21)]}, live=21))
    with pytest.raises(RangeBeyondEndError, match=r"pending up to 21 and ends at 20.*isolation\.level"):
        drain(spark, never, **access(place))
    assert pending_ranges(**access(place))[place.tp()].done == ()


def test_a_group_that_is_not_there(spark, place):
    with pytest.raises(GroupNotFoundError, match=place.group):
        drain(spark, never, **access(place))


def test_a_topic_that_is_not_there(spark, place, unique_name):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    with pytest.raises(TopicGoneError, match="look at the name"):
        drain(spark, never, **{**access(place), "topics": unique_name("gone")})


def test_a_topic_deleted_meanwhile(spark, place):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))

    def process(frame):
        run(place.delete())
        frame.count()

    with pytest.raises(TopicGoneError, match=f"no topic '{place.topic}'.*deleted"):
        drain(spark, process, **access(place))


def test_a_topic_deleted_and_made_anew_meanwhile(spark, place):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))

    def process(frame):
        run(place.delete())
        run(place.make())
        frame.count()

    with pytest.raises(TopicRecreatedError, match=f"topic '{place.topic}' was deleted and made anew"):
        drain(spark, process, **access(place))


# Spark.


def test_nothing_that_is_pending_starts_nothing(place):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    assert drain(not_to_be_called, never, **access(place), min_records=7).left_count == 6
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(20, "")}))
    assert drain(not_to_be_called, never, **access(place)).is_complete


def not_to_be_called():
    raise AssertionError("Spark was not to be started")


def test_a_session_is_started_when_there_is_something_to_read(spark, place):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    assert drain(lambda: spark, lambda frame: frame.count(), **access(place)).record_count == 6


def test_a_session_of_spark_connect_that_was_stopped_is_refused(place):
    class Session:
        """As far as anybody looks before it is used."""

        is_stopped = True

    Session.__module__ = "pyspark.sql.connect.session"
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    for session in (Session(), Session):
        with pytest.raises(UnsupportedSparkError, match="was stopped"):
            drain(session, never, **access(place))


def test_jars_are_of_no_use_to_a_server_of_spark_connect():
    for given in ({"jars": ["connector.jar"]}, {"connector": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"}):
        with pytest.raises(ConfigError, match="connector's jars when you start this server"):
            make_session("sc://127.0.0.1:1", **given)


@pytest.mark.parametrize("on_error", ["stop", "isolate"])
def test_a_function_that_starts_no_session_is_called_once(spark, place, on_error, monkeypatch):
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    given, calls = {**access(place), "on_error": on_error}, []

    def start(session):
        calls.append(session)
        if session is None:
            raise ConnectionError("the cluster is full")
        return session

    with pytest.raises(ConnectionError, match="full"):
        drain(lambda: start(None), never, **given)
    with pytest.raises(UnsupportedSparkError, match=r"'nothing' is no Spark session: .*make_session"):
        drain(lambda: start("nothing"), never, **given)
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)  # as after spark.stop()
    with pytest.raises(UnsupportedSparkError, match="was stopped"):
        drain(lambda: start(spark), never, **given)
    with pytest.raises(UnsupportedSparkError, match="was stopped"):
        drain(spark, never, **given)
    assert len(calls) == 3
    assert run(members_of(place)) == ()


def test_an_old_pyspark_is_refused(place, monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "3.5.3")
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    for start in (make_session, make_session):
        with pytest.raises(UnsupportedSparkError, match=r"PySpark 4\.0 or newer is needed, and this is 3\.5\.3"):
            drain(start, never, **access(place))


def test_what_others_print_while_java_starts_is_printed(connector):
    code = """if True:
        import sys, threading
        from aiogroup.spark import make_session
        from tests.support.spark import conf
        count, is_over = 0, threading.Event()
        def tick():
            global count
            while not is_over.wait(0.05):
                count += 1
                print("tick", flush=True)
                print("tock", file=sys.stderr, flush=True)
        ticking = threading.Thread(target=tick)
        ticking.start()
        make_session("local[1]", jars=sys.argv[1].split(","), conf=conf()).stop()
        is_over.set()
        ticking.join()
        print(count)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, connector], capture_output=True, text=True, cwd=ROOT, timeout=200, check=True
    )
    *ticks, count = done.stdout.splitlines()
    assert int(count) > 10
    assert ticks == ["tick"] * int(count)
    assert done.stderr.splitlines() == ["tock"] * int(count)


# Who may not.


@pytest.fixture(scope="module")
def guarded():
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    users = {"alice": "alice-secret", "mallory": "mallory-secret"}
    with Cluster(security="SASL_SSL", users=users, properties=properties) as cluster:
        yield cluster


def properties_of(cluster, user):
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{user}-secret";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.ca_pem),
    }


def test_security_reaches_the_consumer_and_spark_and_who_may_not_learns_it(spark, guarded, unique_name):
    place = Place(guarded, unique_name("topic"), unique_name("group"))
    guarded.create_topic(place.topic)
    run(place.produce(range(20)))
    run(leave_behind(place, {0: [(3, 9)]}, live=10))
    given = {**access(place), "bootstrap_servers": guarded.bootstrap("SASL_SSL")}
    with pytest.raises((GroupAuthorizationError, TopicAuthorizationError), match=r"not authorized.*grant"):
        drain(spark, never, **given, properties=properties_of(guarded, "mallory"))
    kept = []
    named = properties_of(guarded, "alice")  # as the command line's variables name an account
    del named["sasl.jaas.config"]
    named |= {"sasl.plain.username": "alice", "sasl.plain.password": "alice-secret"}
    report = drain(
        spark,
        lambda frame: kept.extend(row.offset for row in frame.collect()),
        **given,
        properties=named,
    )
    assert sorted(kept) == list(range(3, 9))
    assert report.is_complete


# The command.


def command(place, *arguments, master="local[2]", **environment):
    return subprocess.run(
        [
            sys.executable, "-m", "aiogroup.spark", "drain", "--bootstrap-server", place.cluster.bootstrap_servers,
            "--group", place.group, "--topic", place.topic, "--master", master, *arguments,
            *(word for key, value in conf().items() for word in ("--conf", f"{key}={value}")),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=200,
        check=False,
    )  # fmt: skip


@pytest.fixture
def connector():
    if why := why_no_spark():
        pytest.skip(why)
    return ",".join(map(str, jars.spark_jars()))


def test_the_command_drains_and_says_how_far_it_is_and_nothing_else(place, connector, tmp_path):
    run(leave_behind(place, {0: [(3, 9), (12, 18)]}, live=20))
    done = command(place, "--to", f"parquet:{tmp_path}/out", "--jars", connector, "--slice-records", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("12 records in 2 slices, ")
    told = done.stderr.splitlines()
    assert [line for line in told if not line.startswith("aiogroup: ")] == []
    assert told[0] == "aiogroup: 12 offsets pending in 1 partitions"
    assert told[-1].startswith("aiogroup: 12 of 12 offsets done (100 %), 12 records, ")
    slices = sorted(path.name for path in (tmp_path / "out").glob("slice=*"))
    assert slices == [f"slice={place.topic}-0-{each}" for each in ("12-16", "16-18", "3-8", "8-9")]


def test_executors_need_nothing_but_the_connector(place, connector, tmp_path):
    """Processes of their own, with what the driver sends them: as on a cluster."""
    run(leave_behind(place, {0: [(3, 9), (12, 18)]}, live=20))
    try:
        done = command(
            place, "--to", f"parquet:{tmp_path}/out", "--jars", connector, "--conf", "spark.executor.memory=512m",
            "--reader", "connector", master="local-cluster[2,1,512]",
        )  # fmt: skip
    finally:
        shutil.rmtree(
            Path(find_spec("pyspark").origin).parent / "work", ignore_errors=True
        )  # Spark's own place for its workers
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("12 records in 1 slices, ")


def test_a_function_that_raises_is_one_line(place, connector):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))
    done = command(place, "--foreach", "tests.support.spark:explode", "--jars", connector)
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    assert first == "aiogroup: 6 offsets pending in 1 partitions"
    assert last.startswith("aiogroup: tests.support.spark:explode raised ZeroDivisionError: this is (spark.py, line ")
    assert last.endswith("the slice is pending still (--traceback shows all of it)")
    assert pending_ranges(**access(place))[place.tp()].done == ()


def test_bad_records_are_told_and_the_others_are_committed(place, connector):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))
    done = command(place, "--foreach", "tests.support.spark:explode_at_5", "--on-error", "isolate", "--jars", connector)
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines()[0].startswith("5 records in ")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"aiogroup: failed: {place.topic}-0 5-6: tests.support.spark:explode_at_5 raised ValueError: "
    )
    assert pending_ranges(**access(place))[place.tp()].ranges == ((5, 6),)


def test_what_retention_deleted_is_pending_too(place, tmp_path):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))

    async def delete():
        async with place.admin() as admin:
            await admin.delete_records({place.tp(): RecordsToDelete(before_offset=12)}, 10_000)

    run(delete())
    done = command(place, "--to", f"parquet:{tmp_path}/out", "--min-records", "10", "-o", "json")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["left_count"] == 6


def test_an_error_of_a_worker_is_told_by_its_own_last_line(place):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))
    done = command(place, "--foreach", "tests.support.spark:explode_on_a_worker")
    assert done.returncode == 1
    assert "raised ValueError: the amount is no number" in done.stderr.splitlines()[-1]


def test_a_session_without_the_connector(place, connector, tmp_path):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))
    clients = next(each for each in connector.split(",") if "kafka-clients" in each)
    done = command(place, "--to", f"parquet:{tmp_path}/out", "--jars", clients, "--reader", "connector")
    assert done.returncode == 1
    assert "aiogroup: this Spark session has no Kafka connector: start it with --packages org.apache" in done.stderr
    assert pending_ranges(**access(place))[place.tp()].done == ()


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "said"),
    [
        (("--foreach", "tests.support.spark:nobody"), {}, 2, "cannot be loaded"),
        (("--to", "parquet:x"), {"JAVA_HOME": "/nowhere"}, 1, "install Java 17 or 21"),
    ],
)
def test_what_the_command_cannot_do_is_one_line(place, arguments, environment, code, said):
    run(leave_behind(place, {0: [(3, 9)]}, live=20))
    done = command(place, *arguments, **environment)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert pending_ranges(**access(place))[place.tp()].done == ()
