"""`aiogroup reset`: what it says it would do, what it does, and what it refuses to do."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import Found, Token
from aiogroup.cli.exits import NotDoneError
from aiogroup.cli.looks import PartitionLook
from aiogroup.cli.reset_plan import Change, change_of, read_file, written_file
from aiogroup.embedded import asked, stable
from tests.cli.shapes import check

TP = TopicPartition("orders", 0)
HEAD = "TOPIC   PARTITION  OLD-OFFSET  NEW-OFFSET  REPEATED  SKIPPED\n"


def at(committed, log_start, log_end, live=None, pending=()):
    token = Token("", live, -1, tuple(Range(*each) for each in pending)) if pending else None
    return PartitionLook(TP, None if committed is None else Committed(committed), log_start, log_end, Found(token, ""))


@pytest.mark.parametrize(
    ("look", "wanted", "new", "repeated_count", "skipped_count"),
    [
        (at(4, 0, 10), 0, 0, 4, 0),
        (at(4, 0, 10), 4, 4, 0, 0),
        (at(4, 0, 10), 10, 10, 0, 6),
        (at(4, 0, 10), 99, 10, 0, 6),
        (at(4, 2, 10), 0, 2, 2, 0),
        (at(1, 2, 10), 5, 5, 0, 3),
        (at(12, 0, 10), 0, 0, 10, 0),
        (at(0, 0, 0), 5, 0, 0, 0),
        (at(None, 0, 10), 5, 5, None, None),
        (at(2, 0, 10, 8, [(2, 4), (6, 7)]), 0, 0, 2 + 3, 0),
        (at(2, 0, 10, 8, [(2, 4), (6, 7)]), 2, 2, 3, 0),
        (at(2, 0, 10, 8, [(2, 4), (6, 7)]), 5, 5, 2, 2),
        (at(2, 0, 10, 8, [(2, 4), (6, 7)]), 10, 10, 0, 3 + 2),
        (at(2, 3, 10, 8, [(2, 4), (6, 7)]), 10, 10, 0, 2 + 2),
    ],
)
def test_what_is_repeated_and_what_is_skipped(look, wanted, new, repeated_count, skipped_count):
    change = change_of(look, wanted)
    assert (change.new, change.wanted) == (new, wanted)
    assert (change.repeated_count, change.skipped_count) == (repeated_count, skipped_count)


def test_what_is_written_can_be_read():
    changes = [Change(TopicPartition("orders", n), 1, n + 5, n + 5, 0, 0, ()) for n in range(2)]
    text = written_file(changes)
    assert text == "orders,0,5\norders,1,6"
    assert read_file(text, "billing") == {TopicPartition("orders", n): n + 5 for n in range(2)}


def test_a_file_may_be_about_several_groups():
    assert read_file("billing,orders,0,5\naudit,orders,0,6\n", "audit") == {TP: 6}


@pytest.mark.parametrize("text", ["", "orders,0", "orders,a,1", "orders,0,-1", "audit,orders,0,6", "a,b,orders,0,1"])
def test_a_file_that_makes_no_sense_is_refused(text):
    with pytest.raises(NotDoneError):
        read_file(text, "billing")


# On a broker.


async def test_without_execute_nothing_changes(run, commit, broker):
    await commit({("orders", 0): 4})
    told = await run("reset", "billing", "--topic", "orders:0", "--to-earliest")
    assert told.code == 0
    assert told.out == f"{HEAD}orders          0           4           0         4        0\n"
    assert told.err == "aiogroup: nothing was changed: add --execute to do it\n"
    assert broker.committed("billing") == {TP: 4}


async def test_with_execute_it_is_done(run, commit, broker):
    await commit({("orders", 0): 4})
    told = await run("reset", "billing", "--topic", "orders", "--to-latest", "--execute")
    assert told.code == 0
    assert told.out == (
        f"{HEAD}orders          0           4          10         0        6\n"
        "orders          1           -           4         -        -\n"
    )
    assert told.err == "aiogroup: 6 records that the group has not processed are skipped\n"
    assert broker.committed("billing") == {TP: 10, ("orders", 1): 4}


@pytest.mark.parametrize(
    ("to", "new"),
    [
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--to-offset", "70"], 10),
        (["--shift-by", "-3"], 1),
        (["--shift-by", "-30"], 0),
        (["--shift-by", "2"], 6),
        (["--to-datetime", "1970-01-01T00:00:00"], 0),
        (["--to-datetime", "2999-01-01T00:00:00"], 10),
        (["--by-duration", "1h"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
async def test_where_to(run, commit, broker, to, new):
    await commit({("orders", 0): 4})
    told = await run("reset", "billing", "--all-topics", *to, "--execute", "-o", "json")
    check(told.json)
    assert (told.code, told.json["is_executed"], broker.committed("billing")[TP]) == (0, True, new)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
async def test_what_is_exported_can_be_taken_back(run, commit, broker, tmp_path, encoding):
    await commit({("orders", 0): 4, ("orders", 1): 1})
    exported = await run("reset", "billing", "--all-topics", "--to-current", "--export")
    assert (exported.code, exported.out) == (0, "orders,0,4\norders,1,1\n")
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out, encoding=encoding)
    assert (await run("reset", "billing", "--all-topics", "--to-latest", "--execute")).code == 0
    assert (await run("reset", "billing", "--from-file", str(file), "--execute")).code == 0
    assert broker.committed("billing") == {TP: 4, ("orders", 1): 1}


async def test_a_file_with_a_field_that_is_too_long_is_told(run, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_text(f"orders,0,4\n{'x' * 131_073},1,1\n")
    told = await run("reset", "billing", "--from-file", str(file))
    assert (told.code, told.out) == (1, "")
    assert "line 2 of the file cannot be read (field larger than" in told.err
    assert "topic,partition,offset is needed" in told.err


async def test_a_group_that_is_not_there_yet_is_made(run, broker):
    told = await run("reset", "billing", "--topic", "orders:1", "--to-offset", "2", "--execute")
    assert told.code == 0
    assert "there is no group 'billing' yet" in told.err
    assert broker.committed("billing") == {("orders", 1): 2}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--topic", "none", "--to-latest"], "there is no topic 'none'"),
        (["--topic", "orders:2", "--to-latest"], "has 2 partitions, and not orders-2"),
        (["--topic", "orders:1", "--shift-by", "1"], "nothing is committed there"),
        (["--all-topics", "--to-latest"], "has committed nothing"),
    ],
)
async def test_what_cannot_be_done_is_told(run, arguments, why):
    told = await run("reset", "billing", *arguments, "--execute")
    assert (told.code, told.out) == (1, "")
    assert why in told.err


async def test_an_active_group_is_refused_and_its_members_named(run, commit, broker):
    await commit({TP: 4})
    servers = broker.bootstrap_servers
    async with Consumer("orders", bootstrap_servers=servers, group_id="billing", member_name="one", client_id="pay"):
        await broker.until(stable("billing", members=1))
        for execute in ([], ["--execute"]):
            told = await run("reset", "billing", "--topic", "orders:0", "--to-latest", *execute)
            assert told.code == 3
            assert told.err.endswith(
                "refused: group 'billing' is Stable: stop its members first: one (pay at 127.0.0.1)\n"
            )
            assert told.out.startswith(HEAD)
        assert broker.committed("billing")[TP] == 4


async def test_a_group_that_becomes_active_between_look_and_commit_is_refused(run, commit, broker):
    await commit({TP: 4})
    joined = threading.Event()
    broker.hold("ListOffsets", until=joined, times=1)
    resetting = asyncio.ensure_future(run("reset", "billing", "--topic", "orders:0", "--to-latest", "--execute"))
    await broker.until(asked("ListOffsets"))
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", "enable_auto_commit": False}
    async with Consumer("orders", member_name="one", **settings):
        await broker.until(stable("billing", members=1))
        joined.set()
        told = await resetting
    assert told.code == 3
    assert "one (aiogroup at 127.0.0.1); it became active meanwhile" in told.err
    assert broker.committed("billing")[TP] == 4


async def test_what_a_member_has_committed_since_the_look_is_not_overwritten(run, commit, broker):
    await commit({TP: 4})
    has_left = threading.Event()
    broker.hold("ListOffsets", until=has_left, times=1)
    resetting = asyncio.ensure_future(run("reset", "billing", "--topic", "orders", "--to-latest", "--execute"))
    await broker.until(asked("ListOffsets"))
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", "enable_auto_commit": False}
    async with Consumer("orders", **settings) as consumer:
        await consumer.commit({TP: 6})
    has_left.set()
    told = await resetting
    assert told.code == 3
    assert "group 'billing' has committed in orders-0 since the look" in told.err
    assert broker.committed("billing") == {TP: 6}


async def test_what_cannot_be_compared_with_the_look_is_not_overwritten(run, commit, broker):
    await commit({TP: 4})
    with broker.error("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=0, times=None):
        told = await run("reset", "billing", "--topic", "orders:0", "--to-latest", "--execute")
    assert told.code == 3
    assert "what is committed in orders-0 cannot be read again: TOPIC_AUTHORIZATION_FAILED" in told.err
    assert broker.committed("billing") == {TP: 4}


async def test_a_part_that_was_set_before_a_member_joined_is_not_called_refused(run, commit, broker):
    await commit({TP: 4, ("orders", 1): 1})
    broker.error("OffsetCommit", "UNKNOWN_MEMBER_ID", topic="orders", partition=1)
    told = await run("reset", "billing", "--all-topics", "--to-latest", "--execute", "-o", "json")
    check(told.json)
    assert (told.code, told.json["is_executed"], told.json["refusals"]) == (1, True, [])
    assert [each["error"] is None for each in told.json["partitions"]] == [True, False]
    assert told.err.count("orders-1: ") == 1
    assert broker.committed("billing") == {TP: 10, ("orders", 1): 1}


async def test_pending_ranges_are_not_dropped_unless_that_is_asked_for(run, commit, broker, token):
    await commit({TP: (2, token)})
    refused = await run("reset", "billing", "--all-topics", "--to-latest", "--execute", "-o", "json")
    check(refused.json)
    assert (refused.code, refused.json["is_executed"], broker.committed("billing")[TP]) == (3, False, 2)
    assert "orders-0 (3 offsets)" in refused.err
    assert "Pass --drop-pending" in refused.err
    done = await run("reset", "billing", "--all-topics", "--to-latest", "--drop-pending", "--execute", "-o", "json")
    check(done.json)
    (of_orders,) = done.json["partitions"]
    assert (of_orders["repeated_count"], of_orders["skipped_count"]) == (0, 5)
    assert (done.code, broker.committed("billing")[TP], broker.committed("billing")[TP].metadata) == (0, 10, "")


async def test_what_a_broker_refuses_for_one_partition_is_told(run, commit, broker):
    await commit({TP: 4, ("orders", 1): 1})
    broker.error("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1)
    told = await run("reset", "billing", "--all-topics", "--to-latest", "--execute", "-o", "json")
    check(told.json)
    assert told.code == 1
    assert [each["error"] is None for each in told.json["partitions"]] == [True, False]
    assert broker.committed("billing") == {TP: 10, ("orders", 1): 1}


async def test_an_unknown_bound_changes_nothing(run, commit, broker):
    await commit({TP: 4, ("orders", 1): 1})
    broker.error("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1, times=None)
    told = await run("reset", "billing", "--all-topics", "--to-latest", "--execute", "--timeout-ms", "3000")
    assert (told.code, told.out) == (1, "")
    assert "nothing was changed, as the bounds of orders-1 are not known" in told.err
    assert broker.committed("billing")[TP] == 4
