"""Spark drains into tables of Delta and Iceberg: what they do with a DataFrame counts, and nothing less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiogroup.spark import pending_ranges
from tests.support.spark import access, leave_behind, run, why_no_spark

ROOT = Path(__file__).parents[2]
PENDING = {0: [(0, 30)], 1: [(10, 20)]}
EVERYTHING = [[0, offset] for offset in range(30)] + [[1, offset] for offset in range(10, 20)]
CASES = {
    ("delta", "append", ""): (EVERYTHING, []),
    ("delta", "merge", "MEMORY_AND_DISK"): (EVERYTHING, []),
    ("delta", "merge nothing", "MEMORY_AND_DISK"): ([], []),
    ("delta", "two sinks", "MEMORY_AND_DISK"): (EVERYTHING, EVERYTHING),
    ("delta", "forget", ""): "NotProcessedError: process returned without an action",
    ("delta", "merge", ""): "give keep",
    ("delta", "a part and then all", ""): "again",
    ("iceberg", "append", ""): (EVERYTHING, []),
    ("iceberg", "a part and then all", ""): "again",
    ("iceberg", "merge", ""): (EVERYTHING, []),
    ("iceberg", "merge nothing", "MEMORY_AND_DISK"): ([], []),
}
DRAINS_S = 600  # two minutes on a quiet machine


@pytest.mark.thorough
def test_what_tables_do_with_a_slice_counts_and_nothing_less(make_place, tmp_path):
    """One Spark session for all cases, which run one after the other in two slices."""
    if why := why_no_spark():
        pytest.skip(why)
    places = {}
    for case in CASES:
        place = places[case] = make_place(2)
        for partition in range(2):
            run(place.produce(range(40), partition))
        run(leave_behind(place, PENDING, live=40))
    given = [",".join((place.group, place.topic, *case)) for case, place in places.items()]
    servers = next(iter(places.values())).cluster.bootstrap_servers
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_tables", servers, str(tmp_path), *given],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=DRAINS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    for (case, expected), found in zip(CASES.items(), said, strict=True):
        pending = {tp.partition: each.ranges for tp, each in pending_ranges(**access(places[case])).items()}
        if expected == "again":
            (rows, _), first = found["tables"], found["first"]
            assert first.startswith("NotProcessedError"), case
            assert (len(rows), sorted(map(list, set(map(tuple, rows))))) == (43, EVERYTHING), case
            assert pending == {0: (), 1: ()}, case
        elif isinstance(expected, str):
            assert expected in found["error"], case
            assert pending == {number: tuple(pairs) for number, pairs in PENDING.items()}, case
        else:
            assert found == {"records": 40, "left": 0, "tables": list(expected)}, case
            assert pending == {0: (), 1: ()}, case
