"""Spark's schema of the event log has a column for every field of every event, and is written down nowhere."""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup import Event, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.eventlog.columns import columns, event_classes

pytest.importorskip("pyspark")

from aiogroup.spark.liveness import event_schema

SIMPLE = {"event": "string", "mono_ms": "bigint", "member_id": "string", "latency_ms": "bigint", "clean": "boolean"}
NESTED = {
    "partitions": "array<string>",
    "offsets": "array<bigint>",
    "pending": "array<array<bigint>>",
    "histograms": "map<string,map<string,bigint>>",
    "settings": "map<string,string>",
}


def missing_columns(classes):
    told = set(event_schema().fieldNames())
    return {f"{cls.__name__}.{each.name}" for cls in classes for each in dataclasses.fields(cls)} - {
        f"{cls.__name__}.{name}" for cls in classes for name in told
    }


def test_every_field_of_every_event_has_a_column():
    classes = [*event_classes()]
    assert len(classes) > 40
    assert missing_columns(classes) == set()


def test_a_field_without_a_column_is_seen():
    @dataclasses.dataclass(frozen=True)
    class Hiccup(Event):
        node_id: int
        hiccups_count: int

    assert missing_columns([Hiccup]) == {"Hiccup.hiccups_count"}


def test_a_new_event_has_its_columns_at_once(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Hiccup(Event):
        hiccups_count: int | None

    monkeypatch.setattr(events, "Hiccup", Hiccup, raising=False)
    assert event_schema()["hiccups_count"].dataType.simpleString() == "bigint"


def test_types_are_those_of_the_classes():
    told = {field.name: field.dataType.simpleString() for field in event_schema()}
    assert {name: told[name] for name in SIMPLE | NESTED} == SIMPLE | NESTED


def test_one_name_has_one_type(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Hiccup(Event):
        offset: tuple[TopicPartition, ...]

    monkeypatch.setattr(events, "Hiccup", Hiccup, raising=False)
    with pytest.raises(TypeError, match=r"Hiccup\.offset"):
        columns()
