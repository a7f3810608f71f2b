"""Spark drains into tables that take each record once, however often and in whatever slices it is repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiogroup.errors import ConfigError
from aiogroup.spark import pending_ranges, to_merge, to_table
from tests.support.spark import access, leave_behind, run, why_no_spark
from tests.support.spark_sinks import ONLY

ROOT = Path(__file__).parents[2]
PENDING = {0: [(0, 30)], 1: [(10, 20)], 2: [(0, 25)], 3: [(5, 6), (8, 40)]}
EVERYTHING = sorted([p, o] for p, pairs in PENDING.items() for start, end in pairs for o in range(start, end))
COUNT = len(EVERYTHING)
DRAINS_S = 600


@pytest.fixture
def make_backlog(make_place):
    if why := why_no_spark():
        pytest.skip(why)

    def make():
        place = make_place(4)
        for partition in range(4):
            run(place.produce(range(40), partition))
        run(leave_behind(place, PENDING, live=40))
        return place

    return make


def started(folder, servers, *given):
    return subprocess.run(
        [sys.executable, "-m", "tests.support.spark_sinks", servers, str(folder), *given],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=DRAINS_S,
        check=False,
    )


def pending_of(place):
    return {tp.partition: each.ranges for tp, each in pending_ranges(**access(place)).items()}


def once(rows, case=None):
    """The rows of each table of the case."""
    return dict.fromkeys([ONLY[case]] if case in ONLY else ["delta", "iceberg"], rows)


CASES = {
    "killed_thrice": {"records": COUNT, "left": 0},
    "killed_between_tables": {"records": COUNT},
    "isolated": {"failed": [[1, [15, 16]]], "left": 0},
    "kept": {"records": COUNT},
    "two_drivers": {"records": COUNT, "left": [0, 0]},
    "merged": {"records": COUNT},
}


@pytest.mark.thorough
def test_a_table_has_each_record_once(make_backlog, tmp_path):
    """One Spark session for all cases."""
    places = {case: make_backlog() for case in (*CASES, "merged_without_keep", "page", "by_command")}
    given = [f"{place.group},{place.topic},{case}" for case, place in places.items()]
    done = started(tmp_path, places["kept"].cluster.bootstrap_servers, *given)
    assert done.returncode == 0, done.stderr
    *said, of_merge, of_page, of_command = [
        json.loads(each) for each in done.stdout.splitlines() if each.startswith("{")
    ]
    for (case, expected), found in zip(CASES.items(), said, strict=True):
        assert found == {"rows": once(EVERYTHING, case), **expected}, case
    assert of_merge["rows"] == {"iceberg": EVERYTHING}
    assert of_page["amounts"] == EVERYTHING
    assert of_command["code"] == 0
    assert f"{COUNT} records in 4 slices" in done.stdout
    for place in places.values():
        assert pending_of(place) == dict.fromkeys(PENDING, ())


@pytest.mark.thorough
def test_what_a_table_holds_is_what_its_commits_say(tmp_path):
    """Without Kafka."""
    if why := why_no_spark():
        pytest.skip(why)
    cases = ("overtaken", "lost_answers", "others", "rolled_back", "replaced", "refused")
    done = started(tmp_path, "nowhere:9", *(f"{case},orders,{case}" for case in cases))
    assert done.returncode == 0, done.stderr
    said = dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))
    rows = {case: each["rows"] for case, each in said.items()}
    # Delta drops the second of two equal commits. Elsewhere there is nothing that could refuse it: it is told.
    twice = [*range(20), *range(12, 16)]
    assert rows["overtaken"] == {
        "delta": sorted([0, offset] for offset in twice),
        "iceberg": sorted([0, offset] for offset in (*twice, *range(8))),
    }
    assert said["overtaken"]["told"] == ["orders-0 12-16", "orders-0 0-8", "orders-0 12-16"]
    assert said["lost_answers"]["failed"] == ["delta", "iceberg"]
    assert rows["lost_answers"] == once([[0, offset] for offset in range(4)])
    assert rows["others"] == once([[0, 0], [0, 0], [0, 0], [0, 1], [0, 2]])
    assert rows["rolled_back"] == once([[0, offset] for offset in range(4)])
    assert rows["replaced"] == once([[0, offset] for offset in range(3)])
    expected = (
        "files is a table of parquet, and to_table writes to tables of Delta and Iceberg",
        "view is no table",
        "nowhere.orders is not there to be written to: [TABLE_OR_VIEW_NOT_FOUND]",
        "the DataFrame has no column partition, offset",
        "has written to lake.db.refused already",
        'give drain keep, for example keep="MEMORY_AND_DISK"',
        "the DataFrame has no column id",
        "to_table writes within drain",
    )
    for part, told in zip(expected, said["refused"]["said"], strict=True):
        assert part in told


@pytest.mark.thorough
def test_a_driver_killed_after_the_commit_of_the_table_is_repeated(make_backlog, tmp_path):
    place = make_backlog()
    servers = place.cluster.bootstrap_servers
    for slice_records in (30, 9):
        done = started(tmp_path, servers, f"{place.group},{place.topic},killed,{slice_records}")
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert pending_of(place) == {p: tuple(pairs) for p, pairs in PENDING.items()}
    done = started(tmp_path, servers, f"{place.group},{place.topic},last")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": once(EVERYTHING), "records": COUNT}
    assert pending_of(place) == dict.fromkeys(PENDING, ())


@pytest.mark.parametrize("make", [to_table, to_merge])
def test_a_table_needs_a_name(make):
    with pytest.raises(ConfigError, match="name of a table"):
        make(" ")


@pytest.mark.parametrize("keys", [(), "offset"])
def test_a_merge_needs_keys(keys):
    with pytest.raises(ConfigError, match="a sequence of columns is needed"):
        to_merge("lake.orders", keys)
