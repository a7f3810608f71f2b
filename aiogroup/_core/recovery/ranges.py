"""Ranges of offsets, which are pending or done. A tuple of ranges is ascending and disjoint, and never changed.

Two ranges of a tuple may touch. They come from different recoveries and are kept apart: a live lane once started at the
end of the lower one, and the application may seek to that offset or commit it. Only ranges that overlap become one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, TypeAlias

__all__ = [
    "Range",
    "Ranges",
    "above",
    "below",
    "close_smallest_gap",
    "count",
    "find",
    "join",
    "read",
    "subtract",
    "union",
]


class Range(NamedTuple):
    """The offsets from `start` up to `end`, without `end` itself."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


Ranges: TypeAlias = tuple[Range, ...]


def read(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Pairs of (start, end) as ranges.

    Raises:
        ValueError: one is empty or begins below 0, or they are not ascending and disjoint.
    """
    ranges = tuple(Range(*pair) for pair in pairs)
    for each in ranges:
        if not 0 <= each.start < each.end:
            raise ValueError(f"{each} is no range of offsets")
    for one, other in pairwise(ranges):
        if one.end > other.start:
            raise ValueError(f"{one} and {other} are not ascending and disjoint")
    return ranges


def union(one: Ranges, other: Ranges) -> Ranges:
    """Every offset of either. Ranges that overlap become one; those that only touch stay apart."""
    united: list[Range] = []
    for each in sorted((*one, *other)):
        if united and each.start < united[-1].end:
            united[-1] = Range(united[-1].start, max(united[-1].end, each.end))
        else:
            united.append(each)
    return tuple(united)


def subtract(ranges: Ranges, gone: Ranges) -> Ranges:
    """The offsets of `ranges` that are not in `gone`; parts of different ranges are never joined."""
    left: list[Range] = []
    for each in ranges:
        start = each.start
        for hole in gone:
            if hole.end <= start:
                continue
            if hole.start >= each.end:
                break
            if hole.start > start:
                left.append(Range(start, hole.start))
            start = hole.end
        if start < each.end:
            left.append(Range(start, each.end))
    return tuple(left)


def below(ranges: Ranges, offset: int) -> Ranges:
    """The offsets below this one."""
    return tuple(Range(each.start, min(each.end, offset)) for each in ranges if each.start < offset)


def above(ranges: Ranges, offset: int) -> Ranges:
    """The offsets from this one on."""
    return tuple(Range(max(each.start, offset), each.end) for each in ranges if each.end > offset)


def join(ranges: Ranges) -> Ranges:
    """The same offsets in as few ranges as possible: ranges that touch become one."""
    joined: list[Range] = []
    for each in ranges:
        if joined and joined[-1].end == each.start:
            joined[-1] = Range(joined[-1].start, each.end)
        else:
            joined.append(each)
    return tuple(joined)


def close_smallest_gap(ranges: Ranges) -> Ranges:
    """One range fewer, by adding the offsets of the smallest gap. There must be at least two ranges."""
    gaps = [other.start - one.end for one, other in pairwise(ranges)]
    index = gaps.index(min(gaps))
    closed = Range(ranges[index].start, ranges[index + 1].end)
    return (*ranges[:index], closed, *ranges[index + 2 :])


def find(ranges: Ranges, offset: int) -> Range | None:
    """The range that holds this offset."""
    return next((each for each in ranges if each.start <= offset < each.end), None)


def count(ranges: Ranges) -> int:
    """The number of offsets."""
    return sum(each.end - each.start for each in ranges)
