"""What setting a group's offset to another place does: which records come again, and which nobody will read. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiogroup._core.recovery.ranges import Range, Ranges, above, below, count, subtract
from aiogroup.cli.exits import NotDoneError
from aiogroup.cli.looks import PartitionLook
from aiogroup.structs import TopicPartition

__all__ = ["Change", "change_of", "read_file", "written_file"]


@dataclass(frozen=True, slots=True)
class Change:
    """One partition. `wanted` is `new` unless the log does not hold it: then `new` is the nearest offset that it holds.

    Counts are of offsets that the log still holds; they are `None` where the group has committed nothing.
    """

    tp: TopicPartition
    old: int | None
    new: int
    wanted: int
    repeated_count: int | None
    skipped_count: int | None
    pending: Ranges


def change_of(each: PartitionLook, wanted: int) -> Change:
    """The change to `wanted` in a partition whose log's bounds are known."""
    assert each.log_start is not None
    assert each.log_end is not None
    start, end = each.log_start, each.log_end
    new = min(max(wanted, start), end)
    if each.live is None:
        return Change(each.tp, None, new, wanted, None, None, ())
    held = above((Range(start, end),) if start < end else (), start)
    unprocessed = (*each.pending, *((Range(each.live, end),) if each.live < end else ()))
    return Change(
        each.tp,
        each.current,
        new,
        wanted,
        count(above(subtract(held, unprocessed), new)),
        count(below(above(unprocessed, start), new)),
        each.pending,
    )


def written_file(changes: Iterable[Change]) -> str:
    """The new offsets as Kafka's tool exports them: `topic,partition,offset`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((each.tp.topic, each.tp.partition, each.new) for each in changes)
    return text.getvalue().removesuffix("\n")


def read_file(text: str, group_id: str) -> Mapping[TopicPartition, int]:
    """The offsets of such a file, or of one for several groups, whose lines begin with the group.

    Raises:
        NotDoneError: a line is written in another way, or none is about this group.
    """
    found = {}
    rows = csv.reader(io.StringIO(text))
    try:
        for row in rows:
            if row and (len(row) != 4 or row[0] == group_id):
                _, topic, partition, offset = row if len(row) == 4 else (group_id, *row)
                found[TopicPartition(topic.strip(), _number(partition))] = _number(offset)
    except (ValueError, csv.Error) as error:
        what = f"cannot be read ({error})" if isinstance(error, csv.Error) else f"is {','.join(row)!r}"
        raise NotDoneError(
            f"line {rows.line_num} of the file {what}: topic,partition,offset is needed, as --export writes it"
        ) from None
    if not found:
        raise NotDoneError(f"the file has no offset for group {group_id!r}")
    return found


def _number(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise ValueError(text)
    return int(text)
