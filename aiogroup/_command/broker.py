"""What the commands that start a broker have in common: their topics and ports, what they print, and how they end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable
from typing import Final, TextIO

from aiogroup._command.printable import table

__all__ = ["add_topics", "count", "end_at_signals", "ended", "port", "say", "say_topics", "tell", "topics_of"]

PARTITIONS: Final = 4
MOST: Final = 1_000


def add_topics(parser: argparse.ArgumentParser) -> None:
    """The options that make topics."""
    parser.add_argument(
        "--topic",
        action="append",
        type=_topic,
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="make this topic; may be repeated",
    )
    parser.add_argument(
        "--partitions",
        type=count,
        default=PARTITIONS,
        metavar="N",
        help=f"of each topic without a number: {PARTITIONS}",
    )


def topics_of(given: argparse.Namespace) -> list[tuple[str, int]]:
    """The topics to make, each with its number of partitions."""
    return [(name, number or given.partitions) for name, number in given.topic]


def say_topics(topics: Iterable[tuple[str, int]]) -> None:
    """Print the topics that were made."""
    if rows := [*topics]:
        say(table(("TOPIC", "PARTITIONS"), rows))


def _topic(text: str) -> tuple[str, int | None]:
    name, separator, number = text.partition(":")
    return name, count(number) if separator else None


def port(text: str) -> int:
    """A port's number; 0 is one that is free."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to 65535")
    return int(text)


def count(text: str) -> int:
    """How many, at least one."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 to {MOST}")
    return int(text)


def say(text: str) -> None:
    """Print it. Where nobody reads any more, as after `head`, the broker serves on without a word."""
    _write(sys.stdout, text)


def tell(text: str) -> None:
    """Print what went wrong."""
    _write(sys.stderr, f"aiogroup: {text}")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what Python would write once more at the end
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def end_at_signals() -> None:
    """Raise KeyboardInterrupt at Ctrl-C and at SIGTERM, once: a second signal must not interrupt the end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def ended(interrupt: KeyboardInterrupt) -> int:
    """Say that the broker has ended. Returns the exit code: 130 after Ctrl-C, 0 after SIGTERM."""
    say("ended")
    return 0 if interrupt.args == (signal.SIGTERM,) else 130
