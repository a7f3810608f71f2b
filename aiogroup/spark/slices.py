"""Cuts the next slices: for each claimed partition its first pending offsets, up to a size. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from aiogroup.recovery.ranges import Range, Ranges, count, subtract
from aiogroup.spark.standing import Pending
from aiogroup.structs import TopicPartition

__all__ = ["Piece", "Slice", "cut", "layers", "pieces_of"]


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A part of one range that Spark reads at once. Equal pieces have equal names."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.tp.topic}-{self.tp.partition}-{self.start}-{self.end}"

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Slice:
    """The slice of one partition: the ranges that are done once its `pieces` are, as in the token with this `id`.

    The ranges hold `expired_count` offsets more than the pieces: those that retention has deleted.
    """

    pending: Pending
    ranges: Ranges
    pieces: tuple[Piece, ...]

    @property
    def id(self) -> str:
        return self.pending.token.id

    @property
    def tp(self) -> TopicPartition:
        return self.pending.tp

    @property
    def expired_count(self) -> int:
        return count(self.ranges) - len(self)

    def __len__(self) -> int:
        """The number of offsets to read."""
        return sum(map(len, self.pieces))

    def divided(self, at: int) -> tuple[Slice, Slice]:
        """The slice in two: the first `at` offsets to read, and the others."""
        first = _cut(self.pending, self.ranges, at)
        return first, _cut(self.pending, subtract(self.ranges, first.ranges), len(self))


def cut(
    standing: Mapping[TopicPartition, Pending],
    held: Collection[TopicPartition],
    most: int,
    without: Mapping[TopicPartition, Ranges] | None = None,
) -> dict[TopicPartition, Slice]:
    """The next slice of each held partition with pending ranges, in order, of at most `most` offsets to read.

    The offsets in `without` are in none.
    """
    slices = {}
    for tp in sorted(held):
        pending = standing.get(tp)
        left = () if pending is None else subtract(pending.ranges, (without or {}).get(tp, ()))
        if pending is not None and left:
            slices[tp] = _cut(pending, left, most)
    return slices


def _cut(pending: Pending, left: Ranges, most: int) -> Slice:
    ranges: list[Range] = []
    pieces: list[Piece] = []
    for each in left:
        start = min(max(each.start, pending.log_start), each.end)
        end = min(each.end, start + most)
        ranges.append(Range(each.start, end))
        if start < end:
            pieces.append(Piece(pending.tp, start, end))
        most -= end - start
        if most == 0:
            break
    return Slice(pending, tuple(ranges), tuple(pieces))


def pieces_of(ranges: Mapping[TopicPartition, Iterable[tuple[int, int]]]) -> tuple[Piece, ...]:
    """One piece for each range."""
    return tuple(Piece(tp, start, end) for tp, of_tp in sorted(ranges.items()) for start, end in of_tp)


def layers(pieces: Iterable[Piece]) -> list[dict[int, Piece]]:
    """The pieces in layers, each of one topic and with at most one piece of each partition.

    Spark's connector takes one start and one end for each partition, so it can read one layer at a time.
    """
    by_topic: dict[str, list[dict[int, Piece]]] = defaultdict(list)
    for piece in sorted(pieces):
        of_topic = by_topic[piece.tp.topic]
        free = next((layer for layer in of_topic if piece.tp.partition not in layer), None)
        if free is None:
            of_topic.append(free := {})
        free[piece.tp.partition] = piece
    return [layer for topic in sorted(by_topic) for layer in by_topic[topic]]
