"""The commands, and the options that all of them have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiogroup.cli.arguments import positive
from aiogroup.cli.commands import describe, events, groups, lag, members, ranges, reset, tail
from aiogroup.cli.connecting import add_connection

__all__ = ["TOOLS", "make_parser"]

TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Tool:
    """A command line of its own, in the module `room`: `main(arguments, prog)` returns the exit code."""

    room: str
    purpose: str


TOOLS: Final = {
    "kafka": Tool("aiogroup.devkafka.__main__", "Apache Kafka itself on this machine, for tests: up, down, fetch"),
    "broker": Tool("aiogroup.embedded.__main__", "the embedded broker, for tests and demos"),
    "spark": Tool("aiogroup.spark.__main__", "what a group has left to batch jobs: pending, drain, liveness"),
}
"""Imported only when they are named."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="aiogroup",
        description="Kafka consumer groups, from outside. Without arguments: the versions, and whether records are "
        "decoded by compiled code.",
        epilog="Exit codes: 0 done, 1 not done, 2 wrong arguments, 3 refused as it would do harm, 4 more is left than "
        "--max-lag allows, 130 Ctrl-C.",
    )
    parser.add_argument("--version", action="store_true", help="the same as without arguments")
    commands = parser.add_subparsers(dest="what", metavar="COMMAND")
    for name, add, purpose in (
        ("groups", groups.add, "every group of the cluster: state, protocol, members, coordinator"),
        ("describe", describe.add, "one group: its partitions, offsets, lag, and who reads them"),
        ("lag", lag.add, "how far a group is behind, once or again and again"),
        ("ranges", ranges.add, "which ranges a group has not processed yet (KIP-333)"),
        ("tail", tail.add, "the records of a topic, outside of any group"),
        ("reset", reset.add, "set a group's offsets; without --execute it only says what would change"),
    ):
        _add(commands, name, add, purpose)
    _add(commands, "events", events.add, "the events of a running service, as JSON, one a line", asks_brokers=False)
    of_members = commands.add_parser("members", help="the members of a group").add_subparsers(
        dest="command", required=True
    )
    _add(of_members, "list", members.add_list, "print them: name, member id, client, host, partitions")
    _add(of_members, "remove", members.add_remove, "take static members out of the group; stop their processes first")
    for name, tool in TOOLS.items():
        commands.add_parser(name, help=tool.purpose, add_help=False)
    return parser


def _add(
    commands: Any,  # noqa: ANN401 (argparse's class for this is private)
    name: str,
    add: Callable[[argparse.ArgumentParser], None],
    purpose: str,
    *,
    asks_brokers: bool = True,
) -> None:
    parser = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
    parser.set_defaults(parser=parser, check=None)
    add(parser)
    parser.add_argument(
        "--timeout-ms", type=positive, default=TIMEOUT_MS, metavar="N", help=f"how long it may take: {TIMEOUT_MS}"
    )
    if asks_brokers:
        add_connection(parser)
        parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table is the default")
    else:  # for who has learnt it of the others
        parser.add_argument("-o", "--output", choices=("json",), default="json", help="there is no other form")
