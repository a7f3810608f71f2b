"""`aiogroup members`: lists the members of a group, and takes static ones out of it (KIP-345)."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import Final

from aiogroup._command.printable import document, table
from aiogroup.admin import GroupMember, list_members, remove_members
from aiogroup.cli.arguments import Once, name_as_kafka, sendable
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.exits import Exit
from aiogroup.cli.printing import member_as_json, say, tell

__all__ = ["add_list", "add_remove"]

COLUMNS: Final = ("NAME", "MEMBER-ID", "CLIENT-ID", "HOST", "PARTITIONS")


def add_list(parser: argparse.ArgumentParser) -> None:
    """The arguments of `members list`."""
    name_as_kafka(parser, "group", sendable)
    parser.set_defaults(run=run_list)


def add_remove(parser: argparse.ArgumentParser) -> None:
    """The arguments of `members remove`."""
    parser.add_argument("names", nargs="+", type=sendable, metavar="NAME", help="member_name (group_instance_id)")
    parser.add_argument("--reason", type=sendable, default="removed by name", help="for the broker's log")
    parser.add_argument(
        "--group", action=Once, type=sendable, required=True, metavar="GROUP", help="of which they are members"
    )
    parser.set_defaults(run=run_remove)


async def run_list(given: argparse.Namespace) -> int:
    """Print the members, one a line under the names of the columns."""
    members = await list_members(given.group, **settings_of(given))
    if given.output == "json":
        say(document("members list", group=given.group, members=[_as_json(each) for each in members]))
        return Exit.DONE
    if members:
        say(table(COLUMNS, map(_cells, members)))
    else:
        tell(f"group {given.group!r} has no members")
    return Exit.DONE


async def run_remove(given: argparse.Namespace) -> int:
    """Remove the members, and print them in the same way."""
    removed = await remove_members(given.group, given.names, reason=given.reason, **settings_of(given))
    if given.output == "json":
        say(document("members remove", group=given.group, removed=[_as_json(each) for each in removed]))
        return Exit.DONE
    say(table(COLUMNS, map(_cells, removed)))
    return Exit.DONE


def _cells(member: GroupMember) -> tuple[str | None, ...]:
    topics = groupby(sorted(member.partitions), key=lambda tp: tp.topic)
    partitions = " ".join(f"{topic}:{','.join(str(tp.partition) for tp in of_topic)}" for topic, of_topic in topics)
    return member.name, member.member_id, member.client_id, member.host, partitions


def _as_json(member: GroupMember) -> dict[str, object]:
    partitions = [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(member.partitions)]
    return {**member_as_json(member), "partitions": partitions}
