"""How fast a group processes, from looks at different instants."""

from __future__ import annotations

import pytest

from aiogroup import TopicPartition
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup.cli.looks import PartitionLook
from aiogroup.cli.rates import RATE_MS, Rate, Rates, sum_of_rates

TP = TopicPartition("orders", 0)


def look(committed, end):
    return PartitionLook(TP, None if committed is None else Committed(committed), 0, end)


def last_of(*looks):
    """The rate after the looks, which are (instant, committed, end)."""
    rates = Rates()
    return [rates.note(look(committed, end), at_ms) for at_ms, committed, end in looks][-1]


def test_one_look_gives_no_rate():
    assert last_of((0, 4, 10)) is None


@pytest.mark.parametrize(
    ("looks", "processed", "written", "left_ms"),
    [
        ([(0, 0, 100), (1_000, 10, 100)], 10, 0, 9_000),
        ([(0, 0, 100), (2_000, 20, 110)], 10, 5, 18_000),
        ([(0, 0, 100), (1_000, 10, 110)], 10, 10, None),
        ([(0, 0, 100), (1_000, 0, 100)], 0, 0, None),
        ([(0, 90, 100), (1_000, 100, 100)], 10, 0, 0),
        ([(0, 0, 100), (RATE_MS, 30, 100), (2 * RATE_MS, 90, 100)], 2, 0, 5_000),
    ],
)
def test_two_looks_give_the_rate_of_the_last_half_minute(looks, processed, written, left_ms):
    rate = last_of(*looks)
    assert (rate.processed, rate.written, rate.left_ms) == (processed, written, left_ms)


@pytest.mark.parametrize(
    "looks",
    [
        [(0, 50, 100), (1_000, 10, 100)],
        [(0, 50, 100), (1_000, 50, 60)],
        [(0, 50, 100), (1_000, None, 100), (2_000, 60, 100)],
        [(0, 50, 100), (0, 60, 100)],
    ],
)
def test_an_offset_that_was_set_back_or_is_not_known_gives_no_rate(looks):
    assert last_of(*looks) is None


def test_the_rate_of_several_partitions_is_their_sum():
    assert sum_of_rates([Rate(10, 2, 30), None, Rate(5, 1, 6)]) == Rate(15, 3, 36)
    assert sum_of_rates([None]) is None
