"""A driver is killed at each step, or frozen past its session: another one repeats, and nothing is skipped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from aiogroup.admin import list_members
from aiogroup.spark import drain, pending_ranges, to_parquet
from tests.support.kafka import eventually
from tests.support.spark import access, leave_behind, run
from tests.support.spark_driver import SESSION_MS, SLICE, charge

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

ROOT = Path(__file__).parents[2]
PENDING = {0: [(3, 50), (60, 100)], 1: [(0, 70)]}
EXPECTED = sorted((p, o) for p, pairs in PENDING.items() for start, end in pairs for o in range(start, end))
START_S = 120


@pytest.fixture
def place(make_place):
    place = make_place(2)
    for partition in range(2):
        run(place.produce(range(110), partition))
    return place


def driver(place, path, step, *keep):
    """The process; what it says comes line by line."""
    arguments = (place.cluster.bootstrap_servers, place.group, place.topic, str(path), step, *keep)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark_driver", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def written(spark, path):
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(path)).collect())


def done_of(place):
    return {tp.partition: each.done for tp, each in pending_ranges(**access(place)).items()}


@pytest.mark.parametrize(
    ("step", "known"),
    [
        pytest.param("claimed", {0: (), 1: ()}, marks=pytest.mark.thorough),
        ("half-written", {0: (), 1: ()}),
        pytest.param("written", {0: (), 1: ()}, marks=pytest.mark.thorough),
        pytest.param("committing", {0: (), 1: ()}, marks=pytest.mark.thorough),
        pytest.param("committed", {0: ((3, SLICE),), 1: ((0, SLICE),)}, marks=pytest.mark.thorough),
    ],
)
def test_a_driver_killed_at_a_step_leaves_what_it_has_not_committed(spark, place, tmp_path, step, known):
    run(leave_behind(place, PENDING, live=100))
    with driver(place, tmp_path / "out", step) as victim:
        assert victim.wait(START_S) == -signal.SIGKILL
    assert done_of(place) == known
    report = drain(spark, to_parquet(str(tmp_path / "out")), **access(place), slice_records=SLICE)
    assert report.is_complete
    assert done_of(place) == {p: tuple(pairs) for p, pairs in PENDING.items()}
    # A slice that is repeated takes the place of what was left of it: in Parquet each offset is there once.
    assert written(spark, tmp_path / "out") == EXPECTED


BAD_ONE = (1, 15)
ALL_BUT_IT = {0: ((3, 50), (60, 100)), 1: ((0, 15), (16, 70))}


@pytest.mark.parametrize(
    ("step", "known"),
    [
        pytest.param("isolating: failed", {0: (), 1: ()}, marks=pytest.mark.thorough),
        pytest.param("isolating: written", {0: (), 1: ()}, marks=pytest.mark.thorough),
        pytest.param("isolating: committed", {0: ((3, SLICE),), 1: ()}, marks=pytest.mark.thorough),
        pytest.param("isolating: between halves", {0: ((3, SLICE),), 1: ()}, marks=pytest.mark.thorough),
        ("isolating: half committed", {0: ((3, SLICE),), 1: ((20, 40),)}),
        pytest.param("isolating: found", {0: ((3, SLICE),), 1: ((0, 15), (16, 40))}, marks=pytest.mark.thorough),
    ],
)
def test_a_driver_killed_while_it_isolates_leaves_what_it_has_not_committed(spark, place, tmp_path, step, known):
    """What it had found out is found out again, and the bad record is never done."""

    def write_good(frame):
        charge(frame)
        write(frame)

    write = to_parquet(str(tmp_path / "out"))
    run(leave_behind(place, PENDING, live=100))
    with driver(place, tmp_path / "out", step) as victim:
        assert victim.wait(START_S) == -signal.SIGKILL
    assert done_of(place) == known
    report = drain(spark, write_good, **access(place), slice_records=SLICE, on_error="isolate")
    assert [(each.tp.partition, each.ranges) for each in report.failed] == [(1, ((15, 16),))]
    assert (report.left_count, report.dropped_count) == (1, 0)
    assert done_of(place) == ALL_BUT_IT
    good = set(EXPECTED) - {BAD_ONE}
    assert set(written(spark, tmp_path / "out")) == good
    assert drain(spark, write, **access(place)).is_complete
    assert set(written(spark, tmp_path / "out")) == {*good, BAD_ONE}


@pytest.fixture
def work_folder():
    """What Spark's workers write."""
    yield
    shutil.rmtree(Path(find_spec("pyspark").origin).parent / "work", ignore_errors=True)


KEEPS = [(), *(pytest.param((level,), marks=pytest.mark.thorough) for level in ("MEMORY_ONLY", "MEMORY_AND_DISK"))]


@pytest.mark.usefixtures("work_folder")
@pytest.mark.parametrize("keep", KEEPS)
def test_an_executor_killed_after_a_shuffle_costs_no_record_and_no_refusal(spark, place, tmp_path, keep):
    """Spark reads again what the executor had: more is counted than there is."""
    run(leave_behind(place, PENDING, live=100))
    with driver(place, tmp_path / "out", "executor", *keep) as job:
        said = job.stdout.read()
        assert job.wait(START_S) == 0
    assert (tmp_path / "out.ended").exists()
    assert said.splitlines()[-1] == "done=5 dropped=0 left=0"
    assert done_of(place) == {p: tuple(pairs) for p, pairs in PENDING.items()}
    assert written(spark, tmp_path / "out") == EXPECTED


@pytest.mark.thorough
@pytest.mark.usefixtures("work_folder")
@pytest.mark.parametrize("keep", KEEPS)
def test_an_executor_killed_while_a_driver_isolates_costs_no_record(spark, place, tmp_path, keep):
    run(leave_behind(place, PENDING, live=100))
    with driver(place, tmp_path / "out", "isolating: executor", *keep) as job:
        said = job.stdout.read()
        assert job.wait(2 * START_S) == 0
    assert (tmp_path / "out.ended").exists()
    assert said.splitlines()[-1].endswith(" dropped=0 left=1")
    assert done_of(place) == ALL_BUT_IT
    assert set(written(spark, tmp_path / "out")) == set(EXPECTED) - {BAD_ONE}


def test_a_driver_frozen_past_its_session_commits_nothing(spark, place, tmp_path):
    token_id = run(leave_behind(place, PENDING, live=100))
    with driver(place, tmp_path / "frozen", "frozen") as victim:
        try:
            assert victim.stdout.readline() == "freeze me\n"
            report = drain(spark, to_parquet(str(tmp_path / "out")), **access(place), slice_records=SLICE)
            assert report.is_complete
            assert report.dropped_count == 0
            done = done_of(place)
            # The token is still the one that it has read: what refuses its commit is the end of its claim alone.
            run(leave_behind(place, {0: [(3, 100)], 1: [(0, 100)]}, live=100, id=token_id))
            victim.send_signal(signal.SIGCONT)
            assert victim.stdout.readline() == "done=2 dropped=2 left=0\n"
            assert victim.wait(START_S) == 0
        finally:
            victim.kill()
    assert done == {p: tuple(pairs) for p, pairs in PENDING.items()}
    assert written(spark, tmp_path / "out") == EXPECTED
    assert run(eventually(lambda: gone(place), within_s=SESSION_MS / 1000 + 10))


async def gone(place):
    return await list_members(f"{place.group}.catchup", bootstrap_servers=place.cluster.bootstrap_servers) == ()
