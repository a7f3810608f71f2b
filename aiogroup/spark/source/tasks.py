"""Cuts ranges into tasks, each of which reads some parts of some partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from aiogroup.spark.slices import Piece
from aiogroup.structs import TopicPartition

__all__ = ["Part", "Run", "Task", "runs_of", "task_records", "tasks_of"]

TASK_LEAST: Final = 10_000
TASK_MOST: Final = 1_000_000
TASKS_PER_CORE: Final = 3
SEEK_WORTH: Final = 10_000
"""If fewer offsets lie between two parts, it is cheaper to read them than to seek."""


@dataclass(frozen=True, slots=True)
class Part:
    """The offsets from `start` up to `end` of one piece, which has this `name`."""

    tp: TopicPartition
    start: int
    end: int
    name: str

    def __len__(self) -> int:
        return self.end - self.start


Task = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Parts of one partition, in order, that are read without a seek in between."""

    parts: tuple[Part, ...]

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def end(self) -> int:
        return self.parts[-1].end


def task_records(total: int, cores: int) -> int:
    """How many offsets one task reads, if `total` offsets are to be read on `cores` cores."""
    return min(TASK_MOST, max(TASK_LEAST, -(-total // max(1, cores * TASKS_PER_CORE))))


def tasks_of(pieces: Iterable[Piece], most: int) -> list[Task]:
    """The pieces in tasks of at most `most` offsets. A longer piece is split evenly, short ones share a task."""
    tasks: list[Task] = []
    shared: list[Part] = []
    for piece in pieces:
        parts = list(_parts_of(piece, most))
        if len(parts) > 1 or len(piece) >= most:
            tasks += [(part,) for part in parts]
            continue
        if sum(map(len, shared)) + len(piece) > most:
            tasks.append(tuple(shared))
            shared = []
        shared += parts
    return [*tasks, tuple(shared)] if shared else tasks


def _parts_of(piece: Piece, most: int) -> Iterator[Part]:
    count = -(-len(piece) // most)
    for index in range(count):
        start, end = (piece.start + len(piece) * at // count for at in (index, index + 1))
        yield Part(piece.tp, start, end, piece.name)


def runs_of(parts: Iterable[Part]) -> dict[TopicPartition, list[Run]]:
    """What a task reads of each partition, in order."""
    runs: dict[TopicPartition, list[Run]] = {}
    for part in sorted(parts, key=lambda each: (each.tp, each.start)):
        of_tp = runs.setdefault(part.tp, [])
        if of_tp and part.start - of_tp[-1].end <= SEEK_WORTH:
            of_tp[-1] = Run((*of_tp[-1].parts, part))
        else:
            of_tp.append(Run((part,)))
    return runs
