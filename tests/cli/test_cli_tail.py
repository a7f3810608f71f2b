"""`aiogroup tail`: which records it prints, and how."""

from __future__ import annotations

import json

import pytest

from tests.cli.shapes import check

NOON = 1_795_435_200_000
"""2026-11-23T12:00:00Z."""


def offsets(ran):
    return [(each["partition"], each["offset"]) for each in map(json.loads, ran.out.splitlines())]


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ([], 0, 9),
        (["--from", "earliest"], 0, 9),
        (["--from", "latest"], 10, 9),
        (["--from", "-3"], 7, 9),
        (["--from=-99"], 0, 9),
        (["--from", "4"], 4, 9),
        (["--from", "99"], 10, 9),
        (["--from", "4", "-n", "2"], 4, 5),
        (["--from", "@-1h"], 0, 9),
        (["--from", "@-PT1H"], 0, 9),
        (["--from", "@0"], 0, 9),
        (["--from", "@2999-01-01T00:00:00"], 10, 9),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
async def test_from_where(run, arguments, first, last):
    read = await run("tail", "orders", "-p", "0", "-o", "json", *arguments)
    assert (read.code, read.err) == (0, "")
    assert offsets(read) == [(0, n) for n in range(first, last + 1)]


async def test_that_there_is_nothing_is_said(run, broker):
    broker.create_topic("empty", 1)
    for arguments in (["orders", "--from", "latest", "-p", "0,1"], ["empty"]):
        read = await run("tail", *arguments)
        assert (read.code, read.out) == (0, "")
        assert read.err.startswith("aiogroup: there is no record from there on in ")


async def test_all_partitions_to_the_end_without_a_group(run, broker):
    read = await run("tail", "orders", "-o", "json")
    assert sorted(offsets(read)) == [(0, n) for n in range(10)] + [(1, n) for n in range(4)]
    assert broker.groups() == ()
    assert broker.count("OffsetCommit") == 0


async def test_how_records_are_shown(run, broker):
    broker.create_topic("bills", 1)
    broker.produce("bills", b'{"id": 1}', key="größe".encode(), timestamp_ms=NOON)
    broker.produce("bills", b"\xff\x00", timestamp_ms=NOON + 1, headers=[("trace\x1b", b"\x1b[31m"), ("none", None)])
    broker.produce("bills", None, key=b"a\nb", timestamp_ms=NOON + 2)
    read = await run("tail", "bills")
    assert read.out == (
        '0:0  2026-11-23T12:00:00.000Z  größe  {"id": 1}\n'
        "0:1  2026-11-23T12:00:00.001Z  -  base64:/wA=\n"
        "0:2  2026-11-23T12:00:00.002Z  a\\nb  -\n"
    )
    with_headers = await run("tail", "bills", "--headers", "--from", "1", "-n", "1")
    assert with_headers.out == ("0:1  2026-11-23T12:00:00.001Z  -  base64:/wA=  {trace\\x1b=\\x1b[31m, none=-}\n")
    documents = [json.loads(line) for line in (await run("tail", "bills", "-o", "json")).out.splitlines()]
    for document in documents:
        check(document)
    assert documents[1]["value"] == "/wA="
    assert documents[1]["headers"] == [
        {"name": "trace\x1b", "value": "\x1b[31m", "value_encoding": "utf-8"},
        {"name": "none", "value": None, "value_encoding": None},
    ]


async def test_it_ends_where_the_last_offsets_hold_no_record(run, broker):
    broker.create_topic("states", 1, config={"cleanup.policy": "compact"})
    for n in range(5):
        broker.produce("states", None if n == 4 else b"x", key=b"k")
    broker.compact("states", with_tombstones=True)
    read = await run("tail", "states", "--from", "earliest", "-o", "json", "--timeout-ms", "5000")
    assert read.code == 0


async def test_new_records_are_followed_up_to_the_number_that_was_asked_for(run, broker):
    read = await run("tail", "orders", "-p", "1", "--from", "-2", "-f", "-n", "2", "-o", "json")
    assert offsets(read) == [(1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(["none"], "there is no topic 'none'"), (["orders", "-p", "7"], "has 2 partitions, and not orders-7")],
)
async def test_what_is_not_there_is_told(run, arguments, why):
    read = await run("tail", *arguments)
    assert (read.code, read.out) == (1, "")
    assert why in read.err


async def test_it_ends_when_no_record_comes(run, broker):
    broker.error("Fetch", "UNKNOWN_SERVER_ERROR", topic="orders", partition=1, times=None)
    read = await run("tail", "orders", "-p", "1", "--timeout-ms", "1500")
    assert (read.code, read.out) == (1, "")
    assert "no record of orders-1 came within --timeout-ms 1500" in read.err
