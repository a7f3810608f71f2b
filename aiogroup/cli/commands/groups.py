"""`aiogroup groups`: every group of the cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from aiogroup._command.printable import document, table
from aiogroup._core.cluster import Broker
from aiogroup._core.values import dataclass
from aiogroup.cli.asking import Asking, asked
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.exits import Exit
from aiogroup.cli.printing import address, broker_as_json, say, tell

__all__ = ["add"]

STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
"""Kafka's names, of the classic protocol and of the later ones (GroupState.java)."""
COLUMNS: Final = ("GROUP", "STATE", "PROTOCOL", "MEMBERS", "COORDINATOR")


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    state: str | None
    protocol: str | None
    protocol_type: str | None
    members_count: int | None
    coordinator: Broker


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument(
        "--state",
        type=_states,
        default=(),
        metavar="STATE[,...]",
        help=f"only groups in these states: {', '.join(STATES)}",
    )
    parser.set_defaults(run=run)


async def run(given: argparse.Namespace) -> int:
    """Print the groups, one a line."""
    async with asked(settings_of(given)) as asking:
        groups, failures = await asking.within("groups", _look(asking, given.state))
    for failure in failures:
        tell(failure)
    if given.output == "json":
        say(document("groups", groups=[_as_json(each) for each in groups]))
    else:
        say(table(COLUMNS, [_cells(each) for each in groups]))
    return Exit.NOT_DONE if failures else Exit.DONE


async def _look(asking: Asking, states: tuple[str, ...]) -> tuple[list[_Group], list[str]]:
    brokers = (await asking.cluster()).brokers
    listed, silent = await asking.listed(states)
    wanted = {
        node: [each.group_id for each in groups if each.group_type in ("", "classic")]
        for node, groups in listed.items()
    }
    counts, failed = await asking.members_counts(wanted)
    groups = [
        _Group(
            each.group_id,
            each.group_state or None,
            each.group_type or None,
            each.protocol_type or None,
            counts.get(node, {}).get(each.group_id),
            brokers[node],
        )
        for node, of_node in listed.items()
        for each in of_node
    ]
    kept = [each for each in groups if not states or each.state is None or each.state in states]
    failures = [
        *(f"{address(brokers[node])}: {error}; its groups are missing here" for node, error in silent.items()),
        *(f"{address(brokers[node])}: {error}; its members are not counted" for node, error in failed.items()),
    ]
    return sorted(kept, key=lambda each: each.name), failures


def _states(text: str) -> tuple[str, ...]:
    by_name = {each.lower(): each for each in STATES}
    asked_for = [each.strip() for each in text.split(",")]
    if unknown := [each for each in asked_for if each.lower() not in by_name]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no state of a group: {', '.join(STATES)}")
    return tuple(by_name[each.lower()] for each in asked_for)


def _cells(group: _Group) -> Iterator[object]:
    yield from (group.name, group.state, group.protocol, group.members_count, address(group.coordinator))


def _as_json(group: _Group) -> dict[str, object]:
    return {
        "group": group.name,
        "state": group.state,
        "protocol": group.protocol,
        "protocol_type": group.protocol_type,
        "members_count": group.members_count,
        "coordinator": broker_as_json(group.coordinator),
    }
