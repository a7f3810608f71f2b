"""What a job finds before it begins, and says: whose ranges these are, by which level, and what nobody has left to it.

Without Spark: `pending_ranges`, and the command up to where Spark would start.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka.structs import OffsetAndMetadata

from aiogroup._command.properties import consumer_settings
from aiogroup.spark import CatchupGroupError, IsolationLevelError, NotHandedOffError, pending_ranges
from aiogroup.spark import __main__ as command
from aiogroup.spark.access import Access, cluster_of
from tests.support.kafka import eventually
from tests.support.recovery import MANUAL, MODE
from tests.support.spark import access, commit_explicitly, leave_behind, run


@pytest.fixture
def place(make_place):
    place = make_place()
    run(place.produce(range(3_000)))
    return place


@pytest.fixture
def no_spark(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Spark was to be started")

    monkeypatch.setattr(command, "make_session", refuse)


def call(place, name, *arguments):
    goal = ("--to", "parquet:/nowhere") if name == "drain" else ()
    servers = place.cluster.bootstrap_servers
    given = (name, "--bootstrap-server", servers, "--group", place.group, "--topic", place.topic, *goal, *arguments)
    return command.main(given)


both = pytest.mark.parametrize("name", ["pending", "drain"])


@both
def test_a_group_that_is_behind_without_a_token_is_reported_with_what_to_do(place, no_spark, capsys, name):
    """A tool has reset it while the service was down, or somebody committed without a token."""
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(5, "")}))
    assert call(place, name) == 3
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"aiogroup: {place.topic}-0: the group has committed 5 and is 2,995 offsets behind")
    assert "The service writes one when it takes the partition over with parallel_handoff=True" in line


@both
def test_a_group_that_has_committed_nothing_of_the_topic_is_reported(place, make_place, no_spark, capsys, name):
    other = make_place()
    other.group = place.group
    run(other.produce(range(10)))
    run(commit_explicitly(other, {other.tp(): OffsetAndMetadata(10, "")}))
    assert call(place, name) == 3
    assert "the group has committed nothing and is 3,000 offsets behind" in capsys.readouterr().err
    assert call(other, name) == 0  # at the end, with nothing to say


def test_a_running_service_that_is_at_the_head_is_not_behind_although_records_come(place):
    """It commits a moment later than it reads: between the two it lags, without a token and rightly so."""

    async def serve():
        running, stopping = asyncio.Event(), asyncio.Event()

        async def produce():
            number = 3_000
            while not stopping.is_set():
                await place.produce(range(number, number + 50))
                number += 50

        async def consume():
            async with place.consumer(**MODE, parallel_handoff=True, auto_offset_reset="latest") as consumer:
                while not stopping.is_set():
                    await consumer.getmany(timeout_ms=50)
                    if not running.is_set() and await place.committed() is not None:
                        running.set()

        tasks = [asyncio.create_task(each()) for each in (produce, consume)]
        try:
            async with asyncio.timeout(60):
                await running.wait()
                for _ in range(3):
                    assert await asyncio.to_thread(call, place, "pending") == 0
        finally:
            stopping.set()
            await asyncio.gather(*tasks)

    run(serve())


@both
def test_what_a_service_reads_itself_is_not_processed_twice(place, no_spark, capsys, name):
    """A service in the mode, without hand-off: its ranges are pending, and its own catch-up lane reads them."""

    async def serve():
        await commit_explicitly(place, {place.tp(): OffsetAndMetadata(5, "")})
        async with place.consumer(**MODE) as consumer:
            consumer.pause(place.tp())
            await eventually(lambda: has_metadata(place))
            return await asyncio.to_thread(call, place, name)

    assert run(serve()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"what is pending of {place.topic}-0 is not left to jobs" in err
    assert "parallel_handoff=True" in err
    with pytest.raises(NotHandedOffError):
        pending_ranges(**access(place))


async def has_metadata(place):
    async with place.admin() as admin:
        return (await admin.list_consumer_group_offsets(place.group))[place.tp()].metadata


@both
def test_a_wrong_second_group_is_reported_before_anything_is_read(place, no_spark, capsys, name):
    async def serve():
        await commit_explicitly(place, {place.tp(): OffsetAndMetadata(5, "")})
        settings = {**MODE, **MANUAL, "parallel_handoff": True, "parallel_group_id": "the-jobs"}
        async with place.consumer(**settings):
            codes = [await asyncio.to_thread(call, place, name, *more) for more in ((), ("--catchup-group", "other"))]
            assert codes == [1, 1]
            found = await asyncio.to_thread(lambda: pending_ranges(**access(place), catchup_group_id="the-jobs"))
            assert found[place.tp()].ranges == ((5, 3_000),)

    run(serve())
    err = capsys.readouterr().err
    assert f"the service does not read what jobs do from the group '{place.group}.catchup'" in err
    assert "from the group 'other'" in err
    with pytest.raises(CatchupGroupError, match="parallel_group_id"):
        pending_ranges(**access(place))


@both
def test_a_weaker_isolation_level_than_the_services_is_refused(place, no_spark, capsys, name):
    run(leave_behind(place, {0: [(5, 50)]}, live=60, read_committed=True))
    assert call(place, name, "--isolation-level", "read_uncommitted") == 1
    assert "the service reads" in capsys.readouterr().err
    with pytest.raises(IsolationLevelError):
        pending_ranges(**access(place), properties={"isolation.level": "read_uncommitted"})
    with pytest.raises(IsolationLevelError):
        pending_ranges(**access(place), consumer={"isolation_level": "read_uncommitted"})
    assert pending_ranges(**access(place)).isolation_level == "read_committed"


def test_a_stricter_isolation_level_than_the_services_may_be_named(place):
    run(leave_behind(place, {0: [(5, 50)]}, live=60))
    assert pending_ranges(**access(place)).isolation_level == "read_uncommitted"
    strict = pending_ranges(**access(place), properties={"isolation.level": "read_committed"})
    assert strict.isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "csv:x"), "parquet:PATH is needed"),
        (("--foreach", "tests.support.spark:nobody"), "cannot be loaded"),
        (("--foreach", "tests.support.broken_job:process"), "cannot be loaded: ZeroDivisionError"),
        (("--to", "parquet:x", "--jars", "nowhere.jar"), "no such jar: nowhere.jar"),
        (("--to", "parquet:x", "--conf", "spark.ui.enabled"), "KEY=VALUE is needed"),
        (("--to", "parquet:x", "--slice-records", "0"), "slice_records=0"),
        (("--to", "parquet:x", "--task-records", "-1"), "task_records=-1"),
        (("--to", "parquet:x", "--session-timeout-ms", "0"), "session_timeout_ms=0"),
        (("--to", "parquet:x", "--session-timeout-ms", "soon"), "invalid int value"),
        (("--to", "parquet:x", "--command-config", "/nowhere"), "No such file"),
        (("--to", "parquet:x", "--topic", "no/topic"), "no/topic"),
        (("--to", "parquet:x", "--group", ""), "group_id is empty"),
    ],
    ids=lambda each: " ".join(each[-2:]) if isinstance(each, tuple) else None,
)
def test_arguments_that_cannot_be_meant_end_the_command_before_anything_is_asked(no_spark, capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        command.main(("drain", "--bootstrap-server", "127.0.0.1:1", "--group", "g", "--topic", "t", *arguments))
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("python -m aiogroup.spark")
    assert said in err
    assert "Traceback" not in err


def test_what_is_pending_stands_under_the_names_of_its_columns(place, monkeypatch, capsys):
    run(leave_behind(place, {0: [(5, 50)]}, live=60))
    monkeypatch.setenv("AIOGROUP_BOOTSTRAP_SERVERS", place.cluster.bootstrap_servers)
    assert command.main(("pending", "--group", place.group, "--topic", place.topic)) == 0
    table = capsys.readouterr().out
    header, row = table.splitlines()
    assert header.split() == ["TOPIC", "PARTITION", "RANGE", "OFFSETS", "LOG-START-OFFSET", "LOG-END-OFFSET"]
    assert row.split() == [place.topic, "0", "5-50", "45", "0", "3000"]
    assert header.index("OFFSETS") + len("OFFSETS") == row.index("45") + len("45"), "numbers stand to the right"
    assert call(place, "pending", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "command": "pending",
        "version": 1,
        "group": place.group,
        "partitions": [
            {
                "topic": place.topic,
                "partition": 0,
                "pending": [[5, 50]],
                "pending_count": 45,
                "log_start_offset": 0,
                "log_end_offset": 3000,
            }
        ],
    }


def test_that_nothing_is_pending_is_told_alone_and_is_a_document_too(place, no_spark, capsys):
    run(commit_explicitly(place, {place.tp(): OffsetAndMetadata(3_000, "")}))
    assert call(place, "pending") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"aiogroup: nothing of group {place.group!r} is pending\n"
    assert call(place, "pending", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["partitions"] == []
    assert call(place, "drain", "-o", "json") == 0
    drained = json.loads(capsys.readouterr().out)
    assert (drained["command"], drained["record_count"], drained["left_count"]) == ("drain", 0, 0)


def test_variables_with_a_name_and_a_password_reach_spark_as_javas_login():
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    account = {"sasl.plain.username": "alice", "sasl.plain.password": 'a"b\\c;'}
    options = Access.of("127.0.0.1:1", "g", "t", {**properties, **account}).spark_options()
    login = r'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a\"b\\c;";'
    assert options["kafka.sasl.jaas.config"] == login
    assert not any(key.startswith("kafka.sasl.plain") for key in options)
    again, _ = consumer_settings({**properties, "sasl.jaas.config": login})
    assert (again["sasl_plain_username"], again["sasl_plain_password"]) == ("alice", 'a"b\\c;')
    plain = Access.of("127.0.0.1:1", "g", "t", {**properties, "sasl.mechanism": "PLAIN", **account}).spark_options()
    assert plain["kafka.sasl.jaas.config"].startswith(
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
    )
    given = {**properties, **account, "sasl.jaas.config": login.replace("alice", "bob")}
    assert Access.of("127.0.0.1:1", "g", "t", given).spark_options()["kafka.sasl.jaas.config"] == login.replace(
        "alice", "bob"
    )


@pytest.mark.parametrize(
    "arguments", [("pending", "--group", "g"), ("drain", "--group", "g", "--to", "parquet:x"), ("liveness",)]
)
def test_without_a_broker_it_says_how_to_name_one(no_spark, monkeypatch, capsys, arguments):
    monkeypatch.delenv("AIOGROUP_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(SystemExit) as ended:
        command.main((*arguments, "--topic", "t"))
    assert ended.value.code == 2
    assert "--bootstrap-server HOST:PORT, or set AIOGROUP_BOOTSTRAP_SERVERS" in capsys.readouterr().err


def test_spark_reaches_the_cluster_as_the_command_line_does(monkeypatch, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=file:1\nsasl.mechanism=PLAIN\nauto.offset.reset=latest\n")
    for name, text in {"BOOTSTRAP_SERVERS": "variable:1", "SASL_MECHANISM": "GSSAPI", "SSL_PROTOCOL": "TLS"}.items():
        monkeypatch.setenv(f"AIOGROUP_{name}", text)
    of_environment = {"sasl.mechanism": "GSSAPI", "ssl.protocol": "TLS"}
    of_file = {"sasl.mechanism": "PLAIN", "ssl.protocol": "TLS", "auto.offset.reset": "latest"}
    assert cluster_of(None, None) == ("variable:1", of_environment)
    assert cluster_of(None, config) == ("file:1", of_file)
    assert cluster_of("option:1", config) == ("option:1", of_file)


def test_an_error_is_one_line_and_all_of_it_when_asked_for(place, no_spark, capsys):
    run(leave_behind(place, {0: [(5, 50)]}, live=60))
    assert call(place, "drain") == 1
    assert capsys.readouterr().err.splitlines()[1:] == ["aiogroup: AssertionError: Spark was to be started"]
    assert call(place, "drain", "--traceback") == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err
