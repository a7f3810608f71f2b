"""`aiogroup lag`: how far a group is behind, at what rate it comes closer, and how long that will take."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from aiogroup._command.printable import document, shown, table
from aiogroup._runtime.loop.clock import now_ms, sleep_ms, wall_ms
from aiogroup.cli.arguments import count_of, name_group, positive
from aiogroup.cli.asking import Asking, asked
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.exits import Exit
from aiogroup.cli.looks import GroupLook, PartitionLook, look_at, sum_of, sum_of_lags
from aiogroup.cli.printing import duration, say, say_on, tell
from aiogroup.cli.rates import Rate, Rates, sum_of_rates
from aiogroup.cli.screen import shown_in_place
from aiogroup.errors import AiogroupError, AuthenticationFailedError, named
from aiogroup.structs import TopicPartition

__all__ = ["add"]

COLUMNS: Final = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "AHEAD", "LEFT")
RATES: Final = ("PER-SECOND", "TIME-LEFT")
WATCH_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Line:
    """A partition, or the sum of several: then `partition` is `None`."""

    topic: str
    partition: int | None
    current: int | None
    log_end: int | None
    lag: int | None
    ahead_count: int | None
    left_count: int | None
    rate: Rate | None


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    name_group(parser)
    parser.add_argument("--watch", action="store_true", help="look again and again, until Ctrl-C")
    parser.add_argument(
        "--interval-ms",
        type=positive,
        metavar="N",
        help=f"the time between two looks, {WATCH_MS} with --watch; without --watch: look twice, for the rate",
    )
    parser.add_argument(
        "--max-lag", type=count_of, metavar="N", help="end with exit code 4 when more than N records are left"
    )
    parser.set_defaults(run=run)


async def run(given: argparse.Namespace) -> int:
    """Print the lag once, or again and again."""
    rates = Rates()
    async with asked(settings_of(given)) as asking:
        look, lines = await _look(asking, given, rates)
        if given.watch:
            return await _watch(asking, given, rates, look, lines)
        if given.interval_ms is not None:
            await sleep_ms(given.interval_ms)
            look, lines = await _look(asking, given, rates)
    _show(given, look, lines, say)
    for failure in look.failures:
        tell(failure)
    unknown = [each.tp for each in look.partitions if each.left_count is None]
    if given.max_lag is not None and unknown and not look.failures:
        tell(f"nothing is committed in {named(unknown)}, so the lag there is not known")
    return _exit(given, look, lines, unknown)


async def _watch(asking: Asking, given: argparse.Namespace, rates: Rates, look: GroupLook, lines: list[_Line]) -> int:
    reported: set[str] = set()
    with shown_in_place() as show:
        while True:
            _show(given, look, lines, say_on if given.output == "json" else show)
            if _is_passed(given, lines):
                return Exit.PASSED
            for failure in {*look.failures} - reported:
                tell(failure)
            reported = {*look.failures}
            await sleep_ms(given.interval_ms or WATCH_MS)
            while (looked := await _look_if_possible(asking, given, rates, reported)) is None:
                await sleep_ms(given.interval_ms or WATCH_MS)
            look, lines = looked


async def _look_if_possible(
    asking: Asking, given: argparse.Namespace, rates: Rates, reported: set[str]
) -> tuple[GroupLook, list[_Line]] | None:
    """A look; `None` when no broker answers now, which is reported once."""
    try:
        return await _look(asking, given, rates)
    except AuthenticationFailedError:
        raise
    except AiogroupError as error:
        if str(error) not in reported:
            tell(f"{error}; looking again")
        reported.add(str(error))
        return None


async def _look(asking: Asking, given: argparse.Namespace, rates: Rates) -> tuple[GroupLook, list[_Line]]:
    looking = look_at(asking, given.group, catchup_group=given.catchup_group)
    look = await asking.within(f"lag {given.group}", looking)
    at_ms = now_ms()
    lines = [_line(each, rates.note(each, at_ms)) for each in look.partitions]
    return look, lines


def _line(each: PartitionLook, rate: Rate | None) -> _Line:
    lag, ahead_count, left_count = each.lag, each.ahead_count, each.left_count
    return _Line(each.tp.topic, each.tp.partition, each.current, each.log_end, lag, ahead_count, left_count, rate)


def _sum(topic: str, lines: Iterable[_Line]) -> _Line:
    of = [*lines]
    return _Line(
        topic,
        None,
        None,
        None,
        sum_of_lags(each.lag for each in of),
        sum_of(each.ahead_count for each in of),
        sum_of(each.left_count for each in of),
        sum_of_rates([each.rate for each in of]),
    )


def _topics(lines: Iterable[_Line]) -> list[_Line]:
    return [_sum(topic, of_topic) for topic, of_topic in groupby(lines, key=lambda each: each.topic)]


def _is_passed(given: argparse.Namespace, lines: list[_Line]) -> bool:
    return given.max_lag is not None and (_sum("", lines).left_count or 0) > given.max_lag


def _exit(given: argparse.Namespace, look: GroupLook, lines: list[_Line], unknown: Collection[TopicPartition]) -> int:
    if _is_passed(given, lines):
        return Exit.PASSED
    return Exit.NOT_DONE if look.failures or (unknown and given.max_lag is not None) else Exit.DONE


# What is shown.


def _show(given: argparse.Namespace, look: GroupLook, lines: list[_Line], show: Callable[[str], None]) -> None:
    if given.output == "json":
        show(document("lag", **_as_json(look, lines)))
        return
    has_rates = given.watch or given.interval_ms is not None
    topics = _topics(lines)
    rows = [*lines, *(topics if len(topics) > 1 else ()), _sum("TOTAL", lines)]
    columns = (*COLUMNS, *RATES) if has_rates else COLUMNS
    text = table(columns, [[*_cells(each, has_rates=has_rates)] for each in rows])
    if given.watch:
        at = datetime.fromtimestamp(wall_ms() / 1_000, UTC)
        text = f"{shown(look.group_id)}, {shown(look.state or 'state unknown')}, at {at:%Y-%m-%d %H:%M:%S} UTC\n{text}"
    show(text)


def _cells(each: _Line, *, has_rates: bool) -> Iterator[object]:
    yield from (each.topic, each.partition, each.current, each.log_end, each.lag, each.ahead_count, each.left_count)
    if has_rates:
        yield None if each.rate is None else round(each.rate.processed)
        yield None if each.rate is None else duration(each.rate.left_ms)


def _as_json(look: GroupLook, lines: list[_Line]) -> dict[str, object]:
    return {
        "group": look.group_id,
        "state": look.state,
        "at_ms": wall_ms(),
        "total": _sums(_sum("", lines)),
        "topics": [{"topic": each.topic, **_sums(each)} for each in _topics(lines)],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "current_offset": each.current,
                "log_end_offset": each.log_end,
                **_sums(each),
            }
            for each in lines
        ],
    }


def _sums(each: _Line) -> dict[str, object]:
    rate = each.rate
    return {
        "lag": each.lag,
        "ahead_count": each.ahead_count,
        "left_count": each.left_count,
        "per_second": None if rate is None else round(rate.processed, 3),
        "left_ms": None if rate is None else rate.left_ms,
    }
