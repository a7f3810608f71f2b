"""`aiogroup ranges`: what the tokens in a group's commits say, and what jobs have done of it (KIP-333)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from aiogroup._command.printable import document, table
from aiogroup._core.recovery.ranges import count
from aiogroup.cli.arguments import name_group
from aiogroup.cli.exits import Exit
from aiogroup.cli.looks import PartitionLook, look_once
from aiogroup.cli.printing import say, tell

__all__ = ["add"]

COLUMNS: Final = ("TOPIC", "PARTITION", "LOW-WATER-MARK", "LIVE", "PENDING", "AHEAD", "RANGES", "TOKEN")
SHOWN_COUNT: Final = 4
"""So many ranges stand in a line of the table; JSON has them all."""


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    name_group(parser)
    parser.set_defaults(run=run)


async def run(given: argparse.Namespace) -> int:
    """Print a line for each partition whose commit has a token, usable or not."""
    look = await look_once(given)
    with_token = [each for each in look.partitions if each.token is not None or each.found.foreign]
    if given.output == "json":
        say(document("ranges", group=look.group_id, partitions=[_as_json(each) for each in with_token]))
    elif with_token:
        say(table(COLUMNS, [[*_cells(each)] for each in with_token]))
    elif not look.failures:
        tell(f"no commit of group {given.group!r} has a token: everything before the committed offsets is processed")
    return Exit.NOT_DONE if look.failures else Exit.DONE


def _cells(each: PartitionLook) -> Iterator[object]:
    yield from (each.tp.topic, each.tp.partition, each.current)
    if each.token is None:
        yield from (None, None, None, None, f"not usable: {each.found.foreign}")
        return
    shown = ",".join(map(str, each.pending[:SHOWN_COUNT]))
    left_count = len(each.pending) - SHOWN_COUNT
    yield from (each.live, count(each.pending), each.ahead_count)
    yield f"{shown} and {left_count} more" if left_count > 0 else shown
    yield "usable" if each.token.handoff is None else "usable, left to jobs"


def _as_json(each: PartitionLook) -> dict[str, object]:
    token = each.token
    return {
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "low_water_mark": each.current,
        "live": None if token is None else token.live,
        "pending": None if token is None else [[span.start, span.end] for span in each.pending],
        "pending_count": None if token is None else count(each.pending),
        "ahead_count": None if token is None else each.ahead_count,
        "is_left_to_jobs": token is not None and token.handoff is not None,
        "is_usable": token is not None,
        "why_not": each.found.foreign or None,
    }
