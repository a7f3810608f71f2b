"""Counterfactuals: what each value of a setting would have changed in the logged window. Pure.

A value that is too small costs needless rebalances. A value that is too great costs time: a crash is noticed late, a
hung handler holds its partitions, newcomers wait. Both costs are computed for each value of a grid. A number that comes
from histograms is an interval between edges of buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final, NamedTuple, TypeAlias

from aiogroup.spark.liveness.buckets import Histogram, Interval, above, edges, quantile, size
from aiogroup.spark.liveness.episodes import Story
from aiogroup.spark.liveness.stretches import SETTINGS

__all__ = [
    "EXPANSION",
    "GRIDS",
    "P999",
    "Counterfactual",
    "Current",
    "absences_of",
    "caused_by",
    "counterfactuals_of",
    "newcomers_of",
    "restarts_of",
    "worst_of",
]

Current: TypeAlias = Mapping[str, int | None]
"""The settings in force."""
Curve: TypeAlias = Callable[[int], tuple[Interval, int]]
"""For a value: the least and the greatest number of needless rebalances, and the time that it costs."""

P999: Final = 0.999
EXPANSION: Final = "expansion_timeout_ms"
SCALE_UP_MS: Final = 240_000
"""Newcomers further apart than this belong to two scale-ups: no `expansion_timeout_ms` is longer."""
SECOND: Final = 1_000
GRIDS: Final[dict[str, tuple[int, ...]]] = {
    "session_timeout_ms": tuple(SECOND * each for each in (6, 10, 15, 20, 30, 45, 60, 90, 120)),
    "max_poll_interval_ms": tuple(SECOND * each for each in (10, 30, 60, 120, 300, 600, 900, 1800, 3600)),
    "max_poll_records": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
    "registration_timeout_ms": tuple(SECOND * each for each in (10, 15, 30, 60, 90, 120, 180, 300, 600, 900, 1800)),
    "expansion_timeout_ms": tuple(SECOND * each for each in (0, 1, 3, 5, 10, 20, 30, 60, 120, 240)),
    "parallel_min_backlog": (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
"""The values that are looked at. Those that the coordinator bounds lie within a broker's defaults: 6 s to 30 min."""


class Counterfactual(NamedTuple):
    """What one value would have meant in the window.

    Only rebalances that this setting causes count. For the value in force and calmer ones the number is limited by how
    many such rebalances there were, since one rebalance may be due to several members. `standstill` is in
    partition-milliseconds, computed from the median of the group's rebalances. `late_ms` is the total cost on the other
    side: the time until crashes were noticed, until the partitions of hung handlers or lost members were given away,
    until newcomers had work, or until a backlog no longer held up the head. `observations_count` is the number of
    observations behind it.
    """

    group: str
    setting: str
    value: int
    is_current: bool
    rebalances_least: int
    rebalances_most: int
    standstill_least_ms: int
    standstill_most_ms: int
    late_ms: int
    observations_count: int


def counterfactuals_of(story: Story, histograms: Mapping[str, Histogram], current: Current) -> list[Counterfactual]:
    """The curves of all settings for which the log has data, by setting and value."""
    curves = {
        "session_timeout_ms": (_session(story, histograms, current), size(histograms.get("heartbeat_gap_ms", {}))),
        "max_poll_interval_ms": (_poll(story, histograms, current), size(histograms.get("request_gap_ms", {}))),
        "max_poll_records": (_records(story, histograms, current), size(histograms.get("record_ms", {}))),
        "registration_timeout_ms": (_registration(story, current), len(absences_of(story))),
        EXPANSION: (_expansion(story, current), len(newcomers_of(story))),
        "parallel_min_backlog": (_backlog(story), len([each for each in story.of("catch_up") if each.duration_ms])),
    }
    return [
        _told(story, setting, value, value == _in_force(setting, current), curve(value), count)
        for setting, (curve, count) in curves.items()
        if count
        for value in sorted({*GRIDS[setting], _in_force(setting, current)})
    ]


def _in_force(setting: str, current: Current) -> int:
    value = current.get(setting)
    if value is None and setting == "registration_timeout_ms":
        value = current.get("session_timeout_ms")
    return value or 0


def _told(
    story: Story, setting: str, value: int, is_current: bool, found: tuple[Interval, int], count: int
) -> Counterfactual:
    (least, most), late_ms = found
    each_ms = median_low([each.standstill_ms for each in story.rebalances]) if story.rebalances else 0
    return Counterfactual(
        story.group, setting, value, is_current, least, most, least * each_ms, most * each_ms, late_ms, count
    )


def caused_by(story: Story, setting: str) -> int:
    """How many of the group's rebalances the setting could have spared."""
    return sum(each.setting == setting for each in story.rebalances)


def _rebalances(story: Story, removals: Interval, in_force: Interval | None, setting: str) -> Interval:
    """The number of rebalances that `removals` cause. `in_force` has the removals of the value in force, if that value
    is the calmer one.

    At most each removal causes two rebalances, as the member comes back. At least one rebalance removes all members at
    once. For the value in force the number is known, since each rebalance has a known cause.
    """
    fitting, members = caused_by(story, setting), max((each.members_count for each in story.rebalances), default=1)
    least, most = -(-removals[0] // members), 2 * removals[1]
    if in_force is None:
        return min(least, fitting), min(most, fitting)
    there_were = min(2 * in_force[1], fitting)
    if removals == in_force:
        return there_were, there_were
    more = -(-max(0, removals[0] - in_force[1]) // members), 2 * max(0, removals[1] - in_force[0])
    return there_were + more[0], there_were + more[1]


def _told_value(story: Story, setting: str, current: Current) -> int:
    """The value that was in force when the log was written. `current` may override it."""
    told = story.settings[SETTINGS.index(setting)] if story.settings is not None else current.get(setting)
    return told or 0


def _timeout(
    story: Story, setting: str, removals: Callable[[int], Interval], in_force: int
) -> Callable[[int], Interval]:
    """The curve of a time-out, from the number of removals at each value."""
    then = removals(in_force)
    return lambda value: _rebalances(story, removals(value), then if value <= in_force else None, setting)


def _session(story: Story, histograms: Mapping[str, Histogram], current: Current) -> Curve:
    setting, gaps = "session_timeout_ms", histograms.get("heartbeat_gap_ms", {})
    crashes = sum(life.end == "silence" and life.instance_id is None for life in story.lives)
    counted = _timeout(story, setting, lambda value: above(gaps, value), _told_value(story, setting, current))
    return lambda value: (counted(value), crashes * value)


def _poll(story: Story, histograms: Mapping[str, Histogram], current: Current) -> Curve:
    setting, gaps = "max_poll_interval_ms", histograms.get("request_gap_ms", {})
    hung = sum(each.cause == "hung" for each in story.of("poll_interval_exceeded"))
    session = current.get("session_timeout_ms") or 0
    counted = _timeout(
        story, setting, lambda value: above(gaps, max(value, session)), _told_value(story, setting, current)
    )
    return lambda value: (counted(value), hung * max(value, session))


def worst_of(histograms: Mapping[str, Histogram]) -> tuple[float, float] | None:
    """The 99.9th percentile of the time that a record takes, as an interval."""
    return quantile(histograms.get("record_ms", {}), P999)


def _records(story: Story, histograms: Mapping[str, Histogram], current: Current) -> Curve:
    """Batches that would have taken longer than the poll interval if all of their records were as slow as the worst."""
    slowest = worst_of(histograms) or (0.0, 0.0)
    batches = histograms.get("batch_records", {})
    interval = max(current.get("max_poll_interval_ms") or 0, current.get("session_timeout_ms") or 0)

    def curve(value: int) -> tuple[Interval, int]:
        least = most = 0
        for bucket, count in batches.items():
            fewest, greatest = edges(bucket)
            least += count * (min(value, fewest) * slowest[0] > interval)
            most += count * (min(value, greatest) * slowest[1] > interval)
        return _rebalances(story, (least, most), None, "max_poll_interval_ms"), 0

    return curve


def absences_of(story: Story) -> list[int]:
    """How long each static name was absent before it came back, shortest first."""
    return sorted(each.duration_ms for each in story.of("static_absence") if each.duration_ms is not None)


def restarts_of(story: Story) -> list[int]:
    """For each restart without a static name, the time until the successor joined, shortest first."""
    return sorted(each.duration_ms for each in story.of("restart") if each.duration_ms is not None)


def _registration(story: Story, current: Current) -> Curve:
    setting, absences = "registration_timeout_ms", absences_of(story)
    losses = sum(each.duration_ms is None for each in story.of("static_absence"))

    def longer(value: int) -> Interval:
        count = sum(each > value for each in absences)
        return count, count

    in_force = _told_value(story, setting, current) or _told_value(story, "session_timeout_ms", current)
    counted = _timeout(story, setting, longer, in_force)
    return lambda value: (counted(value), losses * value)


def newcomers_of(story: Story) -> list[tuple[int, int]]:
    """When each name joined for the first time, in order, and the generation that it came into."""
    ahead = {each.host: each.ahead_ms for each in story.skews}
    seen: set[str] = set()
    found = []
    for life in story.lives:
        first = next((each for each in life.stretches if each.completed_at_ms is not None), None)
        if life.name not in seen and first is not None and first.generation is not None:
            at_ms = first.first_at_ms if first.started_at_ms is None else first.started_at_ms
            found.append((at_ms - ahead.get(life.host, 0), first.generation))
        seen.add(life.name)
    return sorted(found)


def _scale_ups(newcomers: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = []
    for each in newcomers:
        if found and each[0] - found[-1][-1][0] <= SCALE_UP_MS:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _expansion(story: Story, current: Current) -> Curve:
    in_force, fitting = _told_value(story, EXPANSION, current), caused_by(story, EXPANSION)
    scale_ups = _scale_ups(newcomers_of(story))

    def curve(value: int) -> tuple[Interval, int]:
        rounds = idle_ms = 0
        for newcomers in scale_ups:
            ends: list[int] = []
            for at_ms, _ in newcomers:
                if not ends or at_ms > ends[-1]:
                    ends.append(at_ms + value)
                idle_ms += ends[-1] - at_ms
            # Newcomers that join during a rebalance take part in it, however short the time-out is.
            rounds += min(len(ends), len({generation for _, generation in newcomers}))
        if value >= in_force:
            rounds = min(rounds, fitting)
        return (rounds, rounds), idle_ms

    return curve


def _backlog(story: Story) -> Curve:
    """A partition that would not have got a catch-up lane holds up the head for its whole backlog."""
    done = [(each.amount or 0, each.duration_ms) for each in story.of("catch_up") if each.duration_ms]

    def curve(value: int) -> tuple[Interval, int]:
        return (0, 0), sum(duration_ms for records, duration_ms in done if records < value)

    return curve
