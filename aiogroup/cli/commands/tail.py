"""`aiogroup tail`: the records of a topic, read outside of any group. It commits nothing."""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aiogroup import Consumer, Record
from aiogroup._command.printable import clean, document, shown
from aiogroup._core.protocol.constants import EARLIEST, LATEST
from aiogroup._runtime.loop.clock import now_ms, wall_ms
from aiogroup.cli.arguments import count_of, duration_ms, instant_ms, name_as_kafka, partitions, positive, topic
from aiogroup.cli.asking import Asking, asked
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.exits import Exit, NotDoneError
from aiogroup.cli.printing import check_reader, say_on, tell
from aiogroup.errors import named
from aiogroup.structs import TopicPartition

__all__ = ["add"]

LAST: Final = "-10"
LOOK_MS: Final = 500
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    name_as_kafka(parser, "topic", topic)
    parser.add_argument(
        "-p", "--partition", type=partitions, default=(), metavar="N[,...]", help="only these partitions"
    )
    parser.add_argument(
        "--from",
        dest="since",
        type=_since,
        default=LAST,
        metavar="PLACE",
        help="earliest, latest, an offset, -N (the last N of each partition; -10 is the default), or @TIME: "
        "@2026-11-23T20:15:00 in UTC, @1795464900000 in milliseconds, @-1h or @-PT1H ago",
    )
    parser.add_argument("-n", dest="most", type=positive, metavar="N", help="end after N records")
    parser.add_argument("-f", dest="follow", action="store_true", help="go on with new records, until Ctrl-C")
    parser.add_argument("--headers", action="store_true", help="print the headers too; JSON has them always")
    parser.set_defaults(run=run)


async def run(given: argparse.Namespace) -> int:
    """Print the records up to the end that the log has now, or also those that come."""
    settings = settings_of(given)
    async with asked(settings) as asking:
        starts, ends = await asking.within(f"tail {given.topic}", _bounds(asking, given))
    left = {tp: end for tp, end in ends.items() if starts[tp] < end}
    if not (left or given.follow):
        if given.output != "json":
            tell(f"there is no record from there on in {named(ends)}")
        return Exit.DONE
    async with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign(list(starts))
        for tp, start in starts.items():
            consumer.seek(tp, start)
        await _read(consumer, given, {} if given.follow else left)
    return Exit.DONE


async def _read(consumer: Consumer, given: argparse.Namespace, left: dict[TopicPartition, int]) -> None:
    """Read until no partition is `left` below its end, or for ever."""
    told_count, heard_at_ms = 0, now_ms()
    while given.follow or left:
        most = min(500, given.most - told_count) if given.most else 500
        check_reader()
        records = await consumer.getmany(timeout_ms=LOOK_MS, max_records=most)
        for record in records.all():
            if given.follow or record.offset < left.get(record.tp, 0):
                _print(given, record)
                told_count += 1
                if told_count == given.most:
                    return
        before = len(left)
        left = {tp: end for tp, end in left.items() if await consumer.position(tp) < end}
        if records.count or len(left) < before:
            heard_at_ms = now_ms()
        elif not given.follow and now_ms() - heard_at_ms > given.timeout_ms:
            raise NotDoneError(f"no record of {named(left)} came within --timeout-ms {given.timeout_ms}")


# Where to begin, and where to end.


async def _bounds(
    asking: Asking, given: argparse.Namespace
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    tps = sorted(await asking.partitions([(given.topic, given.partition)]))
    firsts = await _offsets(asking, dict.fromkeys(tps, EARLIEST))
    ends = await _offsets(asking, dict.fromkeys(tps, LATEST))
    kind, number = given.since
    match kind:
        case "time":
            since_ms = number if number >= 0 else max(0, wall_ms() + number)
            found = await _offsets(asking, dict.fromkeys(tps, since_ms))
            starts = {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}
        case "last":
            starts = {tp: end - number for tp, end in ends.items()}
        case "offset":
            starts = dict.fromkeys(ends, number)
        case _:
            starts = firsts if kind == "earliest" else ends
    return {tp: min(max(starts[tp], firsts[tp]), ends[tp]) for tp in ends}, ends


async def _offsets(asking: Asking, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found, why = await asking.offsets(wanted)
    if why:
        raise NotDoneError("; ".join(f"{named([tp])}: {reason}" for tp, reason in sorted(why.items())))
    return found


def _since(text: str) -> tuple[str, int]:
    if text in ("earliest", "latest"):
        return text, 0
    if text.startswith("@-"):
        return "time", -max(1, duration_ms(text[2:]))
    if text.startswith("@"):
        return "time", int(text[1:]) if re.fullmatch(r"[0-9]{1,18}", text[1:]) else instant_ms(text[1:])
    try:
        return ("last", count_of(text[1:])) if text.startswith("-") else ("offset", count_of(text))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no place in a log: earliest, latest, an offset, -N for the last N, or @TIME"
        ) from None


# What is printed.


def _print(given: argparse.Namespace, record: Record) -> None:
    if given.output == "json":
        say_on(document("tail", **_as_json(record)))
    else:
        say_on("  ".join(_cells(record, has_headers=given.headers)))


def _cells(record: Record, *, has_headers: bool) -> Iterator[str]:
    yield f"{record.partition}:{record.offset}"
    yield _time(record.timestamp)
    yield _shown(record.key)
    yield _shown(record.value)
    if has_headers:
        yield "{" + ", ".join(f"{clean(name)}={_shown(value)}" for name, value in record.headers) + "}"


def _time(timestamp: int) -> str:
    try:
        at = EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return shown(None) if timestamp < 0 else f"{at:%Y-%m-%dT%H:%M:%S}.{timestamp % 1_000:03}Z"


def _shown(data: bytes | None) -> str:
    text, encoding = _text(data)
    return shown(None) if text is None else clean(text) if encoding == "utf-8" else f"base64:{text}"


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    """The text of bytes, and how it was made of them."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _as_json(record: Record) -> dict[str, Any]:
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    headers = [(name, *_text(each)) for name, each in record.headers]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [{"name": name, "value": text, "value_encoding": encoding} for name, text, encoding in headers],
    }
