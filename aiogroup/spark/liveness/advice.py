"""Advice: the value that a group's log supports for each setting, and on what that rests, or what is missing.

Each rule is one function; docs/time-outs.md has them in words. A rule proposes a value of the grid only if the log
shows needless rebalances that the value would have avoided, or real failures that it would have noticed in half the
time. Everything else is kept: a time-out is not made shorter for its own sake.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final, NamedTuple, TypeAlias

from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError
from aiogroup.spark.liveness.buckets import Histogram, above, greatest, size
from aiogroup.spark.liveness.counterfactuals import (
    EXPANSION,
    GRIDS,
    Counterfactual,
    Current,
    absences_of,
    caused_by,
    counterfactuals_of,
    newcomers_of,
    restarts_of,
    worst_of,
)
from aiogroup.spark.liveness.episodes import DAY_MS, Story
from aiogroup.spark.liveness.stretches import SETTINGS

__all__ = ["ENOUGH", "Enough", "Findings", "Proposal", "findings_of"]

HOUR_MS: Final = 3_600_000
SPARED_PART: Final = 0.95
"""A proposal spares at least this share of the needless removals, or of the deploys."""
MARGIN: Final = 3
"""A time-out is made shorter to no less than three times the longest gap that was seen."""
NAMES: Final = "group_instance_id"
REGISTRATION: Final = "registration_timeout_ms"
TOO_LONG: Final = "too many absences are longer than the 30 minutes that a broker allows"
HEAD_DELAY_MS: Final = 1_000
"""A backlog that is read in this time needs no catch-up lane."""
ADVISED: Final = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "max_poll_records",
    "group_instance_id",
    "registration_timeout_ms",
    "expansion_timeout_ms",
    "parallel_min_backlog",
)


class Proposal(NamedTuple):
    """The advice about one setting. `verdict` is change, keep, or not enough; `why` has the reason, or what is missing.

    `proposed` is `None` if there is not enough, and for `group_instance_id`, since each member needs its own.
    `rebalances` is the least and the greatest number that the setting caused, never more than there were. `gained` is
    the least and the greatest number of rebalances that the proposal would have avoided. `sooner_ms` is how much sooner
    all failures together would have been noticed (negative: later).
    """

    group: str
    setting: str
    current: int | None
    proposed: int | None
    verdict: str
    why: str
    rebalances_least: int
    rebalances_most: int
    gained_least: int
    gained_most: int
    sooner_ms: int
    observations_count: int
    span_ms: int


class Enough(NamedTuple):
    """The least number of observations that a setting's advice needs, and the least length of the log."""

    observations_count: int = 30
    span_ms: int = DAY_MS


ENOUGH: Final = Enough()
"""What advice for production needs; a rehearsal, which injects faults, is shorter."""


class Findings(NamedTuple):
    """The result for one group."""

    story: Story
    counterfactuals: list[Counterfactual]
    proposals: list[Proposal]

    def without_lives(self) -> Findings:
        """The same without the data that only the rules need, which is most of it."""
        return self._replace(story=self.story._replace(lives=()))


class _Seen(NamedTuple):
    """The input of the rules. `settled` has the settings in force, replaced by the proposals so far."""

    story: Story
    histograms: Mapping[str, Histogram]
    settled: dict[str, int | None]
    curves: dict[tuple[str, int], Counterfactual]

    @property
    def is_named(self) -> bool:
        """Whether members have static names, or are to get them."""
        return self.story.is_static or NAMES in self.settled

    def histogram(self, name: str) -> Histogram:
        return self.histograms.get(name, {})

    def number(self, setting: str) -> int:
        return self.settled.get(setting) or 0

    @property
    def session_ms(self) -> int:
        return self.number("session_timeout_ms")

    @property
    def interval_ms(self) -> int:
        return max(self.number("max_poll_interval_ms"), self.session_ms)

    def count(self, *causes: str) -> int:
        return sum(each.cause in causes for each in self.story.rebalances)


Said: TypeAlias = tuple[int | None, str]
"""The proposed value, or `None` to keep the present one; and why."""


def findings_of(
    story: Story,
    histograms: Mapping[str, Histogram],
    settings: Mapping[str, int | None] | None = None,
    enough: Enough = ENOUGH,
) -> Findings:
    """The curves and the advice for one group. `settings` override the settings in its samples."""
    current = _current(story, settings)
    counterfactuals = counterfactuals_of(story, histograms, current)
    seen = _Seen(story, histograms, dict(current), {(each.setting, each.value): each for each in counterfactuals})
    proposals = [
        _names(seen, enough) if setting == NAMES else _advise(setting, seen, current, enough) for setting in ADVISED
    ]
    return Findings(story, counterfactuals, proposals)


def _current(story: Story, settings: Mapping[str, int | None] | None) -> dict[str, int | None]:
    defaults = ConsumerConfig(group_id=story.group)
    told = dict(zip(SETTINGS, story.settings, strict=True)) if story.settings is not None else {}
    return {
        name: (settings or {}).get(name, told.get(name, getattr(defaults, name) if not told else None))
        for name in SETTINGS
    }


def _advise(setting: str, seen: _Seen, current: Current, enough: Enough) -> Proposal:
    rule, count = RULES[setting], OBSERVATIONS[setting](seen)
    proposed: int | None = None
    if missing := _missing(setting, seen.story, count, enough, is_named=seen.is_named):
        verdict, why = "not enough", missing
    else:
        proposed, why = rule(seen)
        if proposed == current[setting]:
            proposed = None
        if proposed is not None and (refusal := _refusal(setting, proposed, seen)):
            proposed, why = None, f"{proposed} would be refused: {refusal}"
        verdict = "keep" if proposed is None else "change"
    if proposed is not None:
        seen.settled[setting] = proposed
    return _proposal(setting, seen, current, proposed, verdict, why, count)


def _names(seen: _Seen, enough: Enough) -> Proposal:
    """The proposal to use static names, which has no value and no curve. With static names `registration_timeout_ms`
    matters too.
    """
    story, restarts, there_were = seen.story, restarts_of(seen.story), caused_by(seen.story, NAMES)
    verdict, why, gained = "keep", "no restart without a static name cost a rebalance", (0, 0)
    if missing := _missing(NAMES, story, len(restarts), enough, is_named=True):
        verdict, why = "not enough", missing
    elif there_were:
        waits_ms = _covering(restarts)
        assert waits_ms is not None, "longer absences are no restarts"
        seen.settled[NAMES] = None
        longer = sum(each > waits_ms for each in restarts)
        verdict, gained = "change", (max(0, there_were - 2 * longer), there_were)
        why = f"{len(restarts)} members left and were replaced by new ones, who could have taken their names over"
    return Proposal(
        story.group, NAMES, None, None, verdict, why, there_were, there_were, *gained, 0, len(restarts), story.span_ms
    )


def _covering(absences: Sequence[int]) -> int | None:
    """The smallest time of the grid that covers enough absences (`SPARED_PART`)."""
    wanted = SPARED_PART * len(absences)
    return next((each for each in GRIDS[REGISTRATION] if sum(away <= each for away in absences) >= wanted), None)


def _proposal(
    setting: str, seen: _Seen, current: Current, proposed: int | None, verdict: str, why: str, count: int
) -> Proposal:
    now = next((each for (name, _), each in seen.curves.items() if name == setting and each.is_current), None)
    then = seen.curves.get((setting, proposed)) if proposed is not None else now
    least, most = (now.rebalances_least, now.rebalances_most) if now is not None else (0, 0)
    gained, sooner = (0, 0), 0
    if now is not None and then is not None and proposed is not None:
        gained = max(0, least - then.rebalances_most), max(0, most - then.rebalances_least)
        sooner = now.late_ms - then.late_ms
    return Proposal(
        seen.story.group,
        setting,
        current[setting],
        current[setting] if verdict == "keep" else proposed,
        verdict,
        why,
        least,
        most,
        *gained,
        sooner,
        count,
        seen.story.span_ms,
    )


def _missing(setting: str, story: Story, count: int, enough: Enough, *, is_named: bool) -> str:
    missing = []
    if (setting == REGISTRATION and not is_named) or (setting == EXPANSION and not story.is_static):
        missing.append("no member has a static name (group_instance_id)")
    if count < enough.observations_count:
        missing.append(f"{count} of {enough.observations_count} observations of {OBSERVED[setting]}")
    if story.span_ms < enough.span_ms:
        missing.append(f"{story.span_ms / HOUR_MS:.1f} of {enough.span_ms / HOUR_MS:g} hours")
    return "; ".join(missing)


def _refusal(setting: str, value: int, seen: _Seen) -> str:
    """The consumer's error for the settings with this proposal and the earlier ones; "" if it accepts them."""
    settings = {name: each for name, each in seen.settled.items() if each is not None} | {setting: value}
    if setting == "session_timeout_ms":  # the rule for the heartbeat interval runs later and adapts to it
        settings["heartbeat_interval_ms"] = min(seen.number("heartbeat_interval_ms") or value // 3, value // 3)
    name = {NAMES: "a-name"} if seen.is_named else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ConsumerConfig.of(group_id=seen.story.group, **name, **settings)  # type: ignore[arg-type]
    except ConfigError as error:
        return str(error)
    return ""


def _sparing(setting: str, histogram: Histogram, now: int) -> int | None:
    """The smallest value of the grid that covers enough of the gaps that were longer than `now`."""
    most = above(histogram, now)[1]
    return next(
        (
            each
            for each in GRIDS[setting]
            if each > now and above(histogram, each)[1] <= (1 - SPARED_PART) * most + 1e-9
        ),
        None,
    )


def _shorter(setting: str, longest_ms: float, now: int) -> int | None:
    """The smallest value of the grid with a margin above all gaps, if it is at most half of the present value."""
    return next((each for each in GRIDS[setting] if each >= MARGIN * longest_ms and 2 * each <= now), None)


def _told(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


# The rules.


def _session(seen: _Seen) -> Said:
    setting, gaps, now = "session_timeout_ms", seen.histogram("heartbeat_gap_ms"), seen.session_ms
    if seen.story.is_static and seen.settled.get("registration_timeout_ms") is not None:
        return None, "of static members the coordinator counts registration_timeout_ms"
    least, most = above(gaps, now)
    if least or (most and seen.count("session_expired", "loop_blocked", "process_paused")):
        proposed = _sparing(setting, gaps, now)
        if proposed is None:
            return None, "some gaps between heartbeats are longer than any sensible session: see loop_blocked"
        return proposed, f"{_told(least, most)} gaps between heartbeats were longer than the session"
    crashes = sum(life.end == "silence" and life.instance_id is None for life in seen.story.lives)
    if crashes and (shorter := _shorter(setting, greatest(gaps), now)) is not None:
        return shorter, f"{crashes} crashes were noticed late, and no gap was longer than {greatest(gaps):.0f} ms"
    return None, f"the longest gap between heartbeats is up to {greatest(gaps):.0f} ms"


def _heartbeat(seen: _Seen) -> Said:
    interval, third = seen.number("heartbeat_interval_ms"), seen.session_ms // 3
    if interval > third + 1:
        return third, f"a third of session_timeout_ms={seen.session_ms}, so that two lost heartbeats cost nothing"
    return None, "at most a third of the session"


def _poll(seen: _Seen) -> Said:
    setting, gaps, now = "max_poll_interval_ms", seen.histogram("request_gap_ms"), seen.interval_ms
    expiries = [each.cause for each in seen.story.of("poll_interval_exceeded")]
    least, most = above(gaps, now)
    if least or (most and "slow" in expiries):
        if fewer := _fewer_records(seen):
            return None, f"max_poll_records={fewer} is enough: no record takes so long, but a batch does"
        proposed = _sparing(setting, gaps, now)
        if proposed is None:
            return None, "some handlers take longer than an hour: give their work to a job"
        return proposed, f"{_told(least, most)} times the application asked later than that, and came back"
    hung = expiries.count("hung")
    if hung and (shorter := _shorter(setting, greatest(gaps), now)) is not None:
        return shorter, f"{hung} hung handlers held their partitions, and nobody else took over {greatest(gaps):.0f} ms"
    return None, f"the longest time between two requests is up to {greatest(gaps):.0f} ms"


def _fewer_records(seen: _Seen) -> int | None:
    """The largest batch that would fit twice into the poll interval, if batches are what takes too long."""
    slowest, records = worst_of(seen.histograms), seen.histogram("record_ms")
    now = seen.settled.get("max_poll_records")
    if slowest is None or greatest(records) > seen.interval_ms or above(seen.histogram("request_gap_ms"), 0)[1] == 0:
        return None
    fitting = [each for each in GRIDS["max_poll_records"] if 2 * each * slowest[1] <= seen.interval_ms]
    if not fitting or (now is not None and fitting[-1] >= now):
        return None
    return fitting[-1] if above(seen.histogram("batch_records"), fitting[-1])[0] else None


def _records(seen: _Seen) -> Said:
    slowest = worst_of(seen.histograms)
    least, most = above(seen.histogram("request_gap_ms"), seen.interval_ms)
    took = f"a record takes up to {slowest[1]:.0f} ms (99.9 %)" if slowest is not None else ""
    expired = any(each.cause == "slow" for each in seen.story.of("poll_interval_exceeded"))
    if (least or (most and expired)) and (fewer := _fewer_records(seen)):
        return fewer, f"{took}, so a batch of {fewer} fits twice into {seen.interval_ms} ms"
    return None, took


def _registration(seen: _Seen) -> Said:
    absences = _away(seen)
    now = seen.settled.get(REGISTRATION) or seen.session_ms
    spared = sum(each <= now for each in absences)
    proposed = _covering(absences)
    if proposed is None:
        return None, TOO_LONG
    if spared < SPARED_PART * len(absences):
        if not (caused_by(seen.story, REGISTRATION) or NAMES in seen.settled):
            return None, f"{len(absences) - spared} of {len(absences)} restarts took longer, and cost no rebalance"
        return proposed, f"{len(absences) - spared} of {len(absences)} restarts took longer than {now} ms"
    losses = sum(each.duration_ms is None for each in seen.story.of("static_absence"))
    if losses and 2 * proposed <= now:
        return proposed, f"{losses} members were lost for good, and {proposed} ms spare the restarts as well"
    return None, f"{spared} of {len(absences)} restarts took no longer"


def _away(seen: _Seen) -> list[int]:
    """The absences of static members, or, if the group has none, of the members that would get a static name."""
    return absences_of(seen.story) if seen.story.is_static else restarts_of(seen.story)


def _expansion(seen: _Seen) -> Said:
    found = {value: each.rebalances_most for (name, value), each in seen.curves.items() if name == EXPANSION}
    now, none = found[seen.number(EXPANSION)], found[0]
    best = min(found.values())
    enough = min(value for value, count in found.items() if none - count >= 0.9 * (none - best))
    if 2 * (none - best) >= none and found[enough] < now:
        return enough, f"{none} rebalances for newcomers would have been {found[enough]}"
    return None, f"{now} rebalances for {len(newcomers_of(seen.story))} newcomers"


def _backlog(seen: _Seen) -> Said:
    rates = [(each.amount or 0) / each.duration_ms for each in seen.story.of("catch_up") if each.duration_ms]
    fitting, now = HEAD_DELAY_MS * median_low(rates), seen.number("parallel_min_backlog")
    proposed = max((each for each in GRIDS["parallel_min_backlog"] if each <= fitting), default=100)
    why = f"{fitting:.0f} records are caught up in {HEAD_DELAY_MS} ms"
    return (proposed if not now / 3 <= fitting <= now * 3 else None), why


RULES: Final[dict[str, Callable[[_Seen], Said]]] = {
    "session_timeout_ms": _session,
    "heartbeat_interval_ms": _heartbeat,
    "max_poll_interval_ms": _poll,
    "max_poll_records": _records,
    REGISTRATION: _registration,
    EXPANSION: _expansion,
    "parallel_min_backlog": _backlog,
}
OBSERVED: Final = {
    "session_timeout_ms": "gaps between heartbeats",
    "heartbeat_interval_ms": "gaps between heartbeats",
    "max_poll_interval_ms": "requests",
    "max_poll_records": "records",
    NAMES: "members without a static name that were replaced",
    REGISTRATION: "static members that came back",
    EXPANSION: "newcomers",
    "parallel_min_backlog": "catch-up phases",
}


def _count_of(name: str) -> Callable[[_Seen], int]:
    return lambda seen: size(seen.histogram(name))


OBSERVATIONS: Final[dict[str, Callable[[_Seen], int]]] = {
    "session_timeout_ms": _count_of("heartbeat_gap_ms"),
    "heartbeat_interval_ms": _count_of("heartbeat_gap_ms"),
    "max_poll_interval_ms": _count_of("request_gap_ms"),
    "max_poll_records": _count_of("record_ms"),
    REGISTRATION: lambda seen: len(_away(seen)),
    EXPANSION: lambda seen: len(newcomers_of(seen.story)),
    "parallel_min_backlog": lambda seen: sum(bool(each.duration_ms) for each in seen.story.of("catch_up")),
}
