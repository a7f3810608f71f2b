"""The stretches without Spark: small and obvious, for a log that fits into memory, and as the reference for the job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from aiogroup.spark.liveness.buckets import BUCKET, Bucket
from aiogroup.spark.liveness.stretches import (
    ENDING,
    FIELDS,
    HEARD,
    INCIDENTS,
    MOST_MS,
    NUMBER,
    SETTINGS,
    SILENCE_MS,
    Incident,
    Stretch,
    in_order,
)

__all__ = ["Line", "histograms_of", "stretches_of"]

Line: TypeAlias = Mapping[str, Any]
"""A line of the event log, read from its JSON."""


def stretches_of(lines: Iterable[Line]) -> dict[str, list[Stretch]]:
    """The stretches by group, ordered by member and time."""
    found: dict[str, list[Stretch]] = defaultdict(list)
    for own in _by_member(lines):
        for (life, turn), numbered in groupby(_numbered(own), key=lambda each: each[:2]):
            stretch = _fold(life, turn, [line for _, _, line in numbered])
            found[stretch.group].append(stretch)
    return dict(found)


def histograms_of(lines: Iterable[Line]) -> dict[str, dict[str, dict[Bucket, int]]]:
    """The merged histograms of each group, by their names."""
    found: dict[str, dict[str, dict[Bucket, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for own in _by_member(lines):
        for line in own:
            for name, counts in (line.get("histograms") or {}).items():
                for index, count in (counts or {}).items():
                    if not re.fullmatch(BUCKET, index) or (count or 0) <= 0:
                        continue
                    found[line["group"]][name][Bucket(int(index), line.get("bucket_step") or 1)] += count
    return {group: {name: dict(counts) for name, counts in named.items()} for group, named in found.items()}


def _by_member(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each member, each line once, in the order of their time."""
    members: dict[tuple[Any, ...], dict[tuple[Any, ...], Line]] = defaultdict(dict)
    for line in lines:
        if line.get("group"):
            whose = (line["group"], line.get("client_id") or "", line["host"], line["pid"])
            member = (*whose, line.get("consumer_number") or 0)
            members[member].setdefault((line["mono_ms"], line["event"], line["seq"]), _bounded(line))
    for _, own in sorted(members.items()):
        yield sorted(own.values(), key=lambda line: (line["at_ms"], line["seq"], line["mono_ms"], line["event"]))


def _bounded(line: Line) -> Line:
    """The line without numbers that are out of range."""
    return {name: each for name, each in line.items() if name not in FIELDS or not _is_out_of_range(each)}


def _is_out_of_range(value: Any) -> bool:  # noqa: ANN401 (a field's)
    return isinstance(value, int) and abs(value) > MOST_MS


def _numbered(own: Sequence[Line]) -> Iterator[tuple[int, int, Line]]:
    """Each line with the number of its life, and of its turn in it."""
    life = turn = 0
    before: Line | None = None
    for line in own:
        if before is not None:
            turn += before["event"] == "rebalance_completed"
            if _begins_anew(before, line):
                life, turn = life + 1, 0
        yield life, turn, line
        before = line


def _begins_anew(before: Line, line: Line) -> bool:
    return (
        before["event"] in ENDING
        or (line["at_ms"] - before["at_ms"] > SILENCE_MS and line["seq"] <= before["seq"])
        # A clock that is set back may swap two lines. Only a new process restarts `seq`.
        or 2 * line["seq"] < before["seq"]
    )


def _fold(life: int, turn: int, lines: Sequence[Line]) -> Stretch:
    def of(*names: str) -> list[Line]:
        return [line for line in lines if line["event"] in names]

    def moved_to(state: str) -> int | None:
        return max((line["at_ms"] for line in of("member_moved") if line["new"] == state), default=None)

    first, last = lines[0], lines[-1]
    nothing: Line = {}
    samples = of("sample")
    heard = [line["at_ms"] for line in of(*HEARD)]
    # A sample has only the number of heartbeats and the time since the last one.
    heard += [line["at_ms"] - ms for line in samples if (ms := line.get("since_heartbeat_ms")) is not None]
    # The last start counts: an earlier one was given up, because the poll interval passed or JoinGroup was refused.
    started = next(reversed(of("rebalance_started")), nothing)
    failed = of("member_failed")
    completed = next(iter(of("rebalance_completed")), nothing)
    return Stretch(
        group=first["group"],
        client_id=first.get("client_id") or "",
        host=first["host"],
        pid=first["pid"],
        consumer_number=first.get("consumer_number") or 0,
        life=life,
        turn=turn,
        first_at_ms=first["at_ms"],
        last_at_ms=last["at_ms"],
        lines_count=len(lines),
        heard_first_ms=min(heard, default=None),
        heard_last_ms=max(heard, default=None),
        instance_id=max(
            (name for each in samples if (name := each["settings"].get("group_instance_id"))), default=None
        ),
        is_stopped=bool(of("consumer_stopped")),
        failed_at_ms=min((line["at_ms"] for line in failed), default=None),
        failed_why=max((line["why"] for line in failed), default=None),
        failed_error=max((error for line in failed if (error := line.get("error"))), default=None),
        started_at_ms=started.get("at_ms"),
        why=started.get("why"),
        reason=started.get("reason"),
        joining_at_ms=moved_to("joining"),
        synced_at_ms=moved_to("adopting"),
        waited_ms=max((line["waited_ms"] for line in of("rebalance_waiting_for_application")), default=None),
        completed_at_ms=completed.get("at_ms"),
        generation=completed.get("generation"),
        duration_ms=completed.get("duration_ms"),
        partitions_count=len(completed["partitions"] or ()) if completed else None,
        settings_at_ms=samples[-1]["at_ms"] if samples else None,
        settings=_numbers(samples[-1]["settings"]) if samples else None,
        incidents=in_order(_incident(line) for line in of(*INCIDENTS)),
    )


def _numbers(settings: Mapping[str, Any]) -> tuple[int | None, ...]:
    texts = [str(settings.get(name)) for name in SETTINGS]
    return tuple(int(text) if re.fullmatch(NUMBER, text) else None for text in texts)


def _incident(line: Line) -> Incident:
    field = INCIDENTS[line["event"]]
    subject = line.get("why") if line.get("topic") is None else f"{line['topic']}-{line['partition']}"
    amount = None if field is None or line.get("is_expected") else line.get(field)
    return Incident(line["at_ms"], line["seq"], line["event"], amount, subject)
