"""`aiogroup` prints what is installed.

`aiogroup members list | remove` lists the members of a group, or removes some.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import logging
import platform
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import aiogroup
from aiogroup.admin import GroupMember, list_members, remove_members
from aiogroup.errors import AiogroupError
from aiogroup.native.diagnosis import why_not_compiled
from aiogroup.verifiable.properties import consumer_settings, load_properties


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aiogroup",
        description="Kafka consumer groups, from outside. Without arguments: the versions, and whether records are "
        "decoded by compiled code.",
    )
    parser.add_argument("--version", action="store_true", help="the same as without arguments")
    members = parser.add_subparsers(dest="what").add_parser("members", help="the members of a group")
    commands = members.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="print them: name, member id, client, host, partitions")
    removing = commands.add_parser("remove", help="take static members out of the group; stop their processes first")
    removing.add_argument("names", nargs="+", metavar="NAME", help="member_name (group_instance_id)")
    removing.add_argument("--reason", default="removed by name", help="for the broker's log")
    for each in (listing, removing):
        each.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]")
        each.add_argument("--group", required=True)
        each.add_argument("--timeout-ms", type=int, default=30_000)
        each.add_argument(
            "--command-config", type=Path, metavar="FILE", help="Java properties: security.protocol, sasl.*, ssl.*"
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 when it is done, 1 when it failed, 2 for bad arguments."""
    given = _parser().parse_args(arguments)
    if given.version or given.what is None:
        for line in _versions():
            _say(line)
        return 0
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # an error is printed once, below
    try:
        settings = _settings(given)
        if given.command == "list":
            members = asyncio.run(list_members(given.group, **settings))
            for each in members:
                _say(_line(each))
            if not members:  # to stderr, as each line of stdout is a member
                sys.stderr.write(f"aiogroup: group {given.group!r} has no members\n")
            return 0
        for each in asyncio.run(remove_members(given.group, given.names, reason=given.reason, **settings)):
            _say(f"removed {each.name} from {given.group}: {_line(each)}")
    except (AiogroupError, OSError, ValueError) as error:
        sys.stderr.write(f"aiogroup: {error}\n")
        return 1
    return 0


def _versions() -> Iterator[str]:
    yield f"aiogroup {aiogroup.__version__} in {Path(aiogroup.__file__).parent}"
    yield f"Python {platform.python_version()} ({platform.python_implementation()}, {platform.platform()})"
    yield f"aiokafka {importlib.metadata.version('aiokafka')}"
    slow = why_not_compiled()
    if slow is None:
        yield "records are decoded by compiled code"
    else:
        yield f"records are decoded in Python, which takes several times as long: {slow.why}"
        yield f"what to do: {slow.what_to_do}"


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if given.command_config is not None:
        read, _ = consumer_settings(load_properties(given.command_config))
        settings = {name: value for name, value in read.items() if name.startswith(("security_", "sasl_", "ssl_"))}
    limit_ms = max(1, given.timeout_ms)
    return {
        **settings,
        "bootstrap_servers": given.bootstrap_server,
        "default_api_timeout_ms": limit_ms,
        "request_timeout_ms": max(501, min(10_000, limit_ms)),
    }


def _line(member: GroupMember) -> str:
    topics = groupby(sorted(member.partitions), key=lambda tp: tp.topic)
    partitions = " ".join(f"{topic}:{','.join(str(tp.partition) for tp in of_topic)}" for topic, of_topic in topics)
    return "\t".join((member.name or "-", member.member_id, member.client_id, member.host, partitions or "-"))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
