"""What the arguments of several commands have in common."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aiogroup.config import check_topic_name, parse_reset_policy, why_not_sent
from aiogroup.errors import AiogroupError, ConfigError

__all__ = [
    "Once",
    "count_of",
    "duration_ms",
    "file_read_by",
    "instant_ms",
    "name_as_kafka",
    "name_group",
    "partitions",
    "positive",
    "sendable",
    "topic",
]

T = TypeVar("T")
SHORT = re.compile(r"(\d+)([smhd])")


def name_group(parser: argparse.ArgumentParser) -> None:
    """The group to look at, and the one whose offsets say what jobs have done of its pending ranges."""
    name_as_kafka(parser, "group", sendable)
    parser.add_argument(
        "--catchup-group",
        type=sendable,
        metavar="GROUP",
        help="the group in which jobs note what they have done of pending ranges: parallel_group_id, GROUP.catchup",
    )


def name_as_kafka(parser: argparse.ArgumentParser, what: str, kind: Callable[[str], str]) -> None:
    """A group or a topic: in its place, or by the option that Kafka's tools have for it."""
    names = parser.add_mutually_exclusive_group(required=True)
    one: dict[str, Any] = {"action": Once, "type": kind, "metavar": what.upper()}
    names.add_argument(what, nargs="?", **one)
    names.add_argument(f"--{what}", help="the same, as in Kafka's tools", **one)


class Once(argparse.Action):
    """Kafka's tools take several groups: all but the last of them must not be left out in silence."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if values is None:  # the place is empty, which must not take back what the option has set
            return
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, f"one {self.dest} at a time")
        setattr(namespace, self.dest, values)


def file_read_by(read: Callable[[Path], T]) -> Callable[[str], T]:
    """The type of an option that names a file: what `read` makes of it, before anything is begun."""

    def contents(text: str) -> T:
        try:
            return read(Path(text))
        except (OSError, ValueError) as error:  # ConfigError is a ValueError
            raise argparse.ArgumentTypeError(str(error)) from error

    return contents


def count_of(text: str) -> int:
    """A whole number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 0 on is needed")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 to 2^31 - 1."""
    if not 1 <= (number := count_of(text)) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to 2147483647 is needed")
    return number


def sendable(text: str) -> str:
    """A text that a request can carry, such as a group's name."""
    if (why := why_not_sent(text)) is not None:
        raise argparse.ArgumentTypeError(why)
    return text


def topic(text: str) -> str:
    """A topic's name."""
    try:
        return check_topic_name(text)
    except AiogroupError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def partitions(text: str) -> tuple[int, ...]:
    """Numbers of partitions: `0,2`."""
    return tuple(dict.fromkeys(count_of(each.strip()) for each in text.split(",")))


def duration_ms(text: str) -> int:
    """A duration as in ISO 8601 (`PT1H30M`), or short (`90s`, `5m`, `1h`, `2d`)."""
    short = SHORT.fullmatch(text)
    iso = text if short is None else f"P{short[1]}D" if short[2] == "d" else f"PT{short[1]}{short[2].upper()}"
    try:
        return parse_reset_policy(f"by_duration:{iso}").duration_ms
    except ConfigError:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: PT1H30M, 90s, 5m, 1h or 2d") from None


def instant_ms(text: str) -> int:
    """An instant in ISO 8601, in UTC unless it names its zone, as milliseconds since the epoch."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no instant: 2026-11-23T20:15:00, in UTC, or with its zone: 2026-11-23T20:15:00+02:00"
        ) from None
    at_ms = round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    if at_ms < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970, when Kafka's clock begins")
    return at_ms
