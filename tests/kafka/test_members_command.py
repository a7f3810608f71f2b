"""`aiogroup members`: a static member is taken out of its group from outside (KIP-345), and what is told if not."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiogroup import Consumer, GroupAuthorizationError, GroupNotFoundError, KafkaTimeoutError, MemberNotFoundError
from aiogroup.__main__ import main
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.telemetry import events
from aiogroup.admin import list_members, remove_members
from aiogroup.errors import ConnectionLostError
from aiogroup.testing import Proxy
from tests.support.group_members import Member, named, running, shared_out, until

ROOT = Path(__file__).parents[2]
NAMED = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 200, "max_poll_interval_ms": 60_000}
"""The session never ends within a test."""


@pytest.fixture
async def topic(kafka_cluster, unique_name):
    name = unique_name("members")
    await asyncio.to_thread(kafka_cluster.create_topic, name, 4)
    return name


async def command(*arguments):
    """Run it as a process; gives its exit code and what it said."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "aiogroup", "members", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


async def test_a_member_that_does_not_come_back_is_removed_by_name(kafka_cluster, topic, group):
    where = ("--bootstrap-server", kafka_cluster.bootstrap_servers, "--group", group)
    gone, stays = (Member(kafka_cluster, group, topic, **NAMED, member_name=name) for name in ("one", "two"))
    dynamic = Member(kafka_cluster, group, topic, **NAMED, client_id="nameless")
    async with running(gone, stays, dynamic):
        await shared_out(4, gone, stays, dynamic)
        held = gone.partitions
        await gone.stop()
        listed = await command("list", *where)
        assert (listed.returncode, listed.stderr) == (0, "")
        header, *rows = [line.split() for line in listed.stdout.splitlines()]
        assert header == ["NAME", "MEMBER-ID", "CLIENT-ID", "HOST", "PARTITIONS"]
        assert [(name, client) for name, _, client, _, _ in rows] == [
            ("one", "aiogroup"),
            ("two", "aiogroup"),
            ("-", "nameless"),
        ]
        assert rows[0][3:] == ["127.0.0.1", f"{topic}:{','.join(map(str, held))}"]
        since = len(stays.log)
        removed = await command("remove", "one", *where)
        assert (removed.returncode, removed.stderr) == (0, "")
        assert [line.split()[0] for line in removed.stdout.splitlines()] == ["NAME", "one"]
        await shared_out(4, stays, dynamic, seconds=10)
        assert stays.count(events.RebalanceStarted, since=since) == 1
        again = await command("remove", "one", *where)
        assert (again.returncode, again.stdout) == (1, "")
        assert again.stderr == f"aiogroup: group {group!r} has no static member 'one'; it has two\n"
        assert stays.error is None


async def test_a_removed_member_that_still_runs_comes_back_with_its_name(kafka_cluster, topic, group):
    member = Member(kafka_cluster, group, topic, **NAMED, member_name="one")
    async with running(member):
        await shared_out(4, member)
        (removed,) = await remove_members(group, ["one"], bootstrap_servers=kafka_cluster.bootstrap_servers)
        assert set(removed.partitions) == set(named(topic, 0, 1, 2, 3))
        await until(lambda: member.rebalances == 2 and member.partitions == [0, 1, 2, 3], what=member.tail)
        (back,) = await list_members(group, bootstrap_servers=kafka_cluster.bootstrap_servers)
        assert back.name == "one"
        assert back.member_id != removed.member_id


async def test_one_unknown_name_removes_nobody(kafka_cluster, topic, group):
    servers = {"bootstrap_servers": kafka_cluster.bootstrap_servers}
    member = Member(kafka_cluster, group, topic, **NAMED, member_name="one")
    async with running(member):
        with pytest.raises(MemberNotFoundError, match="no static member 'three', 'two'; it has one"):
            await remove_members(group, ["one", "three", "two"], **servers)
        await member.beats(3)
        assert member.rebalances == 1
        assert await remove_members(group, [], **servers) == ()
    assert [each.name for each in await list_members(group, **servers)] == ["one"]


async def test_a_group_that_does_not_exist_is_reported(kafka_cluster, group):
    servers = {"bootstrap_servers": kafka_cluster.bootstrap_servers}
    with pytest.raises(GroupNotFoundError, match=group):
        await list_members(group, **servers)
    with pytest.raises(GroupNotFoundError, match=group):
        await remove_members(group, ["one"], **servers)


async def test_a_group_without_members_is_reported_as_such(kafka_cluster, topic, group, capsys):
    async with Consumer(topic, bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=group) as consumer:
        assert len(await list_members(group, bootstrap_servers=kafka_cluster.bootstrap_servers)) == 1
        assert consumer.assignment()
        await consumer.getmany(timeout_ms=100)
    arguments = ["members", "list", "--bootstrap-server", kafka_cluster.bootstrap_servers, "--group", group]
    assert await asyncio.to_thread(main, arguments) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"aiogroup: group '{group}' has no members\n"


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(FindCoordinatorRequest, "DESCRIBE"), (DescribeGroupsRequest, "DESCRIBE"), (LeaveGroupRequest, "READ")],
)
async def test_who_may_not_learns_what_to_grant(kafka_cluster, topic, group, kind, operation):
    def refuse(exchange):
        response, code = exchange.response, ErrorCode.GROUP_AUTHORIZATION_FAILED
        if kind is LeaveGroupRequest:
            return dataclasses.replace(response, error_code=code, members=())
        field = "groups" if kind is DescribeGroupsRequest else "coordinators"
        return dataclasses.replace(
            response, **{field: tuple(dataclasses.replace(each, error_code=code) for each in getattr(response, field))}
        )

    member = Member(kafka_cluster, group, topic, **NAMED, member_name="one")
    async with running(member), Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(kind, refuse)
        with pytest.raises(GroupAuthorizationError, match=f"grant {operation} on the group"):
            await remove_members(group, ["one"], bootstrap_servers=proxy.bootstrap_servers)


async def test_a_coordinator_that_moves_is_looked_up_again(kafka_cluster, topic, group):
    refusals = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

    def refuse(exchange):
        if not refusals:
            return None
        (described,) = exchange.response.groups
        return dataclasses.replace(
            exchange.response, groups=(dataclasses.replace(described, error_code=refusals.pop(), members=()),)
        )

    member = Member(kafka_cluster, group, topic, **NAMED, member_name="one")
    async with running(member), Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.rewrite(DescribeGroupsRequest, refuse)
        (listed,) = await list_members(group, bootstrap_servers=proxy.bootstrap_servers)
        assert listed.name == "one"
        assert proxy.count(FindCoordinatorRequest) == 3


async def test_it_ends_in_its_time_when_nobody_answers(kafka_cluster, group):
    async with Proxy(kafka_cluster.bootstrap_servers) as proxy:
        proxy.drop(DescribeGroupsRequest)
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "default_api_timeout_ms": 1_000}
        with pytest.raises(KafkaTimeoutError, match="default_api_timeout_ms=1000"):
            await asyncio.wait_for(list_members(group, **settings), 5)
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        await asyncio.wait_for(list_members(group, bootstrap_servers="127.0.0.1:1"), 10)


async def test_the_command_takes_the_properties_of_kafkas_tools(secure, unique_name, tmp_path):
    group = unique_name("group")
    config = tmp_path / "client.properties"

    def write(password):
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nauto.offset.reset=latest\n"
            f"ssl.truststore.location={secure.ca_pem}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="alice" password="{password}";\n'
        )

    where = ("--bootstrap-server", secure.bootstrap("SASL_SSL"), "--group", group, "--command-config", str(config))
    write("s3cret-of-alice")
    let_in = await command("list", *where)
    assert (let_in.returncode, let_in.stdout) == (1, "")
    assert group in let_in.stderr  # it got as far as the coordinator, which has no such group
    write("wr0ng-word")
    refused = await command("list", *where)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "refused the credentials" in refused.stderr
    assert "wr0ng-word" not in refused.stderr
