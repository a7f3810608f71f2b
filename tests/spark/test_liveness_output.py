"""The report shows everything and runs nothing; text and JSON say the same; wrong arguments end before Spark starts."""

from __future__ import annotations

import argparse
import json
import re
from html.parser import HTMLParser

import pytest

from aiogroup.spark.__main__ import main
from aiogroup.spark.liveness import command
from aiogroup.spark.liveness.advice import findings_of
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.job import Advice, Damaged
from aiogroup.spark.liveness.output.report import COLORS, page
from aiogroup.spark.liveness.output.tables import TABLES, day_of, rows_of
from aiogroup.spark.liveness.output.text import as_json, as_text
from aiogroup.spark.liveness.reference import histograms_of, stretches_of
from tests.support.fleets import DAY_MS, Fleet

EVIL = "<script>alert('a')</script>\"&"


def advice_of(fleet, corrupt_count=0, damaged=()):
    story = story_of(fleet.group, stretches_of(fleet.lines)[fleet.group])
    return Advice((findings_of(story, histograms_of(fleet.lines).get(fleet.group, {})),), corrupt_count, damaged)


def paused(group="billing", name="c"):
    """A day with ten pauses of 13 s that each cost a session of 10 s."""
    fleet = Fleet(group=group)
    members = [fleet.member("a", ahead_ms=4_000), fleet.member(name)]
    fleet.rebalance(1_000, members)
    for each in members:
        for at in range(50_000, DAY_MS + 100_000, 50_000):
            each.sample(at, heartbeat_gap_ms=[3_000])
    for number in range(1, 11):
        at = number * 7_000_000
        fleet.rebalance(at, members[:1])
        members[1].tell(at + 3_001, "member_removed", why=EVIL)
        fleet.rebalance(at + 3_002, members, whys={members[1].client_id: EVIL})
        members[1].sample(at + 4_000, heartbeat_gap_ms=[13_000])
    return fleet


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def test_the_report_holds_no_script_and_nothing_from_elsewhere():
    text = page(advice_of(paused(EVIL, EVIL)))
    read = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in read.tags}
    assert not [attrs for _, attrs in read.tags if {"src", "href", "onload", "onclick"} & attrs.keys()]
    assert not re.search(r"https?://|url\(|@import", text)
    assert EVIL in read.words, "the group's name is shown as it is"


def test_the_report_shows_the_advice_the_causes_and_the_settings_in_the_curves():
    text = page(advice_of(paused(), corrupt_count=3))
    words = " ".join(Page(text).words)
    assert "what is not in this advice: 3 lines that are no events" in words
    assert "session_expired 10" in words
    assert re.search(r"session_timeout_ms.*10000.*change.*15000", text, re.DOTALL)
    assert text.count(">now</text>") == 2
    assert text.count(">proposed</text>") == 1
    assert words.count("ahead of the group's middle") == 2


DAMAGED = (Damaged(f"/logs/{EVIL}.gz", "breaks off after 12 lines: " + EVIL, 1), Damaged("/logs/b.jsonl", "", 2))


def test_a_damaged_file_is_named_before_the_advice():
    advice = advice_of(paused(), 3, DAMAGED)
    whole = f"breaks off after 12 lines: {EVIL}; 1 line that is no event"
    (first, one, other, *_) = as_text(advice).splitlines()
    assert first == "what is not in this advice: 2 damaged files, 3 lines that are no events"
    assert (one, other) == (f"  /logs/{EVIL}.gz: {whole}", "  /logs/b.jsonl: 2 lines that are no events")
    words = Page(page(advice)).words
    assert [each for each in (first, DAMAGED[0].file, whole, "2 lines that are no events") if each not in words] == []
    assert [tuple(each.values()) for each in json.loads(as_json(advice))["damaged"]] == [*map(tuple, DAMAGED)]


def test_of_many_damaged_files_the_terminal_names_some():
    text = as_text(advice_of(paused(), 0, tuple(Damaged(f"/{number:02}", "has no line", 0) for number in range(99))))
    assert "/19: has no line" in text
    assert "/20: " not in text
    assert "and 79 files more, which -o json names" in text


def test_a_window_without_events_is_a_report_too():
    assert "No event of a group" in page(Advice((), 0))
    assert as_text(Advice((), 0)) == "no event of a group is in this window"


def test_every_cause_has_a_color():
    from aiogroup.spark.liveness.episodes import RANK

    assert set(RANK) == set(COLORS)


def test_text_and_json_say_the_same():
    advice = advice_of(paused())
    told = json.loads(as_json(advice))["groups"]["billing"]
    (session,) = [each for each in told["advice"] if each["setting"] == "session_timeout_ms"]
    assert (session["current"], session["proposed"], session["gained_most"]) == (10_000, 15_000, 20)
    text = as_text(advice)
    assert re.search(r"session_timeout_ms +change +10000 -> 15000 .*; 20 rebalances fewer", text)
    assert re.search(r"heartbeat_interval_ms +keep +3000", text)
    assert told["rebalances"]["session_expired"] == 10


def test_a_name_is_nothing_that_a_terminal_obeys():
    text = as_text(advice_of(paused(group="bill\x1b[31m\u202eing\nother: 0 rebalances")))
    assert r"bill\x1b[31m\u202eing\nother: 0 rebalances: " in text
    assert all(each.isprintable() for each in text.splitlines())


@pytest.mark.parametrize("name", TABLES)
def test_rows_have_the_fields_of_their_table_and_a_day(name):
    rows = [*rows_of(name, advice_of(paused()).findings)]
    assert rows
    assert {len(row) for row in rows} == {len(TABLES[name].__annotations__) + 1}
    assert {row[-1] for row in rows} <= {"1970-01-01", "1970-01-02"}


@pytest.mark.parametrize("name", TABLES)
def test_no_row_has_a_day_outside_of_the_window_which_another_run_has_written(name):
    findings = advice_of(paused()).findings
    assert {row[-1] for row in rows_of(name, findings, since=DAY_MS)} == {"1970-01-02"}
    assert {row[-1] for row in rows_of(name, findings, until=DAY_MS)} == {"1970-01-01"}


def test_a_day_is_of_utc():
    assert (day_of(DAY_MS - 1), day_of(DAY_MS)) == ("1970-01-01", "1970-01-02")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --events, or --bootstrap-server and --topic"),
        (["--bootstrap-server", "localhost:9092"], "give --events, or --bootstrap-server and --topic"),
        (["--events", "x", "--since", "yesterday"], "--since yesterday: a date or a time is needed"),
        (["--events", "x", "--since", "2026-01-02", "--until", "2026-01-02"], "must be before"),
        (["--events", "x", "--since", "2026-01-02T08:00", "--to", "parquet:y"], "--to replaces whole days"),
        (["--events", "x", "--to", "csv:y"], "parquet:DIR is needed"),
        (["--events", "x", "--report", "/no/such/folder/a.html"], "there is no such folder"),
        (["--events", "x", "--conf", "oops"], "KEY=VALUE is needed"),
    ],
)
def test_wrong_arguments_end_before_anything_begins(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["liveness", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def java_options(conf):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = command.checked(parser.parse_args(["--events", "logs"]), conf)
    return given.session["conf"].get("spark.driver.extraJavaOptions")


def test_java_collects_for_throughput_unless_it_is_told_how(monkeypatch):
    """With two collectors Java would not start."""
    for name in command.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert java_options({}) == "-XX:+UseParallelGC"
    assert java_options({"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}) == "-XX:+UseG1GC"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    assert java_options({}) is None
