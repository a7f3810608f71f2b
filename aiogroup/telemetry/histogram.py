"""Histograms over fixed buckets on a logarithmic scale: those of many members and hours are merged by addition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

__all__ = ["BUCKETS_PER_DOUBLING", "Histogram", "bounds_of", "bucket_of", "coarser"]

BUCKETS_PER_DOUBLING: Final = 4


def bucket_of(value: float) -> int:
    """The bucket of a value: i holds those above 2 ** ((i - 1) / 4), up to 2 ** (i / 4). 0 holds all up to 1."""
    return 0 if value <= 1 else math.ceil(BUCKETS_PER_DOUBLING * math.log2(value))


def bounds_of(bucket: int, step: int = 1) -> tuple[float, float]:
    """The bounds of a bucket: its values are above the first and at most the second. Those of bucket 0 are 0 to 1."""
    upper: float = 2 ** (bucket / BUCKETS_PER_DOUBLING)
    lower: float = 0 if bucket <= 0 else 2 ** ((bucket - step) / BUCKETS_PER_DOUBLING)
    return lower, upper


def coarser(counts: Mapping[int, int], step: int) -> dict[int, int]:
    """The same values in every `step`-th bucket alone, each of which takes those of the buckets before it."""
    found: dict[int, int] = {}
    for bucket, count in counts.items():
        wider = -(-bucket // step) * step
        found[wider] = found.get(wider, 0) + count
    return found


class Histogram:
    """How many values each bucket holds."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def note(self, value: float, count: int = 1) -> None:
        bucket = bucket_of(value)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def take(self) -> dict[int, int]:
        """The counts since the last call."""
        counts, self.counts = self.counts, {}
        return counts
