"""Marks: each commit of a table carries one that lists its offsets, so that the marks say what the table holds. Pure.

A mark names the group, the cluster and the topic's id with the offsets. So marks of another group, or of a deleted
topic of the same name, do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid4

from aiogroup._core.recovery.ranges import Range, Ranges, join, read, subtract, union
from aiogroup._core.recovery.token import LogId

__all__ = ["LaterMarkError", "Mark", "Offsets", "held", "of_delta", "of_iceberg", "without"]

VERSION: Final = 1

Offsets = Mapping[LogId, Ranges]


class LaterMarkError(ValueError):
    """A later aiogroup wrote the mark."""


@dataclass(frozen=True)
class Mark:
    """The offsets that one commit has brought for a group. No two commits have the same `id`.

    `voids` is the id of an earlier commit that has not brought the offsets that its mark names.
    """

    group_id: str
    offsets: Offsets
    id: str
    voids: str = ""

    @staticmethod
    def of(group_id: str, offsets: Offsets) -> Mark:
        """A new mark."""
        return Mark(group_id, {log: join(ranges) for log, ranges in offsets.items() if ranges}, uuid4().hex)

    @property
    def text(self) -> str:
        """The text that `read_text` reads."""
        return _as_json({**_content(self), "id": self.id})

    @cached_property
    def content_id(self) -> str:
        """An id of the content: equal for all marks of this group with these offsets."""
        return f"aiogroup-{sha256(_as_json(_content(self)).encode()).hexdigest()[:32]}"

    @staticmethod
    def read_text(text: str | None) -> Mark | None:
        """The mark; `None` if the text is something else.

        Raises:
            LaterMarkError: a later aiogroup wrote it, so that its offsets are not known.
        """
        try:
            found = json.loads(text or "null")
        except ValueError:
            return None
        version = found.get("aiogroup") if isinstance(found, dict) else None
        if version is None:
            return None
        if version != VERSION:
            raise LaterMarkError(f"a commit has a mark of version {version}, which this aiogroup does not know")
        offsets = {
            LogId(cluster_id, topic, UUID(topic_id), int(partition)): read(map(tuple, pairs))
            for cluster_id, topic, topic_id, partitions in found["topics"]
            for partition, pairs in partitions.items()
        }
        return Mark(found["group"], offsets, found["id"], found.get("voids", ""))


def held(marks: Iterable[Mark], group_id: str) -> dict[LogId, Ranges]:
    """The offsets that commits have brought for this group."""
    by_log: dict[LogId, list[Range]] = {}
    known = [*marks]
    void = {mark.voids for mark in known}
    for mark in known:
        if mark.group_id == group_id and mark.id not in void:
            for log, ranges in mark.offsets.items():
                by_log.setdefault(log, []).extend(ranges)
    return {log: join(union(tuple(of_log), ())) for log, of_log in by_log.items()}


def without(offsets: Offsets, gone: Offsets) -> dict[LogId, Ranges]:
    """The offsets without those in `gone`."""
    left = {log: subtract(ranges, gone.get(log, ())) for log, ranges in offsets.items()}
    return {log: ranges for log, ranges in left.items() if ranges}


def of_iceberg(snapshots: Mapping[int, tuple[int | None, str | None]], head: int | None) -> list[Mark]:
    """The marks of the head and its ancestors, from (parent, text) by snapshot. Marks that were rolled back are left
    out.

    Raises:
        LaterMarkError: a later aiogroup wrote one.
    """
    marks = []
    while head is not None and head in snapshots:
        head, text = snapshots[head]
        marks.append(Mark.read_text(text))
    return [mark for mark in marks if mark is not None]


def of_delta(commits: Mapping[int, tuple[str, Mapping[str, Any] | None, str | None]]) -> list[Mark]:
    """The marks that hold for the table, from (operation, its parameters, text) by version. A RESTORE undoes the
    commits after its version. A RESTORE by timestamp counts as if it had undone all commits, and so does the
    replacement of the table.

    Raises:
        LaterMarkError: a later aiogroup wrote one.
    """
    states: dict[int, Any] = {}  # by version: its last mark, and the state before that
    state: Any = None
    for version, (operation, parameters, text) in sorted(commits.items()):
        if operation == "RESTORE":
            target = (parameters or {}).get("version")
            state = None if target is None else states.get(int(target))
        elif "REPLACE TABLE" in operation:
            state = None
        mark = Mark.read_text(text)
        if mark is not None:
            state = (mark, state)
        states[version] = state
    marks = []
    while state is not None:
        mark, state = state
        marks.append(mark)
    return marks


def _content(mark: Mark) -> dict[str, Any]:
    """All but the id."""
    topics: dict[tuple[str, str, str], dict[str, Ranges]] = {}
    for log, ranges in sorted(mark.offsets.items(), key=lambda item: (item[0].topic, item[0].partition)):
        topic = (log.cluster_id, log.topic, str(log.topic_id))
        topics.setdefault(topic, {})[str(log.partition)] = ranges
    content = {"aiogroup": VERSION, "group": mark.group_id, "topics": [[*topic, by] for topic, by in topics.items()]}
    return content | ({"voids": mark.voids} if mark.voids else {})


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), sort_keys=True)
