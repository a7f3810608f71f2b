"""Where the commands print, and what several of them print alike."""

from __future__ import annotations

import os
import select
import sys
from typing import Final, TextIO

from aiogroup._command.printable import clean
from aiogroup._core.cluster import Broker
from aiogroup.admin import GroupMember

__all__ = [
    "Output",
    "OutputLostError",
    "address",
    "broker_as_json",
    "check_reader",
    "duration",
    "member_as_json",
    "output",
    "say",
    "say_on",
    "tell",
]

UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


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


class OutputLostError(Exception):
    """Nothing more that was asked for can be printed, so there is no use in going on."""


class Output:
    """What became of standard output. `lost` says why the rest could not be written, as a full disk; a reader that has
    had enough, as `head`, is no error, and then it is empty.
    """

    def __init__(self) -> None:
        self.lost: str | None = None


output: Final = Output()


def say(text: str) -> None:
    """Print what was asked for. What cannot be printed changes nothing of what is done and found: `output` has it."""
    if output.lost is not None:
        return
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        output.lost = "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
        _write_nowhere(sys.stdout)


def say_on(text: str) -> None:
    """Print the next of many.

    Raises:
        OutputLostError: it cannot be printed.
    """
    say(text)
    if output.lost is not None:
        raise OutputLostError


def check_reader() -> None:
    """While there is nothing to print: end as the next `say_on` would where the reader of a pipe, as `head`, has gone.

    Raises:
        OutputLostError: nobody reads what is printed.
    """
    try:
        polled = select.poll()
        polled.register(sys.stdout, 0)  # an error or the other side's end is told without being asked for
    except (AttributeError, OSError, ValueError):  # Windows has no poll, and not every output is a file
        return
    if polled.poll(0):
        output.lost = ""
        raise OutputLostError


def tell(text: str) -> None:
    """Print what went wrong, or what to do next, beside what was asked for; the exit code says it without words."""
    if sys.stderr is None:  # it was closed before the start
        return
    try:
        sys.stderr.write(f"aiogroup: {clean(text)}\n")
        sys.stderr.flush()
    except OSError:
        _write_nowhere(sys.stderr)


def _write_nowhere(stream: TextIO) -> None:
    """Python flushes once more when it ends: what is left then goes to no file, and is no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
