"""What is shown of groups: the golden tables of `groups`, `describe`, `lag`, `ranges`, and their documents."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiogroup import Consumer, TopicPartition
from aiogroup.__main__ import main
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import (
    DoneRanges,
    HandOffNote,
    LogId,
    Token,
    second_group_mark,
    write_done,
    write_token,
)
from aiogroup.cli.asking import asked
from aiogroup.cli.looks import PartitionLook
from aiogroup.embedded import stable
from tests.cli.shapes import check


@pytest.fixture
async def member(broker, commit):
    """A static member `one` of the group `billing`, which has committed 4 in orders-0."""
    await commit({("orders", 0): 4})
    servers = broker.bootstrap_servers
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        client_id="pay",
        member_name="one",
        heartbeat_interval_ms=100,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        await consumer.getmany(timeout_ms=0)
        await broker.until(stable("billing", members=1))
        yield consumer


async def test_groups(run, member, commit):
    await commit({("orders", 1): 1}, group="audit")
    listed = await run("groups")
    assert (listed.code, listed.err) == (0, "")
    assert listed.table == (
        "GROUP    STATE   PROTOCOL  MEMBERS  COORDINATOR\n"
        "audit    Empty   classic         0  127.0.0.1:PORT- (1)\n"
        "billing  Stable  classic         1  127.0.0.1:PORT- (1)\n"
    )
    check((await run("groups", "-o", "json")).json)


async def test_groups_of_some_states(run, member, commit):
    await commit({("orders", 1): 1}, group="audit")
    empty = await run("groups", "--state", "empty,Dead", "-o", "json")
    assert [each["group"] for each in empty.json["groups"]] == ["audit"]


async def test_no_groups(run):
    listed = await run("groups")
    assert (listed.code, listed.out) == (0, "GROUP  STATE  PROTOCOL  MEMBERS  COORDINATOR\n")


async def test_describe(run, member):
    described = await run("describe", "billing")
    assert (described.code, described.err) == (0, "")
    who = "one-UUID--------------------------------  127.0.0.1  pay        one          -"
    assert described.table == (
        "GROUP    STATE   PROTOCOL  ASSIGNOR  MEMBERS  LAG  COORDINATOR\n"
        "billing  Stable  classic   range           1    6  127.0.0.1:PORT- (1)\n"
        "\n"
        "GROUP    TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID                               "
        "HOST       CLIENT-ID  INSTANCE-ID  TOKEN\n"
        f"billing  orders          0               4              10    6  {who}\n"
        f"billing  orders          1               -               4    -  {who}\n"
    )
    check((await run("describe", "billing", "-o", "json")).json)


async def test_describe_a_group_that_has_only_commits(run, commit):
    await commit({("orders", 0): 10})
    described = await run("describe", "billing")
    assert described.code == 0
    assert described.table.splitlines()[-1].split() == [
        *("billing", "orders", "0", "10", "10", "0", "-", "-", "-", "-", "-")
    ]


async def test_a_member_without_partitions_has_a_line(run, member, broker):
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
    second, third = Consumer("orders", **settings), Consumer("orders", **settings)
    starts = [asyncio.ensure_future(each.start()) for each in (second, third)]

    async def are_started():  # a member with a record in hand hands nothing over until it asks for the next
        await member.getmany(timeout_ms=20)
        return all(each.done() for each in starts)

    async def is_rebalanced():
        await asyncio.gather(*(each.getmany(timeout_ms=20) for each in (member, second, third)))
        return stable("billing", members=3).holds(broker)

    async with AsyncExitStack() as ending:
        for each in (second, third):
            ending.push_async_callback(each.stop)
        await broker.until(are_started)
        await broker.until(is_rebalanced)
        described = (await run("describe", "billing", "-o", "json")).json
        check(described)
        assert (described["members_count"], len(described["idle_members"])) == (3, 1)
        assert len((await run("describe", "billing")).out.splitlines()) == 2 + 2 + 3


@pytest.mark.parametrize("command", ["describe", "lag", "ranges", "members list", "members remove one --group"])
async def test_a_group_that_does_not_exist(run, command):
    ended = await run(*command.split(), "nobody")
    assert (ended.code, ended.out) == (1, "")
    assert "`aiogroup groups` lists those that there are" in ended.err


async def test_lag(run, commit, broker):
    broker.create_topic("bills", 1)
    broker.produce("bills", b"1")
    await commit({("orders", 0): 4, ("orders", 1): 4, ("bills", 0): 0})
    lag = await run("lag", "billing")
    assert (lag.code, lag.err) == (0, "")
    assert lag.out == (
        "TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  AHEAD  LEFT\n"
        "bills           0               0               1    1      0     1\n"
        "orders          0               4              10    6      0     6\n"
        "orders          1               4               4    0      0     0\n"
        "bills           -               -               -    1      0     1\n"
        "orders          -               -               -    6      0     6\n"
        "TOTAL           -               -               -    7      0     7\n"
    )
    document = (await run("lag", "billing", "-o", "json")).json
    check(document)
    assert (document["total"]["lag"], document["total"]["per_second"]) == (7, None)


@pytest.mark.parametrize(("most", "code"), [("5", 4), ("6", 0)])
async def test_a_lag_above_the_threshold_has_a_code_of_its_own(run, commit, most, code):
    await commit({("orders", 0): 4})
    assert (await run("lag", "billing", "--max-lag", most)).code == code


async def test_a_lag_that_is_not_known_is_not_below_the_threshold(run, member):
    described = (await run("describe", "billing", "-o", "json")).json
    assert [each["current_offset"] for each in described["partitions"]] == [4, None]
    lag = await run("lag", "billing", "--max-lag", "1000")
    assert lag.code == 1
    assert lag.err.endswith("nothing is committed in orders-1, so the lag there is not known\n")
    assert (await run("lag", "billing")).code == 0
    assert (await run("lag", "billing", "--max-lag", "5")).code == 4


def test_where_the_log_holds_nothing_nothing_is_left_also_without_a_commit():
    look = PartitionLook(TopicPartition("quiet", 0), None, 7, 7)
    assert (look.lag, look.left_count) == (None, 0)


async def test_two_looks_give_a_rate(run, commit):
    await commit({("orders", 1): 4})
    lag = await run("lag", "billing", "--interval-ms", "20")
    assert lag.out.splitlines()[0].endswith("LEFT  PER-SECOND  TIME-LEFT")
    assert lag.out.splitlines()[1].endswith("0     0           0  0s")


async def test_a_token_says_what_is_pending(run, commit, token):
    await commit({("orders", 0): (2, token), ("orders", 1): 4})
    ranges = await run("ranges", "billing")
    assert (ranges.code, ranges.err) == (0, "")
    assert ranges.out == (
        "TOPIC   PARTITION  LOW-WATER-MARK  LIVE  PENDING  AHEAD  RANGES   TOKEN\n"
        "orders          0               2     8        3      3  2-4,6-7  usable\n"
    )
    document = (await run("ranges", "billing", "-o", "json")).json
    check(document)
    assert document["partitions"][0]["pending"] == [[2, 4], [6, 7]]
    described = (await run("describe", "billing", "-o", "json")).json
    check(described)
    assert described["partitions"][0]["token"] == {"is_usable": True, "pending_count": 3, "ahead_count": 3}
    assert "  pending 3, ahead 3\n" in (await run("describe", "billing")).out
    (of_orders,) = (await run("lag", "billing", "-o", "json")).json["topics"]
    assert (of_orders["lag"], of_orders["ahead_count"], of_orders["left_count"]) == (8, 3, 5)
    assert (await run("lag", "billing", "--max-lag", "5")).code == 0


@pytest.fixture
async def left_to_jobs(broker, commit):
    """`orders-0` is at 2 of 10, and 2, 3 and 6 are left to jobs. The fixture notes which ranges these have done."""
    async with asked({"bootstrap_servers": broker.bootstrap_servers}) as asking:
        cluster = await asking.cluster(["orders"])
    log_id = LogId(cluster.cluster_id, "orders", cluster.topics["orders"].topic_id, 0)
    note = HandOffNote(second_group_mark("billing.catchup"), False, (1, 1))
    token = Token("00" * 8, 8, -1, (Range(2, 4), Range(6, 7)), note)
    await commit({("orders", 0): (2, write_token(token, log_id))})

    async def done(*ranges, group="billing.catchup", token_id="00" * 8):
        await commit({("orders", 0): (0, write_done(DoneRanges(token_id, ranges), log_id))}, group)

    return done


async def test_what_jobs_have_done_of_a_range_is_not_pending(run, left_to_jobs):
    await left_to_jobs(Range(2, 3), Range(6, 7))
    (of_orders,) = (await run("lag", "billing", "-o", "json")).json["topics"]
    assert (of_orders["lag"], of_orders["ahead_count"], of_orders["left_count"]) == (8, 5, 3)
    ranges = await run("ranges", "billing")
    assert (ranges.code, ranges.err) == (0, "")
    assert " ".join(ranges.out.splitlines()[1].split()) == "orders 0 2 8 1 5 3-4 usable, left to jobs"
    assert (await run("ranges", "billing", "-o", "json")).json["partitions"][0]["pending"] == [[3, 4]]
    described = (await run("describe", "billing", "-o", "json")).json["partitions"][0]["token"]
    assert described == {"is_usable": True, "pending_count": 1, "ahead_count": 5}


async def test_what_was_done_under_another_id_counts_for_nothing(run, left_to_jobs):
    await left_to_jobs(Range(2, 4), token_id="01" * 8)
    assert (await run("ranges", "billing", "-o", "json")).json["partitions"][0]["pending"] == [[2, 4], [6, 7]]


async def test_a_group_in_which_jobs_of_another_name_note_what_they_do_is_named(run, left_to_jobs):
    await left_to_jobs(Range(2, 4), group="other")
    ranges = await run("ranges", "billing", "--catchup-group", "other")
    assert ranges.code == 1
    assert (
        "orders-0: its ranges are left to jobs of another group than 'other': name it by --catchup-group" in ranges.err
    )
    assert (await run("ranges", "billing")).code == 0


async def test_a_token_that_must_not_be_obeyed_is_told_with_its_reason(run, commit, token):
    await commit({("orders", 0): (3, token)})
    ranges = await run("ranges", "billing")
    assert "not usable: its checksum is not that of this offset and partition" in ranges.out
    check((await run("ranges", "billing", "-o", "json")).json)
    described = (await run("describe", "billing", "-o", "json")).json
    check(described)
    assert described["partitions"][0]["token"]["is_usable"] is False


async def test_no_token_is_told_alone(run, commit):
    await commit({("orders", 0): 3})
    ranges = await run("ranges", "billing")
    assert (ranges.code, ranges.out) == (0, "")
    assert ranges.err.startswith("aiogroup: no commit of group 'billing' has a token")


async def test_what_could_not_be_looked_up_is_not_told_to_have_no_token(run, commit, broker):
    await commit({("orders", 0): 3})
    broker.error("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=None)
    ranges = await run("ranges", "billing", "--timeout-ms", "3000")
    assert (ranges.code, ranges.out) == (1, "")
    assert "NOT_LEADER_OR_FOLLOWER" in ranges.err
    assert "has a token" not in ranges.err


async def test_what_one_partition_does_not_tell_is_a_dash_and_the_code_1(run, commit, broker):
    await commit({("orders", 0): 4, ("orders", 1): 4})
    broker.error("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=1, times=None)
    lag = await run("lag", "billing", "--timeout-ms", "3000")
    assert lag.code == 1
    assert lag.out.splitlines()[2].split() == ["orders", "1", "4", "-", "-", "0", "-"]
    assert "orders-1: NOT_LEADER_OR_FOLLOWER" in lag.err


async def test_it_ends_in_its_time_when_nobody_answers(run, broker):
    broker.drop("DescribeGroups")
    ended = await run("describe", "billing", "--timeout-ms", "1000")
    assert (ended.code, ended.out) == (1, "")
    assert "not done within --timeout-ms 1000" in ended.err


async def test_members_as_a_document(run, member):
    listed = (await run("members", "list", "--group", "billing", "-o", "json")).json
    check(listed)
    assert listed["members"][0]["partitions"] == [{"topic": "orders", "partition": n} for n in (0, 1)]
    removed = (await run("members", "remove", "one", "--group", "billing", "-o", "json")).json
    check(removed)
    assert [each["name"] for each in removed["removed"]] == ["one"]


async def test_a_node_that_does_not_answer_is_told_beside_the_groups_of_the_others(make_aiogroup_broker, capsys):
    broker = make_aiogroup_broker(nodes=3)
    broker.cut("ListGroups", node_id=2)
    code = await asyncio.to_thread(main, ["groups", "--bootstrap-server", broker.bootstrap_servers])
    told = capsys.readouterr()
    assert (code, told.out) == (1, "GROUP  STATE  PROTOCOL  MEMBERS  COORDINATOR\n")
    assert told.err.endswith("its groups are missing here\n")
    assert " (2): " in told.err


async def test_a_topic_that_may_not_be_described_is_told(run, commit, broker):
    await commit({("orders", 0): 4})
    broker.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders", times=None)
    lag = await run("lag", "billing")
    assert lag.code == 1
    assert "orders-0: TOPIC_AUTHORIZATION_FAILED: " in lag.err


async def test_a_committed_offset_that_may_not_be_read_is_told(run, commit, broker):
    await commit({("orders", 0): 4, ("orders", 1): 4})
    broker.error("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1, times=None)
    lag = await run("lag", "billing")
    assert lag.code == 1
    assert lag.out.splitlines()[2].split()[:4] == ["orders", "1", "-", "4"]
    assert "orders-1: TOPIC_AUTHORIZATION_FAILED" in lag.err
