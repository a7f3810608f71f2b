"""`drain` over Spark Connect: the driver is another process, and PySpark's client knows what each action has read."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from operator import attrgetter

import pytest

from aiogroup.spark import pending_ranges
from tests.support.programs import ROOT
from tests.support.spark import access, leave_behind, run

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
pytest.importorskip("pandas", reason="pyspark[connect] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PENDING = {0: [(10, 60)], 1: [(0, 5)]}
ALL = [[0, offset] for offset in range(10, 60)] + [[1, offset] for offset in range(5)]


@pytest.fixture(scope="module")
def server(spark_session):
    """The server of Spark Connect, in the driver of the classic session: one Java less to start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jvm, context = attrgetter("_jvm", "_jsc")(spark_session.sparkContext)
    service, none = jvm.org.apache.spark.sql.connect.service.SparkConnectService, jvm.scala.Option.empty()
    context.sc().conf().set("spark.connect.grpc.binding.port", str(port))
    service.start(context.sc())
    yield f"sc://127.0.0.1:{port}"
    service.stop(none, none)


@pytest.fixture(scope="module")
def client(server):
    """Drains in another process, and gives what it says of it."""
    command = [sys.executable, "-m", "tests.support.spark_remote", server]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def job(place, name, **more):
            process.stdin.write(json.dumps({"process": name, **access(place), **more}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert process.stdout.readline() == "ready pyspark.sql.connect.session\n"
        yield job
        process.stdin.close()


@pytest.fixture
def place(make_place):
    place = make_place(2)
    for partition in range(2):
        run(place.produce(range(70), partition))
    run(leave_behind(place, PENDING, live=70))
    return place


def done_of(place):
    return {tp.partition: each.done for tp, each in pending_ranges(**access(place)).items()}


DONE = {partition: tuple(pairs) for partition, pairs in PENDING.items()}


def test_what_is_pending_is_drained_exactly(client, place):
    said = client(place, "collect", slice_records=30)
    assert sorted(said["kept"]) == ALL
    assert (said["records"], said["left"], said["slices"]) == (55, 0, 3)
    assert done_of(place) == DONE


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("limit", "NotProcessedError", "more than 0 of the 55 offsets"),
        ("failing", "NotProcessedError", "more than 0 of the 55 offsets"),
        ("by_sql", "NotProcessedError", "Spark Connect does not tell what is read by a statement of SQL"),
        ("merge", "TableError", "give drain keep"),
        ("nothing", "NotProcessedError", "without an action"),
        ("raising", "ZeroDivisionError", "not today"),
        ("busy", "KeyboardInterrupt", ""),
    ],
)
def test_what_was_not_processed_stays_pending(client, place, name, error, text):
    said = client(place, name)
    assert said.get("error") == error
    assert text in said["text"]
    assert done_of(place) == {0: (), 1: ()}


@pytest.mark.parametrize("name", ["several", "failing_first", "by_partition"])
def test_one_action_over_everything_is_enough(client, place, name):
    said = client(place, name)
    assert said.get("records") == 55, said
    assert sorted(said.get("kept", ALL)) == ALL
    assert done_of(place) == DONE


@pytest.mark.parametrize("name", ["twice", "by_sql"])
def test_with_keep_it_need_not_be_known(client, place, name):
    said = client(place, name, keep="MEMORY_AND_DISK")
    assert said.get("records") == 55, said
    assert sorted(said["kept"]) == ALL
    assert done_of(place) == DONE


def test_with_keep_something_must_be_run(client, place):
    assert "without an action" in client(place, "nothing", keep="MEMORY_AND_DISK")["text"]
    assert done_of(place) == {0: (), 1: ()}


def test_parquet(client, place, spark, tmp_path):
    assert client(place, "parquet", path=str(tmp_path / "out"))["records"] == 55
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted([row.partition, row.offset] for row in rows) == ALL


def test_what_is_secret_is_in_no_plan(client, place):
    properties = {"ssl.key.password": "hush-hush", "security.protocol": "PLAINTEXT"}
    said = client(place, "explained", properties=properties)
    assert said.get("records") == 55, said
    assert "aiogroup" in said["explained"]
    assert "hush-hush" not in said["explained"]


def test_the_connector(client, place):
    said = client(place, "several", reader="connector")
    assert said.get("records") == 55, said
    assert done_of(place) == DONE


def test_the_page(client, place, spark, tmp_path):
    said = client(place, "type_page", path=str(tmp_path / "out"))
    assert said.get("records") == 55, said
    assert "|        0|      50|" in said["shown"]
    assert spark.read.parquet(str(tmp_path / "out")).count() == 55
    assert done_of(place) == DONE
