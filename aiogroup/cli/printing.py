"""What the commands print: tables for people, JSON for programs. What comes from a cluster is data, not text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiogroup.admin import GroupMember
from aiogroup.cluster import Broker

__all__ = [
    "address",
    "broker_as_json",
    "clean",
    "document",
    "duration",
    "member_as_json",
    "say",
    "shown",
    "table",
    "tell",
]

VERSION: Final = 1
"""The version of all JSON documents. It grows when a field is renamed, removed, or gets another meaning."""
UNKNOWN: Final = "-"
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def clean(text: str) -> str:
    """The text without anything that a terminal obeys: escapes, line ends, marks that turn the direction of writing."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shown(value: object) -> str:
    """The text of a cell: `-` for what is not known."""
    return UNKNOWN if value is None or value == "" else clean(str(value))


def table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """The rows under the names of their columns; columns of numbers stand to the right."""
    values = [[*row] for row in rows]
    cells = [[shown(value) for value in row] for row in values]
    is_number = [_is_of_numbers(row[at] for row in values) for at in range(len(columns))]
    widths = [max(len(line[at]) for line in ([*columns], *cells)) for at in range(len(columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in ([*columns], *cells)
    ]
    return "\n".join(lines)


def _is_of_numbers(values: Iterable[object]) -> bool:
    known = [each for each in values if each is not None]
    return bool(known) and all(isinstance(each, int) for each in known)


def duration(left_ms: int | None) -> str | None:
    """A duration with its two greatest units: `3h20m`."""
    if left_ms is None:
        return None
    left_s = -(-left_ms // 1_000)
    parts: list[str] = []
    for size, unit in UNITS:
        if left_s >= size or parts:
            parts.append(f"{left_s // size}{unit}")
            left_s %= size
    return "".join([*parts, f"{left_s}s"][:2])


def address(broker: Broker) -> str:
    """Where a broker is, with its id, as Kafka's tool writes it."""
    return f"{broker.host}:{broker.port} ({broker.node_id})"


def broker_as_json(broker: Broker) -> dict[str, object]:
    """A broker in a document."""
    return {"node_id": broker.node_id, "host": broker.host, "port": broker.port}


def member_as_json(member: GroupMember) -> dict[str, object]:
    """A member of a group in a document."""
    return {
        "name": member.name,
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
    }


def document(command: str, **fields: Any) -> str:  # noqa: ANN401 (whatever JSON can hold)
    """One JSON document on one line, in ASCII, so that no terminal obeys what is in it."""
    return json.dumps({"command": command, "version": VERSION, **fields})


def say(text: str) -> None:
    """Print what was asked for."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print what went wrong, or what to do next, beside what was asked for."""
    sys.stderr.write(f"aiogroup: {clean(text)}\n")
    sys.stderr.flush()
