"""What `make test` and other goals run, parts of it side by side; tests that share a cluster of their own run on one
worker.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers_differ import THOROUGH
from tests.support.side_by_side import main
from tests.support.workers import by_one_worker, scope_of

ROOT = Path(__file__).parents[1]
PARTS = {
    ("test",): [
        "kafka and not spark and not thorough",
        "not kafka and not simulation",
        "simulation and not kafka and not lengthy",
        "simulation and not kafka and not lengthy",
        "spark and not thorough",
        "real_kafka and not spark and not thorough",
    ],
    ("test", "test-kafka", "properties"): [
        "kafka and not spark",
        "not kafka and not simulation",
        "simulation and not kafka and not lengthy",
        "simulation and not kafka and not lengthy",
        "kafka and not spark",
        "spark",
        "not kafka",
        "not kafka",
    ],
}
WHEN_THERE = "while [ ! -e {} ]; do sleep 0.01; done"


@pytest.fixture(params=by_one_worker("some_name"))
def for_one_worker():
    return True


def test_the_step_on_kafka_collects_every_file_with_a_test_that_is_marked_so():
    (named,) = re.findall(r"^TESTS_ON_KAFKA := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    collected = [ROOT / name for name in named.split()]
    assert all(path.exists() for path in collected)
    marked = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.kafka" in path.read_text() and path != Path(__file__)
    }
    assert marked
    assert not [path for path in marked if not {path, *path.parents} & set(collected)]


def test_what_needs_spark_is_collected_by_its_name():
    named = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.spark" in path.read_text()]
    assert named == [Path(__file__)]
    told = subprocess.run(["make", "-n", "test-kafka"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (collected,) = re.findall(r'pytest (\S+(?: tests/\S+)+) --broker real -m "spark"', told)
    assert set(collected.split()) == {f"tests/kafka/{path.name}" for path in ROOT.glob("tests/kafka/test_spark_*.py")}


def test_the_steps_without_kafka_collect_every_file_with_a_simulation():
    told = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    scripted, simulated = re.findall(r'-m "simulation and not kafka[^"]*" ([^&\']+)', told)
    folders = {ROOT / name for name in [*simulated.split(), *scripted.split()]}
    assert simulated.split() == ["tests/simulation"]  # its remains meet tests that ignore what they warn of
    assert ROOT / "tests/groups" in folders
    marked = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark.simulation" in path.read_text() and path != Path(__file__)
    }
    assert marked
    assert not [path for path in marked if not folders & set(path.parents)]


def test_what_is_left_to_the_step_on_kafka_has_a_witness():
    page = (ROOT / "docs/own-tests.md").read_text().partition("## Which test shows it now")[2]
    marked = {path.name for path in ROOT.glob("tests/kafka/test_*.py") if "pytest.mark.thorough" in path.read_text()}
    left = marked | {each.partition("::")[0] for each in THOROUGH}
    assert marked
    assert [name for name in left if f"`{name}" not in page] == []


def test_the_continuous_integration_makes_all_of_them():
    (goals,) = re.findall(r"^exec make (.+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert tuple(goals.split()) in PARTS


def test_the_step_of_the_properties_has_more_examples_of_every_file_with_one():
    told = subprocess.run(["make", "-n", "properties"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    given = [line.split() for line in re.findall(r"EXAMPLES_FACTOR=8 .* kafka\" (.+) -n 2$", told, re.MULTILINE)]
    calls = re.compile(r"\b(examples|third)\(|mark\.lengthy")
    named = {path for path in (ROOT / "tests").rglob("test_*.py") if calls.search(path.read_text())}
    assert named - {Path(__file__)} == {ROOT / name for names in given for name in names}
    assert [{name.startswith("tests/simulation/") for name in names} for names in given] == [{False}, {True}]


def test_a_test_that_one_worker_runs_says_so_in_its_id(request, for_one_worker):
    assert for_one_worker
    assert scope_of(request.node.nodeid) == "some_name"
    assert scope_of("tests/test_x.py::test_y[@some_name-1]") == "some_name"
    assert scope_of("tests/test_x.py::test_y[1]") == "tests/test_x.py::test_y[1]"


@pytest.mark.parametrize("goals", PARTS, ids=" ".join)
def test_each_test_is_in_one_of_the_parts(goals):
    """Where both are made, what judges on real Kafka runs once."""
    told = subprocess.run(["make", "-n", *goals], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r'-m "([^"]+)"', told) == PARTS[goals]
    assert set(re.findall(r"--ignore=(\S+)", told)) == {"tests/kafka", "tests/simulation", "tests/groups"}
    assert told.count("--broker real") == 2


def test_commands_run_at_the_same_time_and_are_shown_one_after_the_other(tmp_path, capsysbinary):
    began = tmp_path / "began"
    first, second = f"echo 1; {WHEN_THERE.format(began)}; echo 2", f"echo 3; touch {began}; echo 4 >&2"
    assert main([first, second]) == 0
    assert capsysbinary.readouterr().out.decode() == f"{first}\n1\n2\n{second}\n3\n4\n"


def test_one_that_fails_is_named_at_the_end_and_the_others_go_on(capsysbinary):
    assert main(["echo 1; exit 3", "echo 2"]) == 1
    assert capsysbinary.readouterr().out.decode() == "echo 1; exit 3\n1\necho 2\n2\nfailed: echo 1; exit 3\n"


def test_ctrl_c_ends_all_of_them_and_shows_what_they_say(tmp_path):
    ready = [tmp_path / name for name in "ab"]
    waits = [
        f'{sys.executable} -c "import pathlib, signal; '
        f"signal.signal(signal.SIGINT, lambda *_: exit('ended')); pathlib.Path('{path}').touch(); "
        f'signal.pause()"'
        for path in ready
    ]
    command = [sys.executable, "-m", "tests.support.side_by_side", *waits]
    heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a job in the background ignores Ctrl-C
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=heeds,  # noqa: PLW1509 (it only sets a handler)
    ) as running:
        for path in ready:
            subprocess.run(["sh", "-c", WHEN_THERE.format(path)], timeout=60, check=True)
        os.killpg(running.pid, signal.SIGINT)
        told, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert [line for line in told.splitlines() if line in ("ended", *waits)] == [waits[0], "ended", waits[1], "ended"]


@pytest.mark.long
def test_what_is_long_begins_first(request):
    """No test of the session that is not marked so comes before one that is."""
    are_long = [each.get_closest_marker("long") is not None for each in request.session.items]
    assert are_long == sorted(are_long, reverse=True)
