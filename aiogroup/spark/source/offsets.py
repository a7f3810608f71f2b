"""The offset of a stream: the pending ranges that it has taken, as JSON in Spark's checkpoint. Pure.

A batch is the ranges that its end offset has and its start offset has not. The two offsets are all that is needed to
read the batch again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from aiogroup._core.recovery.ranges import Range, Ranges, subtract
from aiogroup.errors import ConfigError
from aiogroup.structs import TopicPartition

__all__ = ["StreamOffset", "Taken", "next_offset"]


class Taken(NamedTuple):
    """Ranges of one partition, as in the token with this `id`, of the topic with this `topic_id`."""

    id: str
    ranges: Ranges
    topic_id: str


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The ranges that a stream has taken.

    Spark begins a batch when the offset has changed, and only then says that the last batch has succeeded. The `mark`
    changes the offset when nothing else is new.
    """

    isolation_level: str = ""
    taken: Mapping[TopicPartition, Taken] = field(default_factory=dict)
    mark: str = ""

    @classmethod
    def of(cls, offset: Mapping[str, Any], group_id: str) -> Self:
        """Read what `as_json` made.

        Raises:
            ConfigError: the offset belongs to another group.
        """
        if not offset:
            return cls()
        if offset.get("group") != group_id:
            raise ConfigError(
                f"this checkpoint is of the group {offset.get('group')!r}, and the stream is to read what {group_id!r} "
                "has left: give each group a checkpoint of its own"
            )
        taken = {
            TopicPartition(topic, int(number)): Taken(
                each["id"], tuple(Range(start, end) for start, end in each["ranges"]), each["topic.id"]
            )
            for topic, by_number in offset["taken"].items()
            for number, each in by_number.items()
        }
        return cls(offset["isolation.level"], taken, offset["mark"])

    def as_json(self, group_id: str) -> dict[str, Any]:
        """For Spark's checkpoint; equal offsets are equal texts."""
        if self == type(self)():
            return {}
        by_topic: dict[str, dict[str, Any]] = {}
        for tp, each in sorted(self.taken.items()):
            ranges = [list(pair) for pair in each.ranges]
            by_topic.setdefault(tp.topic, {})[str(tp.partition)] = {
                "id": each.id,
                "ranges": ranges,
                "topic.id": each.topic_id,
            }
        return {
            "group": group_id,
            "isolation.level": self.isolation_level,
            "mark": self.mark,
            "taken": by_topic,
        }

    def without(self, other: StreamOffset) -> dict[TopicPartition, Taken]:
        """The ranges that this offset has and the other one has not. If the token's id differs, all ranges count."""
        new = {}
        for tp, each in self.taken.items():
            before = other.taken.get(tp)
            ranges = each.ranges if before is None or before.id != each.id else subtract(each.ranges, before.ranges)
            if ranges:
                new[tp] = each._replace(ranges=ranges)
        return new

    def has_of(self, other: StreamOffset) -> set[TopicPartition]:
        """The partitions in which both offsets have taken some of the same ranges under one token id."""
        return {tp for tp, each in self.taken.items() if self.without(other).get(tp, ()) != each}

    def marked(self) -> Self:
        """The same ranges as a different offset."""
        return replace(self, mark=os.urandom(4).hex())


def next_offset(
    last: StreamOffset | None, pending: StreamOffset, settled: Mapping[TopicPartition, Taken]
) -> StreamOffset:
    """The offset that a stream gives Spark after `last`; `last` itself if there is nothing to do.

    It has all pending ranges, including those in `last` that are not marked as done yet: if marking them fails, the
    next batch marks them. `settled` has the ranges that this process has marked, which may look pending still, if the
    second commit log had no room for them.
    """
    if last is None or pending.without(last):
        return pending.marked() if pending.taken else pending
    if last.has_of(pending) and settled != last.taken:
        return last.marked()  # an empty batch: when it begins, Spark reports that the last one has succeeded
    return last
