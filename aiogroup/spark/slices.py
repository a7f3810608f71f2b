"""Cuts the next round from the first pending offsets of each claimed partition, up to a total. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate, chain
from typing import Final

from aiogroup._core.recovery.ranges import Range, Ranges, above, below, count, subtract
from aiogroup.spark.standing import Pending
from aiogroup.structs import TopicPartition

__all__ = ["Piece", "Slice", "cut", "deal", "grid_of", "layers", "pieces_of"]

PIECE_MOST: Final = 1_000_000
PARTITIONS_MOST: Final = 100
"""With more partitions than this, a round need not have room for a piece of each: the pieces would be too small."""


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
    """The slice of one partition. Once its `pieces` are processed, its `ranges` of the token with this `id` are done.

    The ranges hold `expired_count` offsets more than the pieces: retention has deleted these.
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
        """Split the slice: the first `at` offsets to read, and the others."""
        first = _cut(self.pending, self.ranges, at)
        return first, _cut(self.pending, subtract(self.ranges, first.ranges), len(self))


def grid_of(round_records: int, slice_records: int | None, partitions_count: int) -> int:
    """Ranges are cut at multiples of this number of offsets, so that a round has room for a piece of each partition.

    As long as no partition is added it depends on nothing that changes while jobs work, so every job cuts the same
    pieces.
    """
    fair = round_records // min(max(1, partitions_count), PARTITIONS_MOST)
    return max(1, min(PIECE_MOST, fair, slice_records or PIECE_MOST))


def cut(
    standing: Mapping[TopicPartition, Pending],
    held: Collection[TopicPartition],
    most: int,
    grid: int,
    *,
    slice_most: int | None = None,
    without: Mapping[TopicPartition, Ranges] | None = None,
) -> dict[TopicPartition, Slice]:
    """The next slices of the held partitions, in order: at most `most` offsets of all, and `slice_most` of each.

    Each partition gets a share by what it has left, in whole pieces, which end at multiples of `grid`. The offsets in
    `without` are in no slice.
    """
    left, pieces, totals = {}, {}, {}
    for tp in sorted(standing.keys() & held):
        left[tp] = subtract(standing[tp].ranges, (without or {}).get(tp, ()))
        readable = above(left[tp], standing[tp].log_start)
        totals[tp], pieces[tp] = count(readable), _first(tp, readable, grid, min(most, slice_most or most))
    numbers = deal({tp: [*map(len, each)] for tp, each in pieces.items() if each}, most, slice_most, totals)
    slices = {}
    for tp, ranges in left.items():
        taken = pieces[tp][: numbers.get(tp, 0)]
        if taken:
            slices[tp] = Slice(standing[tp], below(ranges, taken[-1].end), tuple(taken))
        elif ranges and not pieces[tp]:  # retention has deleted them all
            slices[tp] = Slice(standing[tp], ranges, ())
    return slices


def _first(tp: TopicPartition, ranges: Ranges, grid: int, most: int) -> list[Piece]:
    """The first pieces of the ranges, which have at least `most` offsets: a round can have no more of them."""
    pieces: list[Piece] = []
    for piece in chain.from_iterable(_pieces(tp, one, grid) for one in ranges):
        pieces.append(piece)
        most -= len(piece)
        if most < 0:
            break
    return pieces


def _pieces(tp: TopicPartition, one: Range, grid: int) -> Iterator[Piece]:
    """The range in pieces that end at multiples of `grid`."""
    start = one.start
    while start < one.end:
        end = min((start // grid + 1) * grid, one.end)
        yield Piece(tp, start, end)
        start = end


def deal(
    sizes: Mapping[TopicPartition, Sequence[int]],
    most: int,
    of_each: int | None = None,
    lefts: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """How many of its pieces each partition brings into a round, given their sizes: at most `most` offsets in all.

    The next piece always comes from the partition that has brought the smallest share of its offsets; among equals,
    from the partition with the most left. So all partitions make progress, as far as there is room, and end together.
    """
    totals = {tp: [0, *accumulate(each)] for tp, each in sizes.items()}
    lefts = lefts or {tp: each[-1] for tp, each in totals.items()}
    numbers = dict.fromkeys(sizes, 0)
    waiting = [(0.0, -lefts[tp], tp) for tp in totals]
    heapify(waiting)
    while waiting:
        _, left, tp = heappop(waiting)
        number, sums = numbers[tp], totals[tp]
        if sizes[tp][number] > most or (of_each is not None and sums[number + 1] > of_each):
            continue
        most -= sizes[tp][number]
        numbers[tp] = number + 1
        if number + 1 < len(sizes[tp]):
            heappush(waiting, (sums[number + 1] / lefts[tp], left, tp))
    return numbers


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
