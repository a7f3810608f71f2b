"""`aiogroup reset`: sets a group's offsets. It says what that would do, and does it only with `--execute`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from aiogroup._command.printable import document, table
from aiogroup._core.recovery.ranges import count
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.admin import GroupMember, members_of
from aiogroup.cli.arguments import (
    count_of,
    duration_ms,
    file_read_by,
    instant_ms,
    name_as_kafka,
    partitions,
    sendable,
    topic,
)
from aiogroup.cli.asking import Asking, asked
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.exits import Exit, NotDoneError, RefusedError
from aiogroup.cli.looks import QUIET, GroupLook, PartitionLook, look_at
from aiogroup.cli.printing import say, tell
from aiogroup.cli.reset_plan import Change, change_of, read_file, written_file
from aiogroup.errors import AiogroupError, CommitFailedError, named
from aiogroup.structs import TopicPartition

__all__ = ["add"]

COLUMNS: Final = ("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET", "REPEATED", "SKIPPED")


def add(parser: argparse.ArgumentParser) -> None:
    """The arguments: Kafka's names."""
    name_as_kafka(parser, "group", sendable)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--topic",
        action="append",
        type=_topic,
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="all of its partitions, or these; may be repeated",
    )
    where.add_argument("--all-topics", action="store_true", help="all that the group has committed")
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="the first offset that the log holds")
    to.add_argument("--to-latest", action="store_true", help="the end of the log")
    to.add_argument("--to-current", action="store_true", help="the committed offset; the log's end without one")
    to.add_argument("--to-offset", type=count_of, metavar="N", help="this offset")
    to.add_argument("--to-datetime", type=instant_ms, metavar="INSTANT", help="the first record from then on, in UTC")
    to.add_argument("--by-duration", type=duration_ms, metavar="DURATION", help="the same, this long ago: PT6H, or 6h")
    to.add_argument("--shift-by", type=int, metavar="N", help="N offsets on, or back if N is negative")
    # Some editors begin a file with a mark of its encoding (utf-8-sig), which is no part of the first topic's name.
    to.add_argument(
        "--from-file",
        type=file_read_by(lambda path: path.read_text("utf-8-sig")),
        metavar="FILE",
        help="the offsets that --export wrote",
    )
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")
    parser.add_argument("--drop-pending", action="store_true", help="also where a token has pending ranges (KIP-333)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--execute", action="store_true", help="do it")
    how.add_argument("--dry-run", action="store_true", help="only say what would change: the default")
    parser.set_defaults(run=run, check=check)


def check(given: argparse.Namespace) -> str | None:
    """What is wrong with the arguments together."""
    if given.export and given.output == "json":
        return "--export prints CSV: leave out -o json"
    has_topics = bool(given.topic) or given.all_topics
    if has_topics == (given.from_file is not None):
        return "name --topic or --all-topics, or else --from-file, which names its own"
    return None


async def run(given: argparse.Namespace) -> int:
    """Print what changes, and change it if that was asked for and does no harm."""
    file = None if given.from_file is None else read_file(given.from_file, given.group)
    async with asked(settings_of(given)) as asking:
        look, changes = await asking.within(f"reset {given.group}", _plan(asking, given, file))
        refusals = [*_refusals(given, look, changes)]
        failures: dict[TopicPartition, AiogroupError] = {}
        if given.execute and not refusals:
            refusals = await asking.within(f"reset {given.group}", _news(asking, look, changes))
        is_executed = given.execute and not refusals
        if is_executed:
            offsets = {each.tp: each.new for each in changes}
            commit = asking.commit(given.group, offsets, look.cluster)
            failures = await asking.within(f"reset {given.group}", commit)
            is_refused = any(isinstance(error, CommitFailedError) for error in failures.values())
            if is_refused and len(failures) == len(changes):
                refusals.append(await asking.within("reset", _became_active(asking, given.group)))
                is_executed = False
    _show(given, changes, refusals, failures, is_executed=is_executed)
    if refusals:
        raise RefusedError("; ".join(refusals))
    if failures:
        raise NotDoneError("; ".join(f"{tp.topic}-{tp.partition}: {error}" for tp, error in sorted(failures.items())))
    if not given.execute:
        tell("nothing was changed: add --execute to do it")
    return Exit.DONE


# What would change.


async def _plan(
    asking: Asking, given: argparse.Namespace, file: Mapping[TopicPartition, int] | None
) -> tuple[GroupLook, list[Change]]:
    tps = None if given.all_topics else frozenset(file) if file is not None else await asking.partitions(given.topic)
    look = await look_at(asking, given.group, must_exist=False, also=tps or ())
    chosen = [each for each in look.partitions if (each.committed is not None if tps is None else each.tp in tps)]
    if not chosen:
        raise NotDoneError(f"group {given.group!r} has committed nothing: name --topic")
    missing = {each.tp for each in chosen if each.log_start is None or each.log_end is None}
    if missing:
        why = "; ".join(look.failures) or "no leader answered"
        raise NotDoneError(f"nothing was changed, as the bounds of {named(missing)} are not known: {why}")
    if look.state is None and not any(each.committed is not None for each in look.partitions):
        tell(f"there is no group {given.group!r} yet: this makes it")
    wanted = file if file is not None else await _wanted(asking, given, chosen)
    return look, [change_of(each, wanted[each.tp]) for each in chosen]


async def _wanted(
    asking: Asking, given: argparse.Namespace, chosen: Iterable[PartitionLook]
) -> dict[TopicPartition, int]:
    since_ms = given.to_datetime if given.by_duration is None else max(0, wall_ms() - given.by_duration)
    if since_ms is not None:
        found, why = await asking.offsets(dict.fromkeys((each.tp for each in chosen), since_ms))
        if why:
            raise NotDoneError(f"nothing was changed, as the offsets of {named(why)} at that time are not known")
        return {each.tp: found[each.tp] if found[each.tp] >= 0 else each.log_end or 0 for each in chosen}
    return {each.tp: _goal(given, each) for each in chosen}


def _goal(given: argparse.Namespace, each: PartitionLook) -> int:
    start, end = each.log_start or 0, each.log_end or 0
    if given.to_earliest:
        return start
    if given.to_latest:
        return end
    if given.to_current:
        return end if each.current is None else each.current
    if given.to_offset is not None:
        return int(given.to_offset)
    if each.current is None:
        raise NotDoneError(f"{named([each.tp])}: nothing is committed there that --shift-by could shift")
    return each.current + int(given.shift_by)


# What must not be done.


def _refusals(given: argparse.Namespace, look: GroupLook, changes: Iterable[Change]) -> Iterator[str]:
    if look.state is not None and look.state not in QUIET:
        yield _is_active(given.group, look.state, look.members)
    pending = [each for each in changes if each.pending]
    if pending and not given.drop_pending:
        ranges = ", ".join(f"{named([each.tp])} ({count(each.pending)} offsets)" for each in pending)
        yield (
            f"ranges are pending (KIP-333) in {ranges}: a reset reads them again among all others, or skips them; see "
            f"aiogroup ranges {given.group}. Pass --drop-pending to do that"
        )


async def _news(asking: Asking, look: GroupLook, changes: Iterable[Change]) -> list[str]:
    """Why the changes do not fit any more. The look took several requests: a member may have joined, committed and left
    meanwhile, and a broker does not compare a commit with what was committed before.
    """
    before = {each.tp: each.committed for each in look.partitions}
    now, refused = await asking.committed(look.group_id)
    if unknown := [each.tp for each in changes if each.tp in refused]:
        return [f"what is committed in {named(unknown)} cannot be read again: {refused[unknown[0]]}"]
    moved = [each.tp for each in changes if now.get(each.tp) != before[each.tp]]
    if not moved:
        return []
    return [f"group {look.group_id!r} has committed in {named(moved)} since the look: look again at what would change"]


def _is_active(group_id: str, state: str, members: Iterable[GroupMember]) -> str:
    names = ", ".join(f"{each.name or each.member_id} ({each.client_id} at {each.host})" for each in members)
    return f"group {group_id!r} is {state}: stop its members first{f': {names}' if names else ''}"


async def _became_active(asking: Asking, group_id: str) -> str:
    group = await asking.described(group_id)
    if isinstance(group, str):
        return f"group {group_id!r} has members that commit for it: stop them first"
    return f"{_is_active(group_id, group.group_state, members_of(group))}; it became active meanwhile"


# What is shown.


def _show(
    given: argparse.Namespace,
    changes: list[Change],
    refusals: list[str],
    failures: Mapping[TopicPartition, AiogroupError],
    *,
    is_executed: bool,
) -> None:
    if given.output == "json":
        rows = [_as_json(each, failures.get(each.tp)) for each in changes]
        say(document("reset", group=given.group, is_executed=is_executed, refusals=refusals, partitions=rows))
    elif given.export:
        say(written_file(changes))
    else:
        say(table(COLUMNS, [[*_cells(each)] for each in changes]))
    for each in changes:
        if each.new != each.wanted:
            tell(f"{named([each.tp])}: the log does not hold offset {each.wanted}; {each.new} is the nearest")
    if skipped_count := sum(each.skipped_count or 0 for each in changes):
        tell(
            f"{skipped_count:,} records that the group has not processed {'are' if is_executed else 'would be'} skipped"
        )


def _cells(each: Change) -> Iterator[object]:
    yield from (each.tp.topic, each.tp.partition, each.old, each.new, each.repeated_count, each.skipped_count)


def _as_json(each: Change, error: AiogroupError | None) -> dict[str, object]:
    return {
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "old_offset": each.old,
        "new_offset": each.new,
        "repeated_count": each.repeated_count,
        "skipped_count": each.skipped_count,
        "error": None if error is None else str(error),
    }


def _topic(text: str) -> tuple[str, tuple[int, ...]]:
    name, separator, numbers = text.partition(":")
    return topic(name), partitions(numbers) if separator else ()
