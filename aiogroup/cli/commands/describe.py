"""`aiogroup describe`: one group, and its partitions in the columns of Kafka's own tool."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from aiogroup._command.printable import document, table
from aiogroup._core.recovery.ranges import count
from aiogroup.admin import GroupMember
from aiogroup.cli.arguments import name_group
from aiogroup.cli.exits import Exit
from aiogroup.cli.looks import GroupLook, PartitionLook, look_once, sum_of_lags
from aiogroup.cli.printing import address, broker_as_json, member_as_json, say

__all__ = ["add"]

SUMMARY: Final = ("GROUP", "STATE", "PROTOCOL", "ASSIGNOR", "MEMBERS", "LAG", "COORDINATOR")
COLUMNS: Final = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    *("INSTANCE-ID", "TOKEN"),
)
"""Kafka's (ConsumerGroupCommand), in its order, then what it does not show."""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    name_group(parser)
    parser.set_defaults(run=run)


async def run(given: argparse.Namespace) -> int:
    """Print the summary, then a line for each partition and each member without one."""
    look = await look_once(given)
    if given.output == "json":
        say(document("describe", **_as_json(look)))
    else:
        say(table(SUMMARY, [[*_summary(look)]]))
        say("")
        rows = [[*_cells(look.group_id, each)] for each in look.partitions]
        rows += [[look.group_id, *[None] * 5, *_who(each), None] for each in look.idle]
        say(table(COLUMNS, rows))
    return Exit.NOT_DONE if look.failures else Exit.DONE


def _summary(look: GroupLook) -> Iterator[object]:
    yield from (look.group_id, look.state, look.protocol, look.assignor, look.members_count)
    yield sum_of_lags(each.lag for each in look.partitions)
    yield None if look.coordinator is None else address(look.coordinator)


def _cells(group_id: str, each: PartitionLook) -> Iterator[object]:
    yield from (group_id, each.tp.topic, each.tp.partition, each.current, each.log_end, each.lag)
    yield from (None, None, None, None) if each.member is None else _who(each.member)
    yield _token(each)


def _token(each: PartitionLook) -> str | None:
    if each.found.foreign:
        return "not usable"
    return None if each.token is None else f"pending {count(each.pending)}, ahead {each.ahead_count}"


def _who(member: GroupMember) -> tuple[str | None, ...]:
    return member.member_id, member.host, member.client_id, member.name


def _as_json(look: GroupLook) -> dict[str, object]:
    return {
        "group": look.group_id,
        "state": look.state,
        "protocol": look.protocol,
        "protocol_type": look.protocol_type,
        "assignor": look.assignor,
        "members_count": look.members_count,
        "lag": sum_of_lags(each.lag for each in look.partitions),
        "coordinator": None if look.coordinator is None else broker_as_json(look.coordinator),
        "partitions": [
            {
                "topic": each.tp.topic,
                "partition": each.tp.partition,
                "current_offset": each.current,
                "log_end_offset": each.log_end,
                "lag": each.lag,
                "member": None if each.member is None else member_as_json(each.member),
                "token": _token_as_json(each),
            }
            for each in look.partitions
        ],
        "idle_members": [member_as_json(each) for each in look.idle],
    }


def _token_as_json(each: PartitionLook) -> dict[str, object] | None:
    if each.found.foreign:
        return {"is_usable": False, "why": each.found.foreign}
    if each.token is None:
        return None
    return {"is_usable": True, "pending_count": count(each.pending), "ahead_count": each.ahead_count}
