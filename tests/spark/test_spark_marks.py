"""Marks of tables: what a table holds by them, and what it does not."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import LogId
from aiogroup.spark.marks import LaterMarkError, Mark, held, of_delta, of_iceberg, without

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)


def log(partition=0, topic="orders", topic_id=ORDERS, cluster="c"):
    return LogId(cluster, topic, topic_id, partition)


def offsets(*pairs, of=None):
    return {of or log(): read(pairs)}


def mark(*pairs, group="billing", of=None):
    return Mark.of(group, offsets(*pairs, of=of))


def test_a_mark_is_read_as_it_was_written():
    wrote = Mark.of(
        "billing", {log(1): read([(0, 5), (5, 9)]), log(0, "payments", PAYMENTS): read([(3, 4)]), log(): ()}
    )
    found = Mark.read_text(wrote.text)
    assert found == wrote
    assert found.offsets == {log(1): read([(0, 9)]), log(0, "payments", PAYMENTS): read([(3, 4)])}
    assert found.content_id == wrote.content_id


def test_marks_of_the_same_offsets_differ_in_their_ids_alone():
    assert mark((0, 9)).id != mark((0, 9)).id
    assert mark((0, 9)).content_id == mark((0, 4), (4, 9)).content_id
    others = [
        mark((0, 8)),
        mark((0, 9), group="audit"),
        mark((0, 9), of=log(1)),
        mark((0, 9), of=log(topic_id=PAYMENTS)),
    ]
    assert mark((0, 9)).content_id not in {each.content_id for each in others}


@pytest.mark.parametrize("text", [None, "", "mine", "{}", "[1]", "7", '{"group": "billing"}'])
def test_other_texts_are_no_marks(text):
    assert Mark.read_text(text) is None


def test_a_later_mark_is_refused_as_it_may_hold_something():
    later = json.dumps({**json.loads(mark((0, 9)).text), "aiogroup": 2})
    with pytest.raises(LaterMarkError, match="version 2"):
        Mark.read_text(later)


def test_what_marks_hold_is_of_one_group_and_one_log():
    marks = [mark((5, 9)), mark((0, 2)), mark((2, 5)), mark((20, 30)), mark((9, 20), group="audit")]
    assert held(marks, "billing") == offsets((0, 9), (20, 30))
    asked = {log(): read([(0, 4), (8, 25)]), log(1): read([(0, 4)]), log(topic_id=PAYMENTS): read([(0, 4)])}
    left = without(asked, held(marks, "billing"))
    assert left == {**asked, log(): read([(9, 20)])}
    assert without(offsets((1, 8)), held(marks, "billing")) == {}


def test_a_cluster_of_another_name_has_other_records():
    assert without(offsets((0, 9), of=log(cluster="d")), held([mark((0, 9))], "billing"))


def test_iceberg_holds_what_leads_to_its_head():
    one, two, gone = mark((0, 1)), mark((1, 2)), mark((2, 3))
    snapshots = {1: (None, one.text), 2: (1, "theirs"), 3: (2, gone.text), 4: (2, two.text), 5: (4, None)}
    assert of_iceberg(snapshots, 5) == [two, one]
    assert of_iceberg(snapshots, 3) == [gone, one]
    assert of_iceberg(snapshots, None) == []
    assert of_iceberg({5: (4, two.text)}, 5) == [two]  # what came before has expired


def commits(*told):
    return {version: each if isinstance(each, tuple) else ("WRITE", {}, each) for version, each in enumerate(told)}


def restore(version):
    return ("RESTORE", {"version": version, "timestamp": None if version else "2026-01-01"}, None)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (("a", "b", None), "ab"),
        (("a", "b", restore("0"), "c"), "ac"),
        (("a", "b", restore("0"), "c", restore("1")), "ab"),
        (("a", "b", restore("0"), restore("2"), "d"), "ad"),
        (("a", restore(None), "c"), "c"),
        (("a", ("CREATE OR REPLACE TABLE AS SELECT", {}, None), "c"), "c"),
        (("a", ("DELETE", {"predicate": "[]"}, None), ("OPTIMIZE", None, "{}")), "a"),
    ],
)
def test_delta_holds_what_was_not_undone(told, expected):
    by_name = {name: mark((at, at + 1)) for at, name in enumerate("abcd")}
    told = [by_name[each].text if isinstance(each, str) else each for each in told]
    assert of_delta(commits(*told)) == [by_name[name] for name in reversed(expected)]


def test_a_restored_version_that_delta_does_not_tell_holds_nothing():
    told = commits(mark((0, 1)).text, restore("0"))
    assert of_delta({version + 5: each for version, each in told.items()}) == []


def test_a_voided_commit_has_brought_nothing_until_it_is_made_again():
    wrote, others = mark((0, 9)), mark((0, 20), group="audit")
    void = Mark("billing", {}, "1" * 32, wrote.id)
    assert Mark.read_text(void.text) == void
    assert void.content_id != Mark("billing", {}, "2" * 32, others.id).content_id
    assert held([wrote, void], "billing") == held([void, wrote], "billing") == {}
    assert held([wrote, others, void], "audit") == {log(): read([(0, 20)])}
    assert held([wrote, void, mark((0, 9))], "billing") == {log(): read([(0, 9)])}
