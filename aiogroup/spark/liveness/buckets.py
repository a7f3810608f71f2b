"""Histograms of fixed buckets, as in the samples of the event log. Every answer about them is an interval.

Bucket `i` counts the values above 2 ** ((i - 1) / 4) and up to 2 ** (i / 4); the buckets up to 0 begin at 0. So a value
is known to a factor of 1.19. A sample with many values has only every 2nd, 4th, ... bucket (its `bucket_step`), each
with the values of those before it. Histograms of several members and times are merged by adding the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from aiogroup._core.telemetry.meter import bounds_of

__all__ = ["BUCKET", "Bucket", "Histogram", "Interval", "above", "edges", "greatest", "merge", "quantile", "size"]


BUCKET: Final = "^[0-9]{1,3}$"
"""The text of a bucket's number. Three digits are enough for every value of a millisecond clock."""


class Bucket(NamedTuple):
    """A bucket, and the `bucket_step` of its sample."""

    number: int
    step: int = 1


Histogram: TypeAlias = Mapping[Bucket, int]
"""The count of each bucket."""
Interval: TypeAlias = tuple[int, int]
"""The least and the greatest number that the data allow for."""


def edges(bucket: Bucket) -> tuple[float, float]:
    """The bucket's lower bound, which is exclusive, and its upper bound, which is inclusive."""
    return bounds_of(bucket.number, bucket.step)


def merge(histograms: Iterable[Histogram]) -> dict[Bucket, int]:
    merged: Counter[Bucket] = Counter()
    for each in histograms:
        merged.update(each)
    return {bucket: merged[bucket] for bucket in sorted(merged) if merged[bucket] > 0}


def size(histogram: Histogram) -> int:
    """How many values were counted."""
    return sum(histogram.values())


def above(histogram: Histogram, value: float) -> Interval:
    """How many of the values are greater than `value`: at least and at most."""
    # The first bucket holds 0, too, which is not above its lower edge.
    least = sum(count for bucket, count in histogram.items() if edges(bucket)[0] >= max(value, 0.5))
    most = sum(count for bucket, count in histogram.items() if edges(bucket)[1] > value)
    return least, most


def quantile(histogram: Histogram, part: float) -> tuple[float, float] | None:
    """An interval that holds the smallest value which `part` of all values do not exceed; `None` without values."""
    wanted, seen = part * size(histogram), 0
    for bucket in sorted(histogram, key=lambda each: edges(each)[::-1]):
        seen += histogram[bucket]
        if histogram[bucket] and seen >= wanted:
            return edges(bucket)
    return None


def greatest(histogram: Histogram) -> float:
    """A bound of all values; 0 without any."""
    return max((edges(bucket)[1] for bucket, count in histogram.items() if count), default=0.0)
