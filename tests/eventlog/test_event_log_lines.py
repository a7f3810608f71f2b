"""A line of the event log: what is in it, what never is, and how long that of a sample may be."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import get_args, get_origin, get_type_hints

import pytest

from aiogroup import TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.eventlog.columns import Envelope, EventsDropped, Sample, columns, event_classes
from aiogroup.eventlog.lines import SAMPLE_BYTES, Lines

WHOSE = {"group": "billing", "client_id": "app", "consumer_number": 0, "member_id": "app-1"}
SECRET = "s3cret-of-alice"


def line_of(event, whose=WHOSE):
    line = Lines().of(event, whose, 1_790_000_000_000, 55)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


def value_of(hint):
    """Some value of this type."""
    kinds = [each for each in get_args(hint) if each is not type(None)]
    if type(None) in get_args(hint):
        return value_of(kinds[0])
    if hint is TopicPartition:
        return TopicPartition("orders", 3)
    if get_origin(hint) is tuple:
        return (value_of(kinds[0]),) if Ellipsis in get_args(hint) else tuple(map(value_of, kinds))
    if get_origin(hint) is Mapping:
        return {"7": value_of(kinds[1])}
    return {str: "text", int: 5, bool: True}[hint]


def some(cls):
    hints = get_type_hints(cls)
    return cls(**{each.name: value_of(hints[each.name]) for each in dataclasses.fields(cls)})


def fits(value, kind):
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(fits(each, get_args(kind)[0]) for each in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, dict) and all(fits(each, get_args(kind)[1]) for each in value.values())
    return type(value) is kind


@pytest.mark.parametrize("cls", [*event_classes()], ids=lambda cls: cls.__name__)
def test_each_event_is_a_line_of_its_fields_in_the_types_of_the_columns(cls):
    told = line_of(some(cls))
    kinds = columns()
    left_out = {"ObserverFailed": {"traceback"}, "LoopFailed": {"traceback"}, "PoisonRecord": {"why"}}.get(
        cls.__name__, set()
    )
    own = {each.name for each in dataclasses.fields(cls)} - left_out
    assert told.keys() == own | {each.name for each in dataclasses.fields(Envelope)}
    assert {name: value for name, value in told.items() if not fits(value, kinds[name])} == {}
    assert told["event"] == some(cls).name


def test_a_line_says_whose_it_is():
    told = line_of(events.PartitionsRevoked((TopicPartition("orders", 0), TopicPartition("a-b", 12))))
    assert {name: told[name] for name in ("at_ms", "mono_ms", "seq", "event", "version", *WHOSE)} == {
        **WHOSE,
        "at_ms": 1_790_000_000_000,
        "mono_ms": 55,
        "seq": 0,
        "event": "partitions_revoked",
        "version": 1,
    }
    assert told["partitions"] == ["orders-0", "a-b-12"]
    assert told["host"]
    assert told["pid"] > 0


def test_numbers_count_the_lines_of_a_log():
    lines = Lines()
    found = [json.loads(lines.of(EventsDropped(1, 1), {}, 0, 0))["seq"] for _ in range(3)]
    assert found == [0, 1, 2]
    assert "group" not in json.loads(lines.of(EventsDropped(1, 1), {"group": None}, 0, 0))


@pytest.mark.parametrize(
    "event",
    [
        events.ListenerFailed("on_partitions_revoked", f"ValueError('{SECRET}')"),
        events.TaskFailed("fetcher 1", f"KeyError('{SECRET}')"),
        events.ObserverFailed(f"<app.Counter key={SECRET}>", "sample", f"OSError('{SECRET}')", f"line: {SECRET}"),
        events.PoisonRecord("orders", 0, 5, f"the value {SECRET} is no JSON"),
        events.ErrorDropped(f"app.errors.Refused('{SECRET}')"),
    ],
    ids=lambda event: event.name,
)
def test_nothing_of_a_record_is_in_a_line(event):
    assert SECRET not in json.dumps(line_of(event))


def test_the_class_of_an_error_stays():
    assert line_of(events.TaskFailed("fetcher 1", "app.errors.Refused('no')"))["error"] == "app.errors.Refused"
    assert line_of(events.ObserverFailed("<app.Counter object at 0x1>", "x", "E()", ""))["observer"] == "app.Counter"


@pytest.mark.parametrize(
    "why",
    [
        "no answer of kafka-1.example.org:9092 for 3 s",
        "no answer of 10.0.0.7 for 3 s",
        "no answer of 10.0.0.7:19092 for 3 s",
        "no answer of [2001:db8::1]:9092 for 3 s",
    ],
)
def test_no_address_is_in_a_line(why):
    assert line_of(events.MetadataFailed(why))["why"] == "no answer of <address> for 3 s"


@pytest.mark.parametrize("why", ["the group rebalances", "NOT_COORDINATOR: 16", "session_timeout_ms=10000 at 12:30"])
def test_other_words_stay(why):
    told = line_of(events.RebalanceStarted(why, 4))
    assert told["why"] == why.replace("at 12:30", "at <address>")


def test_a_text_is_cut():
    assert len(line_of(events.MetadataFailed("x" * 10_000))["why"]) == 300


def sample_of(histograms):
    settings = {"session_timeout_ms": "4500000", "group_instance_id": "i" * 249, "max_poll_interval_ms": "3000000"}
    return Sample(
        *("catching_up", 10**9, 10_000, 10**9, 10**9, 10**6, 10**9, 10**12, 10**15, 10**15, 10**9),
        {"heartbeat_sent": 10**6, "heartbeat_acknowledged": 10**6, "offsets_committed": 10**9, "merge_enforced": 10**6},
        settings, histograms, 1,
    )  # fmt: skip


NAMES = (
    "request_gap_ms", "record_ms", "batch_records", "loop_late_ms", "heartbeat_ms", "heartbeat_gap_ms", "commit_ms",
    "lag_live", "lag_catch_up",
)  # fmt: skip


@pytest.mark.parametrize("count", [1, 10**6, 10**12])
def test_a_sample_is_short_whatever_is_in_it(count):
    """Every bucket there is, with counts that no interval can have."""
    sample = sample_of({name: {str(bucket): count for bucket in range(160)} for name in NAMES})
    whose = {"group": "g" * 249, "client_id": "c" * 500, "consumer_number": 10**6, "member_id": "m" * 500}
    line = Lines().of(sample, whose, 10**13, 10**12)
    assert len(line) <= SAMPLE_BYTES
    told = json.loads(line)
    assert told["bucket_step"] > 1
    assert {name: sum(each.values()) for name, each in told["histograms"].items()} == dict.fromkeys(NAMES, 160 * count)


def test_a_usual_sample_has_every_bucket():
    told = line_of(sample_of({name: {"0": 9, "40": 2, "41": 1} for name in NAMES}))
    assert told["bucket_step"] == 1
    assert told["histograms"] == {name: {"0": 9, "40": 2, "41": 1} for name in NAMES}
