"""Makes series of the figures of one consumer: of each partition, or their sums where those would be too many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from aiogroup._core.telemetry.counts import Durations
from aiogroup._core.telemetry.figures import Figures, PartitionFigures
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup.figures.families import FETCH, GROUP

__all__ = ["Grain", "Reading", "Series", "Value", "bounded", "series_of"]

Value: TypeAlias = float | Durations
Series: TypeAlias = tuple[str, tuple[str, ...], Value]
"""The name of a family, the values of its own labels, and the value."""
Whole: TypeAlias = tuple[str, str]
"""A topic and a partition; empty where the series is of all of them, which for Prometheus is a label that is not
there.
"""


class Grain(IntEnum):
    """How fine the series of topics and partitions are."""

    PARTITION = 0
    TOPIC = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one consumer under the name that a collector has for it; `client_id` is the label's value."""

    figures: Figures
    client_id: str
    restarts_count: int | None = None


def bounded(readings: Iterable[Reading], max_series: int) -> Iterator[tuple[Reading, list[Series]]]:
    """The series of each consumer. The greatest ones give way to sums while all together are more than `max_series`.

    A series is a line of the text; a histogram has one for each bucket, and two more.
    """
    made = [(reading, [*series_of(reading)]) for reading in readings]
    sizes = [_size(series) for _, series in made]
    grains = [Grain.PARTITION for _ in made]
    whole = list(sizes)
    while sum(sizes) + len(sizes) > max_series:
        coarser = [at for at, grain in enumerate(grains) if grain is not Grain.ALL]
        if not coarser:
            break
        at = max(coarser, key=sizes.__getitem__)
        grains[at] = Grain(grains[at] + 1)
        made[at] = made[at][0], [*series_of(made[at][0], grains[at])]
        sizes[at] = _size(made[at][1])
    for at, (reading, series) in enumerate(made):
        yield reading, [*series, ("aiogroup_series_dropped", (), whole[at] - sizes[at])]


def _size(series: Iterable[Series]) -> int:
    return sum(len(value.counts) + 2 if isinstance(value, Durations) else 1 for _, _, value in series)


def series_of(reading: Reading, grain: Grain = Grain.PARTITION) -> Iterator[Series]:
    """All series of one consumer; what is not known has none."""
    figures = reading.figures
    partitions = _of_partitions(figures.partitions) if grain is Grain.PARTITION else _of_topics(figures, grain)
    for name, labels, value in (
        *partitions,
        *_maxima(figures.partitions, grain),
        *_of_counts(figures, grain),
        *_of_consumer(figures),
        *_of_group(figures),
        ("aiogroup_restarts_total", (), reading.restarts_count),
    ):
        if value is not None:
            yield name, labels, value


Maybe: TypeAlias = tuple[str, tuple[str, ...], Value | None]
LAG: Final = f"{FETCH}_records_lag"


def _of_partitions(partitions: Iterable[PartitionFigures]) -> Iterator[Maybe]:
    for each in partitions:
        yield from _of_one((each.topic, str(each.partition)), each)


def _of_one(tp: Whole, each: PartitionFigures) -> Iterator[Maybe]:
    yield LAG, tp, each.lag
    yield "aiogroup_lag_records", (*tp, "live"), each.live
    yield "aiogroup_lag_records", (*tp, "catch-up"), each.catch_up
    yield "aiogroup_committed_offset", tp, each.committed
    yield "aiogroup_end_offset", tp, each.end
    yield "aiogroup_catch_up_left_records", tp, each.catch_up


def _of_topics(figures: Figures, grain: Grain) -> Iterator[Maybe]:
    for topic, partitions in _by(figures.partitions, grain).items():
        yield from _of_one((topic, ""), _sum(topic, partitions))


def _by(partitions: Iterable[PartitionFigures], grain: Grain) -> Mapping[str, list[PartitionFigures]]:
    by: dict[str, list[PartitionFigures]] = {}
    for each in partitions:
        by.setdefault("" if grain is Grain.ALL else each.topic, []).append(each)
    return by


def _sum(topic: str, partitions: list[PartitionFigures]) -> PartitionFigures:
    """The sum of several partitions; one that is not known makes it unknown."""
    lanes = [each.catch_up for each in partitions if each.catch_up is not None]
    return PartitionFigures(
        topic,
        -1,
        _sum_of(each.lag for each in partitions),
        _sum_of(each.live for each in partitions),
        sum(lanes) if lanes else None,
        _sum_of(each.committed for each in partitions),
        _sum_of(each.end for each in partitions),
        None,
    )


def _sum_of(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _maxima(partitions: Iterable[PartitionFigures], grain: Grain) -> Iterator[Maybe]:
    for topic, of_topic in _by(partitions, max(grain, Grain.TOPIC)).items():
        yield f"{LAG}_max", (topic,), max((each.lag for each in of_topic if each.lag is not None), default=None)


def _of_counts(figures: Figures, grain: Grain) -> Iterator[Maybe]:
    counted = figures.topics or {}
    if grain is Grain.ALL and counted:
        rows = [("", sum(each.records for each in counted.values()), sum(each.size_bytes for each in counted.values()))]
    else:
        rows = [(topic, *each) for topic, each in counted.items()]
    for topic, records, size_bytes in rows:
        yield f"{FETCH}_records_consumed_total", (topic,), records
        yield f"{FETCH}_bytes_consumed_total", (topic,), size_bytes


def _of_consumer(figures: Figures) -> Iterator[Maybe]:
    yield f"{GROUP}_assigned_partitions", (), None if figures.topics is None else len(figures.partitions)
    yield "kafka_consumer_last_poll_seconds_ago", (), _seconds(figures.since_request_ms)
    ages = [each.age_ms for each in figures.partitions if each.age_ms is not None]
    yield "aiogroup_lag_age_seconds", (), _seconds(max(ages, default=None))
    for lane, age_ms in (figures.record_ages_ms or {}).items():
        yield "aiogroup_record_age_seconds", (lane,), _seconds(age_ms)
    for status in HealthStatus:
        yield "aiogroup_state", (status.value,), int(status is figures.status)
    for key, count in figures.events.items():
        yield "aiogroup_events_total", key, count
    yield "aiogroup_loop_blocked_seconds", (), figures.loop_blocked
    yield "aiogroup_buffered_bytes", (), figures.buffered_bytes


def _of_group(figures: Figures) -> Iterator[Maybe]:
    group, counted = figures.group, figures.events
    if group is None:
        return
    yield f"{GROUP}_rebalance_total", (), group.rebalances_count
    yield f"{GROUP}_failed_rebalance_total", (), counted.get(("rebalance_failed", "warning"), 0)
    yield f"{GROUP}_heartbeat_total", (), counted.get(("heartbeat_acknowledged", "debug"), 0)
    yield f"{GROUP}_commit_total", (), counted.get(("offsets_committed", "debug"), 0)
    yield f"{GROUP}_last_heartbeat_seconds_ago", (), _seconds(figures.since_heartbeat_ms)
    yield f"{GROUP}_last_rebalance_seconds_ago", (), _seconds(group.since_rebalance_ms)
    for deadline, used in group.deadlines_used.items():
        yield "aiogroup_deadline_used_ratio", (deadline,), used
    for reason, durations in figures.rebalances.items():
        yield "aiogroup_rebalance_seconds", (reason,), durations
    for reason, durations in group.hand_overs.items():
        yield "aiogroup_handover_wait_seconds", (reason,), durations
    yield "aiogroup_commit_seconds", ("ok",), figures.commits
    yield "aiogroup_commit_seconds", ("error",), group.failed_commits


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1_000
