"""`aiogroup` beside kafka-consumer-groups.sh: the same columns, offsets, lag, and new offsets of a reset."""

from __future__ import annotations

import asyncio
import json

import pytest

from aiogroup import Consumer
from aiogroup.__main__ import main
from tests.support.java_tools import GROUPS, run
from tests.support.kafka import eventually

SETTINGS = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}


@pytest.fixture
async def place(make_place):
    """Three partitions with 4 records each; the group has committed 1 in the first and 4, the end, in the second."""
    made = make_place(3)
    for partition in range(3):
        await made.produce(range(4), partition)
    async with made.consumer(**SETTINGS) as consumer:
        await consumer.commit({made.tp(0): 1, made.tp(1): 4})
    return made


@pytest.fixture
def kafkas_lines(kafka_cluster, java_tools):
    """The lines that Kafka's tool prints."""

    async def tool(*arguments):
        code, lines = await asyncio.to_thread(run, java_tools, kafka_cluster, GROUPS, arguments)
        assert code == 0, lines
        return [line for line in lines if line and not line.startswith("!")]

    return tool


@pytest.fixture
def kafkas(kafkas_lines):
    """The columns and the rows of Kafka's tool."""

    async def tool(*arguments):
        rows = [line.split() for line in await kafkas_lines(*arguments)]
        at = next(number for number, row in enumerate(rows) if row[:1] == ["GROUP"])
        return rows[at], rows[at + 1 :]

    return tool


@pytest.fixture
def ours(kafka_cluster, capsys):
    """The columns and the rows of the last table that our command prints."""

    async def command(*arguments):
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*arguments, "--bootstrap-server", kafka_cluster.bootstrap_servers])
        assert code == 0, capsys.readouterr().err
        columns, *rows = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
        return columns.split(), [row.split() for row in rows]

    return command


def without_slash(rows):
    """Java writes an address with a slash in front."""
    return sorted([cell.removeprefix("/") for cell in row] for row in rows)


async def described_alike(place, kafkas, ours):
    columns, rows = await kafkas("--describe", "--group", place.group)
    our_columns, our_rows = await ours("describe", place.group)
    assert our_columns[: len(columns)] == columns
    # Ours has a line for a member without partitions, too, which Kafka's tool shows in another table.
    assert without_slash(rows) == sorted(row[: len(columns)] for row in our_rows if row[1] != "-")
    return our_rows


async def test_describe_a_group_without_members(place, kafkas, ours):
    rows = await described_alike(place, kafkas, ours)
    assert [row[2:6] for row in rows] == [["0", "1", "4", "3"], ["1", "4", "4", "0"]]


async def test_an_offset_beyond_the_logs_end_has_a_negative_lag_which_lowers_no_sum(place, kafkas, ours, capsys):
    async with place.consumer(**SETTINGS) as consumer:
        await eventually(lambda: consumer.assignment())
        await consumer.commit({place.tp(2): 9})
    rows = await described_alike(place, kafkas, ours)
    assert [row[2:6] for row in rows] == [["0", "1", "4", "3"], ["1", "4", "4", "0"], ["2", "9", "4", "-5"]]
    _, rows = await ours("lag", place.group)
    assert [row[4] for row in rows] == ["3", "0", "-5", "3"]
    servers = place.cluster.bootstrap_servers
    for command in ("describe", "lag"):
        assert await asyncio.to_thread(main, [command, place.group, "-o", "json", "--bootstrap-server", servers]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [each["lag"] for each in document["partitions"]] == [3, 0, -5]
        assert (document["lag"] if command == "describe" else document["total"]["lag"]) == 3


async def test_describe_a_group_with_members_of_which_one_reads_nothing(kafka_cluster, place, kafkas, ours):
    def member(name, **more):
        return Consumer(
            place.topic,
            bootstrap_servers=kafka_cluster.bootstrap_servers,
            group_id=place.group,
            client_id=name,
            **SETTINGS,
            **more,
        )

    async with (
        member("a", member_name="one") as first,
        member("b") as second,
        member("c") as third,
        member("d") as fourth,
    ):
        members = (first, second, third, fourth)

        async def has_settled():
            await asyncio.gather(*(each.getmany(timeout_ms=20) for each in members))
            return sorted(len(each.assignment()) for each in members) == [0, 1, 1, 1]

        await eventually(has_settled, within_s=60)
        rows = await described_alike(place, kafkas, ours)
    assert len(rows) == 4
    assert {row[8] for row in rows} == {"a", "b", "c", "d"}
    assert {row[9] for row in rows} == {"one", "-"}


async def test_the_lag_is_everywhere_the_same(place, kafkas, ours):
    columns, rows = await kafkas("--describe", "--group", place.group)
    lag_of = columns.index("LAG")
    our_columns, our_rows = await ours("lag", place.group)
    total = next(row for row in our_rows if row[0] == "TOTAL")
    assert our_columns[4] == "LAG"
    assert int(total[4]) == int(total[6]) == sum(int(row[lag_of]) for row in rows) == 3
    async with place.consumer(**SETTINGS) as consumer:
        lag = await consumer.lag(detail=True)
        known = [each for tp, each in lag.partitions.items() if tp in (place.tp(0), place.tp(1))]
        assert sum(each.lag for each in known) == 3


@pytest.mark.parametrize(
    "where",
    [
        ("--to-earliest",),
        ("--to-current",),
        ("--to-offset", "99"),
        ("--to-datetime", "2020-01-01T00:00:00.000"),
        ("--by-duration", "PT1H"),
    ],
    ids=" ".join,
)
async def test_the_new_offsets_of_a_reset_are_the_same(place, kafkas, ours, where):
    asked = ("--reset-offsets", "--group", place.group, "--topic", place.topic, *where, "--dry-run")
    _, rows = await kafkas(*asked)
    _, our_rows = await ours("reset", place.group, "--topic", place.topic, *where)
    assert sorted(row[1:4] for row in rows) == sorted([row[0], row[1], row[3]] for row in our_rows)


async def test_what_kafkas_tool_exports_is_read(place, kafkas_lines, ours, tmp_path):
    which = ("--group", place.group, "--topic", f"{place.topic}:0,1")
    lines = await kafkas_lines("--reset-offsets", *which, "--shift-by", "0", "--export", "--dry-run")
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in lines))
    _, rows = await ours("reset", place.group, "--from-file", str(file))
    assert [row[1:4] for row in rows] == [["0", "1", "1"], ["1", "4", "4"]]
