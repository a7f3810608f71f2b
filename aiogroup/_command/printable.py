"""What commands print: tables for people, JSON for programs. What comes from a cluster is data, not text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["clean", "document", "shown", "table"]

VERSION: Final = 1
"""The version of all JSON documents. It grows when a field is renamed, removed, or gets another meaning."""
UNKNOWN: Final = "-"


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


def document(command: str, **fields: Any) -> str:  # noqa: ANN401 (whatever JSON can hold)
    """One JSON document on one line, in ASCII, so that no terminal obeys what is in it."""
    return json.dumps({"command": command, "version": VERSION, **fields})
