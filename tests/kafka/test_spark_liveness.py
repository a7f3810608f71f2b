"""The job on Spark and the reference agree on every fleet; what the command writes is exact, whole and readable."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.eventlog.columns import Envelope
from aiogroup.spark.__main__ import main
from aiogroup.spark.liveness import command
from aiogroup.spark.liveness.advice import Proposal, findings_of
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.job import advise
from aiogroup.spark.liveness.output import text
from aiogroup.spark.liveness.output.report import page
from aiogroup.spark.liveness.output.tables import TABLES, rows_of, write_tables
from aiogroup.spark.liveness.reading import read_events
from aiogroup.spark.liveness.reference import histograms_of, stretches_of
from aiogroup.spark.liveness.stretches import FIELDS
from tests.support.fleets import DAY_MS, Fleet, random_lines
from tests.support.spark import conf

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def expected(lines):
    histograms = histograms_of(lines)
    found = {}
    for group, own in stretches_of(lines).items():
        found[group] = findings_of(story_of(group, own), histograms.get(group, {})).without_lives()
    return found


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**32))
def test_the_job_and_the_reference_agree_on_random_fleets(spark_session, tmp_path_factory, seed):
    r = random.Random(seed)
    lines = [line for number in range(340) for line in random_lines(r, f"group-{number}")]
    r.shuffle(lines)
    path = write(tmp_path_factory.mktemp("fleets") / "events.jsonl", lines)
    found = {each.story.group: each for each in advise(read_events(spark_session, path)).findings}
    assert found == expected(lines)


def test_lines_that_are_no_events_are_counted_and_change_nothing(spark, tmp_path):
    lines = random_lines(random.Random(7), "billing")
    path = write(tmp_path / "events.jsonl", lines)
    with path.open("a") as file:
        file.write('not json\n{"event": 3}\n{"at_ms": 3, "event": "half a li')
    advice = advise(read_events(spark, path))
    assert advice.corrupt_count == 3
    assert {each.story.group: each for each in advice.findings} == expected(lines)


def test_a_number_that_is_out_of_range_harms_no_other_group(spark, tmp_path):
    lines = random_lines(random.Random(7), "billing")
    used = FIELDS | Envelope.__dataclass_fields__.keys()
    numbers = {(line["event"], name) for line in lines for name in line.keys() & used if type(line[name]) is int}
    all_lines = [*lines]
    for number, (event, name) in enumerate(sorted(numbers)):
        own = [{**line, "group": f"odd-{number}"} for line in lines]
        odd = next(line for line in own if line["event"] == event and name in line)
        odd[name] = 2**53 if number % 2 else -(2**63)
        all_lines += own
    advice = advise(read_events(spark, write(tmp_path / "events.jsonl", all_lines)))
    found = {each.story.group: each for each in advice.findings}
    assert len(found) == len(numbers) + 1 > 20
    assert {"billing": found["billing"]} == expected(lines)
    assert "odd-1" in page(advice)
    assert "odd-1" in text.as_text(advice)
    write_tables(spark, f"{tmp_path}/tables", advice.findings)


def days(*numbers):
    """A group of two that starts on each of these days, and is at work for some minutes."""
    fleet = Fleet()
    for number in numbers:
        at = number * DAY_MS + 1_000_000
        members = [fleet.member(name, pid=number + 1) for name in "ab"]
        fleet.rebalance(at, members)
        fleet.quiet(at + 1_000, at + 300_000, members, heartbeat_gap_ms=[3_000])
        for each in members:
            each.stop(at + 300_000)
    return fleet.lines


def as_text(row):
    """The order of a map's entries means nothing."""
    return tuple(str(sorted(each.items()) if isinstance(each, dict) else each) for each in row)


def table_in(spark, folder, name):
    frame = spark.read.option("basePath", f"{folder}/{name}").parquet(f"{folder}/{name}")
    columns = [*TABLES[name].__annotations__, "day"]
    return sorted(as_text(row) for row in frame.select(*columns).collect())


def told(name, findings):
    return sorted(as_text(row) for row in rows_of(name, findings))


def test_a_rerun_replaces_its_days_and_leaves_the_others_alone(spark, tmp_path):
    """The cause of a window's first rebalance is what the window does not show: it alone may be told otherwise."""
    path = write(tmp_path / "events.jsonl", days(0, 1, 2))
    all_days = advise(read_events(spark, path)).findings
    second_day = advise(read_events(spark, path, since=DAY_MS, until=2 * DAY_MS)).findings
    folder = f"{tmp_path}/tables"
    write_tables(spark, folder, all_days)
    for _ in range(2):
        write_tables(spark, folder, second_day)
        generations = [(row[1], *row[5:]) for row in table_in(spark, folder, "rebalances")]
        assert generations == [(row[1], *row[5:]) for row in told("rebalances", all_days)]
        lives = {row for row in table_in(spark, folder, "episodes") if row[1] == "life"}
        assert lives == {row for row in told("episodes", all_days) if row[1] == "life"}
    assert len(table_in(spark, folder, "advice")) == 2 * 8, "of the last day, and of the second"


@pytest.fixture
def in_this_process(spark, monkeypatch, capsys):
    """Run the command in the session that is there, and which goes on."""

    def run(*arguments):
        monkeypatch.setattr(command, "make_session", lambda *_, **__: spark)
        monkeypatch.setattr(type(spark), "stop", lambda _: None)
        code = main(arguments)
        monkeypatch.undo()
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out

    return run


@pytest.fixture
def in_a_process():
    """Run the command in a process of its own, with a session of its own."""

    def run(*arguments):
        settings_of_spark = [part for name, value in conf().items() for part in ("--conf", f"{name}={value}")]
        whole = [sys.executable, "-m", "aiogroup.spark", *arguments, "--master", "local[2]", *settings_of_spark]
        ended = subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "Spark" not in ended.stderr, "no log, and no stack of Java"
        return ended.stdout

    return run


@pytest.mark.parametrize("where", ["in_this_process", pytest.param("in_a_process", marks=pytest.mark.thorough)])
def test_the_command_writes_tables_and_a_report_and_prints_json(spark, request, tmp_path, where):
    path = tmp_path / "logs"
    path.mkdir()
    write(path / "events.jsonl", days(0, 1))
    (path / "broken.jsonl.gz").write_bytes(b"no gzip " * 50)
    printed = request.getfixturevalue(where)(
        "liveness", "--events", str(path), "--to", f"parquet:{tmp_path}/tables",
        "--report", f"{tmp_path}/report.html", "-o", "json",
    )  # fmt: skip
    findings = advise(read_events(spark, path)).findings
    said = json.loads(printed)["groups"]["billing"]
    assert said["advice"] == [dict(zip(Proposal.__annotations__, each, strict=True)) for each in findings[0].proposals]
    assert table_in(spark, tmp_path / "tables", "counterfactuals") == told("counterfactuals", findings)
    report = (tmp_path / "report.html").read_text()
    assert "billing" in report
    file = str(path / "broken.jsonl.gz")
    assert json.loads(printed)["damaged"] == [
        {"file": file, "why": "cannot be read: not a gzip file", "corrupt_count": 0}
    ]
    assert file in report
