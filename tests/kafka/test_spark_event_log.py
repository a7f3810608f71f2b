"""Spark reads event logs: every line, whatever stands between them, and one clear error where there is none."""

from __future__ import annotations

import bz2
import gzip
import html
import json
import os
import re
import sys

import cramjam
import pytest
from aiokafka import AIOKafkaProducer

from aiogroup import ConfigError
from aiogroup.eventlog import EventLog
from aiogroup.spark.liveness import EventsError, event_schema, read_events
from aiogroup.spark.liveness.job import advise, histogram_rows, stretch_rows
from aiogroup.spark.liveness.output.report import page
from aiogroup.spark.liveness.output.text import as_json, as_text, wrong
from aiogroup.spark.liveness.reference import stretches_of
from tests.support.kafka import take
from tests.support.spark import run

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

AT_MS = 1_790_000_000_000


def line(number, event="rebalance_completed", **fields):
    told = {
        "at_ms": AT_MS + number, "mono_ms": number, "seq": number, "event": event, "group": "billing",
        "client_id": "app", "host": "web1", "pid": 7, "version": 1, **fields,
    }  # fmt: skip
    return json.dumps(told) + "\n"


def numbers(frame):
    return sorted(row.seq for row in frame.where("_corrupt is null").select("seq").collect())


def bad(frame):
    return sorted(row["_corrupt"] for row in frame.where("_corrupt is not null").select("_corrupt").collect())


def test_every_line_is_a_row_whatever_stands_between(spark, tmp_path):
    novel = line(2, "novelty", version=9, novel={"a": [1, 2]}, more="text", offset="no number")
    (tmp_path / "a.jsonl").write_text(line(1) + novel + "no JSON\n\n[1]\n{}\n" + line(3)[:40])
    deep = tmp_path / "web2" / "old"
    deep.mkdir(parents=True)
    (deep / "b.jsonl.gz").write_bytes(gzip.compress((line(4) + line(5, group="other")).encode()))
    (deep / "c.jsonl.zst").write_bytes(bytes(cramjam.zstd.compress((line(6) + line(7)).encode())))
    sample = line(
        8, "sample", histograms={"request_gap_ms": {"0": 5, "12": 1}}, settings={"session_timeout_ms": 45_000},
        events={"heartbeat_sent": 3}, lag_live=2**40,
    )  # fmt: skip
    (tmp_path / "d.jsonl").write_text(sample + line(9, partitions=["orders-0"], is_leader=True, generation=4))
    frame = read_events(spark, tmp_path)
    assert frame.columns == [*event_schema().fieldNames(), "unknown", "_corrupt", "_file", "_damage"]
    assert numbers(frame) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert bad(frame) == ["[1]", "no JSON", line(3)[:40], "{}"]
    rows = {row.seq: row for row in frame.where("_corrupt is null").collect()}
    assert rows[2].unknown == {"novel": '{"a":[1,2]}', "more": "text"}
    assert (rows[2].event, rows[2].version, rows[2].offset, rows[2].group) == ("novelty", 9, None, "billing")
    assert rows[8].histograms == {"request_gap_ms": {"0": 5, "12": 1}}
    assert rows[8].settings == {"session_timeout_ms": "45000"}
    assert (rows[8].events, rows[8].lag_live, rows[8].unknown) == ({"heartbeat_sent": 3}, 2**40, {})
    assert (rows[9].partitions, rows[9].is_leader, rows[9].generation) == (["orders-0"], True, 4)


def test_times_and_a_group_bound_what_is_read_and_bad_lines_stay(spark, tmp_path):
    text = "".join(line(number, group="other" if number % 2 else "billing") for number in range(10))
    (tmp_path / "a.jsonl").write_text(text + "bad\n")
    frame = read_events(spark, [tmp_path / "a.jsonl"], since=AT_MS + 3, until=AT_MS + 8, group="billing")
    assert numbers(frame) == [4, 6]
    assert bad(frame) == ["bad"]
    with pytest.raises(ConfigError, match="since"):
        read_events(spark, tmp_path, since="yesterday")


def lines_of(numbers):
    return "".join(line(number) for number in numbers).encode()


def half(path, content):
    """Its first half. A part that cannot be decompressed alone gives no line."""
    path.write_bytes(content[: len(content) // 2])
    return r"breaks off after 1,\d\d\d lines: |cannot be read: Not enough input bytes"


def unreadable(path, _):
    path.write_bytes(b"")
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.unlink()
        path.symlink_to("/proc/1/mem")  # root may read all but this
    return "cannot be read: "


def as_it_is(told):
    def write(path, content):
        path.write_bytes(content)
        return told

    return write


MANY = lines_of(range(100, 3_000))
DAMAGES = [
    ("a.jsonl.gz", gzip.compress(MANY), half),
    ("a.jsonl.bz2", bz2.compress(MANY * 10), as_it_is("")),
    ("a.jsonl.zst", bytes(cramjam.zstd.compress(MANY)), half),
    ("b.jsonl.gz", MANY, as_it_is("cannot be read: not a gzip file")),
    ("b.jsonl.bz2", bz2.compress(MANY)[:200], as_it_is("cannot be read: ")),
    ("c.jsonl.gz", gzip.compress(b""), as_it_is("has no line")),
    ("d.jsonl.gz", b"", as_it_is("has no line")),
    ("d.jsonl", b"", as_it_is("has no line")),
    ("e.jsonl", b"", unreadable),
    ("f [1]*é%20.jsonl", lines_of([11, 12])[:-30], as_it_is("1 line that is no event")),
    ("g.jsonl", lines_of([13, 14]).decode().encode("utf-16"), as_it_is("3 lines that are no events")),
    ("h.jsonl", b"\xe9" * 30 + b"\n" + lines_of([15]), as_it_is("1 line that is no event")),
    ("i.jsonl", b"\0" * 4_096, as_it_is("1 line that is no event")),
    ("0.jsonl", b'{"level": "info", "at": 3}\n' * 2_000, as_it_is("2,000 lines that are no events")),
    ("j.json", b'[\n  {\n    "a": 3\n  }\n]\n', as_it_is("5 lines that are no events")),
]


def test_every_damaged_file_is_told_and_the_others_are_read(spark, tmp_path):
    for number in range(3):
        (tmp_path / f"whole{number}.jsonl").write_bytes(lines_of([number]))
        (tmp_path / f"whole{number}+ü.jsonl.gz").write_bytes(gzip.compress(lines_of([number + 3])))
    expected = {str(tmp_path / name): write(tmp_path / name, content) for name, content, write in DAMAGES}
    expected = {file: why for file, why in expected.items() if why}
    frame = read_events(spark, tmp_path)
    found = set(numbers(frame))
    assert {0, 1, 2, 3, 4, 5, 11, 15} <= found, "what is whole, and what stands before the damage"
    assert 12 not in found
    advice = advise(frame)
    told = {each.file: wrong(each) for each in advice.damaged}
    assert told.keys() == expected.keys()
    assert [(file, told[file]) for file, why in expected.items() if not re.match(why, told[file])] == []
    assert advice.corrupt_count == 1 + 3 + 1 + 1 + 2_000 + 5
    for text in (
        as_text(advice),
        html.unescape(page(advice)),
        json.dumps(json.loads(as_json(advice)), ensure_ascii=False),
    ):
        assert [file for file in expected if file not in text] == []
    within = read_events(spark, tmp_path, since=AT_MS + 1, until=AT_MS + 2, group="billing")
    assert {each.file for each in advise(within).damaged} == expected.keys(), "no bound leaves them out"


LEFT_OUT = {
    "_a.jsonl": "is not read, as Spark leaves out what has a name that begins with _ or .",
    ".b.jsonl": "is not read, as Spark leaves out what has a name that begins with _ or .",
    "web1/_c ü%20.jsonl": "is not read, as Spark leaves out what has a name that begins with _ or .",
    "_old": "3 files are not read, as Spark leaves out what has a name that begins with _ or .",
}


def test_what_spark_does_not_read_because_of_a_name_is_told(spark, tmp_path):
    (tmp_path / "web1").mkdir()
    (tmp_path / "_old" / "deep").mkdir(parents=True)
    for number, name in enumerate(("_a.jsonl", ".b.jsonl", "web1/_c ü%20.jsonl", "_old/d.jsonl", "_old/e.jsonl")):
        (tmp_path / name).write_bytes(lines_of([number]))
    (tmp_path / "_old" / "deep" / "f.jsonl").write_bytes(lines_of([5]))
    (tmp_path / "g.jsonl").write_bytes(lines_of([6]))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".g.jsonl.crc").write_bytes(b"a checksum")
    frame = read_events(spark, tmp_path)
    assert numbers(frame) == [6]
    assert {each.file: wrong(each) for each in advise(frame).damaged} == {
        str(tmp_path / name): why for name, why in LEFT_OUT.items()
    }
    # A pattern, a folder that is named itself, and one without any such name.
    assert len(advise(read_events(spark, f"{tmp_path}/*.jsonl")).damaged) == 2
    assert numbers(read_events(spark, tmp_path / "_old")) == [3, 4, 5]
    assert advise(read_events(spark, tmp_path / "_old")).damaged == ()
    with pytest.raises(EventsError, match=r"no file is in .*_a\.jsonl is not read, as Spark leaves out"):
        read_events(spark, tmp_path / "_a.jsonl")


ODD = [
    *({name: None} for name in ("at_ms", "mono_ms", "seq", "event", "host", "pid", "version")),
    *({name: value} for name in ("at_ms", "pid", "seq") for value in ("text", 1.5, 2**70)),
    {"at_ms": 10**18},
    {"at_ms": -1},
]
HARMLESS = [
    {"group": ""},
    {"event": "sample", "settings": {"session_timeout_ms": "9" * 18}},
    {"event": "sample", "settings": {"session_timeout_ms": "9" * 30}, "histograms": {"record_ms": {"0": 3}}},
    {"event": "sample", "settings": None, "histograms": {"record_ms": {"text": 3, "99999": 1, "5": None, "6": -2}}},
    {"event": "sample", "histograms": {"record_ms": None}},
    {"generation": None, "partitions": None, "duration_ms": -3},
]


def test_a_line_is_parsed_once_and_for_histograms_only_one_that_names_them(spark, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(line(1) + line(2, "sample", histograms={}, settings={}))
    frame = read_events(spark, tmp_path, since=AT_MS, until=AT_MS + 9, group="billing")
    capsys.readouterr()
    stretch_rows(frame).explain()
    assert capsys.readouterr().out.count("from_json(") == 1
    histogram_rows(frame).explain()
    first = [each for each in capsys.readouterr().out.splitlines() if " Filter " in each][-1]
    assert (first.count("Contains("), first.count("from_json(")) == (1, 1), first


def test_lines_that_lack_what_places_them_are_no_events_and_odd_values_harm_nobody(spark, tmp_path):
    """As another program, or an older version, might write them."""
    lines = [json.loads(line(number)) | odd for number, odd in enumerate([*ODD, *HARMLESS])]
    (tmp_path / "a.jsonl").write_text(line(99) + "".join(json.dumps(each) + "\n" for each in lines))
    advice = advise(read_events(spark, tmp_path))
    assert advice.corrupt_count == len(ODD)
    assert [each.story.group for each in advice.findings] == ["billing"]
    assert "billing" in page(advice)


def test_half_of_the_last_line_of_a_writer_that_was_killed_is_no_event(spark, tmp_path):
    text = line(1)
    for count in range(1, len(text) - 1):
        (tmp_path / f"{count:03}.jsonl").write_text(line(2) + text[:count])
    frame = read_events(spark, tmp_path)
    assert set(numbers(frame)) == {2}
    assert len(bad(frame)) == len(advise(frame).damaged) == len(text) - 2


def test_a_file_that_is_damaged_or_deleted_after_it_was_looked_at_ends_the_job(spark, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(MANY))
    frame = read_events(spark, tmp_path)
    half(tmp_path / "1.jsonl.gz", gzip.compress(MANY))
    with pytest.raises(EventsError, match="could not be read to the end"):
        advise(frame)
    (tmp_path / "1.jsonl.gz").unlink()
    with pytest.raises(EventsError, match="could not be read to the end"):
        advise(frame)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "no file is in"),
        (b"", "no line is in"),
        (b"id;amount\n1;20\n", "is no event log: none of its 2 lines is an event"),
        (bytes(range(256)) * 20, "is no event log"),
    ],
    ids=["an empty folder", "an empty file", "a table", "bytes"],
)
def test_something_else_is_one_clear_error(spark, tmp_path, content, why):
    if content is not None:
        (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(EventsError, match=why):
        read_events(spark, tmp_path)


def test_no_such_path_is_one_clear_error(spark, tmp_path):
    with pytest.raises(EventsError, match="does not exist"):
        read_events(spark, tmp_path / "nowhere")


def test_no_right_to_read_is_one_clear_error(spark, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(line(1))
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.unlink()
        path.symlink_to("/proc/1/mem" if sys.platform == "linux" else os.devnull)  # root may read all but this
        if sys.platform != "linux":
            pytest.skip("this user may read everything")
    with pytest.raises(EventsError, match="cannot be read"):
        read_events(spark, tmp_path)


@pytest.mark.parametrize(
    "arguments", [{}, {"topic": "events"}, {"paths": "x", "topic": "events"}, {"bootstrap_servers": "127.0.0.1:1"}]
)
def test_not_both_and_not_neither(spark, arguments):
    with pytest.raises(ConfigError, match="paths, or"):
        read_events(spark, **arguments)


async def consume(place, log):
    await place.produce(range(10))
    async with place.consumer(observers=[log], group_instance_id="app-1") as consumer:
        await take(consumer, 10)


def test_a_topic_of_lines_is_read(spark, make_place):
    place, lines = make_place(), make_place(2)

    async def fill():
        async with AIOKafkaProducer(bootstrap_servers=place.cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(lines.topic, b"no JSON")
            async with EventLog(topic=lines.topic, producer=producer) as log:
                await consume(place, log)

    run(fill())
    servers = place.cluster.bootstrap_servers
    frame = read_events(spark, bootstrap_servers=servers, topic=lines.topic)
    found = numbers(frame)
    assert len(found) > 10
    assert found == list(range(len(found)))
    assert bad(frame) == ["no JSON"]
    since_ms = frame.where("event = 'consumer_stopped'").first().at_ms
    later = read_events(spark, bootstrap_servers=servers, topic=lines.topic, since=since_ms)
    assert 1 <= len(numbers(later)) < len(found)
    with pytest.raises(EventsError, match="cannot be read"):
        read_events(spark, bootstrap_servers=servers, topic=f"no-{lines.topic}")


def test_what_a_consumer_wrote_is_what_the_analysis_reads(spark, make_place, tmp_path):
    place = make_place()

    async def fill():
        async with EventLog(tmp_path / "events.jsonl") as log:
            await consume(place, log)

    run(fill())
    (path,) = tmp_path.iterdir()
    lines = [json.loads(each) for each in path.read_bytes().splitlines()]
    frame = read_events(spark, tmp_path)
    rows = [row.asDict() for row in frame.orderBy("seq").collect()]
    differing = [
        (name, value, row[name])
        for told, row in zip(lines, rows, strict=True)
        for name, value in told.items()
        if row[name] != value
    ]
    assert differing == []
    assert [{name: row[name] for name in told} for told, row in zip(lines, rows, strict=True)] == lines
    assert {name for row in rows for name in row["unknown"]} == set()
    assert bad(frame) == []
    (findings,) = advise(frame).findings
    assert findings.story.group == place.group
    (stretches,) = stretches_of(lines).values()
    found = {(row.life, row.turn, row.heard_first_ms, row.heard_last_ms) for row in stretch_rows(frame).collect()}
    assert found == {(each.life, each.turn, each.heard_first_ms, each.heard_last_ms) for each in stretches}
    stopped_at_ms = lines[-1]["at_ms"]
    assert 0 <= stopped_at_ms - max(heard for _, _, _, heard in found if heard is not None) < 5_000
