"""How many series there are: those of partitions, or their sums by topic, or one sum."""

from __future__ import annotations

import pytest

from aiogroup._core.telemetry.counts import BOUNDS_MS, Durations
from aiogroup._core.telemetry.figures import Figures, PartitionFigures, TopicCount
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup.figures.series import Grain, Reading, bounded, series_of

LAG = "kafka_consumer_fetch_manager_records_lag"


def figures(partitions, topics=None):
    return Figures("billing", "aiogroup", HealthStatus.READY, 5, None, {}, {}, Durations(), Durations(),
                   partitions=tuple(partitions), topics=topics or {})  # fmt: skip


def partition(number, topic="orders", *, lag=1, committed=10):
    return PartitionFigures(topic, number, lag, lag, None, committed, 11, 500)


def many(count, topic_count=1):
    partitions = [partition(number, f"topic-{number % topic_count}") for number in range(count)]
    counted = {f"topic-{number}": TopicCount(1, 10) for number in range(topic_count)}
    return Reading(figures(partitions, counted), "aiogroup")


def lines(series):
    return sum(len(BOUNDS_MS) + 3 if isinstance(value, Durations) else 1 for _, _, value in series)


def values(series, name):
    return {labels: value for each, labels, value in series if each == name}


def test_of_few_partitions_each_has_its_series():
    ((_, series),) = bounded([many(3)], 5_000)
    assert values(series, LAG) == {("topic-0", "0"): 1, ("topic-0", "1"): 1, ("topic-0", "2"): 1}
    assert values(series, "aiogroup_series_dropped") == {(): 0}


@pytest.mark.parametrize(("count", "topic_count"), [(1_300, 1), (10_000, 1), (10_000, 500), (10_000, 10_000)])
def test_the_bound_holds(count, topic_count):
    reading = many(count, topic_count)
    whole = lines(series_of(reading))
    ((_, series),) = bounded([reading], 5_000)
    assert lines(series) <= 5_000 < whole
    (dropped,) = values(series, "aiogroup_series_dropped").values()
    assert dropped == whole - (lines(series) - 1)
    assert sum(values(series, LAG).values()) == count
    assert set(values(series, f"{LAG}_max").values()) == {1}
    assert sum(values(series, "kafka_consumer_fetch_manager_records_consumed_total").values()) == topic_count


def test_the_greatest_gives_way_first():
    (_, small), (_, great) = bounded([many(10), many(2_000)], 5_000)
    assert len(values(small, LAG)) == 10
    assert values(great, LAG) == {("topic-0", ""): 2_000}


def test_what_cannot_give_way_is_shown():
    ((_, series),) = bounded([many(10, 5)], 1)
    assert values(series, LAG) == {("", ""): 10}


def test_a_sum_is_absent_while_a_part_is_not_known_and_a_maximum_is_of_what_is_known():
    known, unknown = partition(0, lag=7), partition(1, lag=None, committed=None)
    series = [*series_of(Reading(figures([known, unknown]), "aiogroup"), Grain.TOPIC)]
    assert values(series, LAG) == {}
    assert values(series, "aiogroup_committed_offset") == {}
    assert values(series, "aiogroup_end_offset") == {("orders", ""): 22}
    assert values(series, f"{LAG}_max") == {("orders",): 7}


def test_the_catch_up_lane_of_some_partitions_has_a_sum():
    beside = PartitionFigures("orders", 1, 9, 4, 5, 1, 11, 500)
    fine = [*series_of(Reading(figures([partition(0), beside]), "aiogroup"))]
    assert values(fine, "aiogroup_lag_records")["orders", "1", "catch-up"] == 5
    assert values(fine, "aiogroup_catch_up_left_records") == {("orders", "1"): 5}
    coarse = [*series_of(Reading(figures([partition(0), beside]), "aiogroup"), Grain.TOPIC)]
    assert values(coarse, "aiogroup_catch_up_left_records") == {("orders", ""): 5}
    assert values(coarse, LAG) == {("orders", ""): 10}
