"""Episodes: what happened to the members of a group, and why the group rebalanced. Pure: no Spark, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from aiogroup.spark.liveness.groups import Life, Skew, View, end_of, generations_of, lives_of, restarts_of, skews_of
from aiogroup.spark.liveness.stretches import Incident, Stretch, in_order

__all__ = ["DAY_MS", "GENERIC", "Episode", "Rebalance", "Story", "story_of"]

DAY_MS: Final = 86_400_000
GENERIC: Final = "the group rebalances"
"""In a log without the field `reason`: how the text begins if a member only followed the others."""
BLOCKED_PART: Final = 2
"""A blocked loop or a paused process counts as the cause from half of the session on, as for `session_endangered`."""
LEAVING: Final = {"stop": "left", "silence": "crashed", "fenced": "failed", "failed": "failed"}
RANK: Final = (
    "poll_interval_exceeded", "process_paused", "loop_blocked", "session_expired", "crashed", "failed", "left",
    "rejoined", "returned", "joined", "asked", "unknown",
)  # fmt: skip
"""If a rebalance has several causes, the first of these is named: a member that goes makes the others wait, a newcomer
only joins.
"""


class Episode(NamedTuple):
    """One thing that one member lived through, on the corrected clock; without an end it lasted to the log's end.

    Kinds: life, poll_interval_exceeded, loop_blocked, process_paused, silent_coordinator, static_absence, restart,
    catch_up, clock_skew. For a restart, which is the stop of a member without a static name, `cause` is its successor.
    `amount` is the backlog of a catch-up in records, the interval that was exceeded, or the number of generations
    behind a skew.
    """

    group: str
    kind: str
    member: str
    host: str
    instance: str | None
    started_at_ms: int
    ended_at_ms: int | None
    duration_ms: int | None
    cause: str
    amount: int | None


class Rebalance(NamedTuple):
    """A rebalance of the group. `standstill_ms` is the sum, over all partitions, of the time without a member.

    It counts from the hand-over to the assignment. A cooperative member goes on reading the partitions that it keeps,
    so for it the number is an upper bound. `last_member` joined last, and `waited_ms` is how long each member waited
    for its application. `setting` is the setting that could have avoided the rebalance; "" if none could, since the
    group had to know.
    """

    group: str
    generation: int
    cause: str
    caused_by: str
    setting: str
    why: str
    started_at_ms: int
    completed_at_ms: int
    duration_ms: int
    members_count: int
    partitions_count: int
    last_member: str
    longest_wait_ms: int
    waited_ms: dict[str, int]
    standstill_ms: int


class Story(NamedTuple):
    """All that is known of one group. Advice rests on this and on the histograms."""

    group: str
    started_at_ms: int
    ended_at_ms: int
    settings: tuple[int | None, ...] | None
    is_static: bool
    lives: tuple[Life, ...]
    skews: tuple[Skew, ...]
    episodes: tuple[Episode, ...]
    rebalances: tuple[Rebalance, ...]

    @property
    def span_ms(self) -> int:
        return self.ended_at_ms - self.started_at_ms

    def of(self, kind: str) -> list[Episode]:
        return [each for each in self.episodes if each.kind == kind]


def story_of(group: str, stretches: Iterable[Stretch]) -> Story:
    """Join the stretches of a group's members. Their order does not matter."""
    told = _filled(sorted(stretches, key=lambda each: each.place))
    skews = skews_of(told)
    log_end_ms = end_of([each._replace(last_at_ms=each.last_at_ms - _ahead(each.host, skews)) for each in told])
    lives = lives_of(told, skews, log_end_ms)
    generations = generations_of(lives, skews)
    restarts = restarts_of(lives)
    latest = max((each for each in told if each.settings is not None), key=_settings_order, default=None)
    episodes = [
        *(each for life in lives for each in _of_life(group, life, skews)),
        *_absences(group, lives),
        *(_told_restart(group, old, new) for old, new in restarts),
        *(_told_skew(group, each, log_end_ms) for each in skews.values()),
    ]
    return Story(
        group=group,
        started_at_ms=min(life.first_at_ms for life in lives),
        ended_at_ms=log_end_ms,
        settings=latest.settings if latest is not None else None,
        is_static=any(life.instance_id for life in lives),
        lives=tuple(lives),
        skews=tuple(skews.values()),
        episodes=tuple(sorted(episodes, key=lambda each: (each.started_at_ms, each.kind, each.member, str(each)))),
        rebalances=tuple(_rebalances(group, generations, _Sparing.of(lives, restarts))),
    )


def _filled(told: Sequence[Stretch]) -> list[Stretch]:
    """Fill in the static name in all stretches of a life, and the settings of the last sample before each stretch."""
    names = {(each.member, each.life): each.instance_id for each in told if each.instance_id}
    filled: list[Stretch] = []
    for each in told:
        is_same_life = bool(filled) and (filled[-1].member, filled[-1].life) == (each.member, each.life)
        settings, at_ms = each.settings, each.settings_at_ms
        if settings is None and is_same_life:
            settings, at_ms = filled[-1].settings, filled[-1].settings_at_ms
        name = names.get((each.member, each.life))
        filled.append(each._replace(instance_id=name, settings=settings, settings_at_ms=at_ms))
    return filled


def _ahead(host: str, skews: Mapping[str, Skew]) -> int:
    return skews[host].ahead_ms if host in skews else 0


def _settings_order(stretch: Stretch) -> tuple[int, str, int, int]:
    assert stretch.settings_at_ms is not None
    return stretch.settings_at_ms, stretch.member, stretch.life, stretch.turn


# What one member lived through.


def _of_life(group: str, life: Life, skews: Mapping[str, Skew]) -> Iterator[Episode]:
    ahead_ms = _ahead(life.host, skews)
    is_ended = life.end != "open"
    yield _episode(group, "life", life, life.first_at_ms, life.last_at_ms if is_ended else None, life.end, None)
    incidents = [incident for stretch in life.stretches for incident in stretch.incidents]
    incidents = [*in_order(each._replace(at_ms=each.at_ms - ahead_ms) for each in incidents)]
    completions = [each.completed_at_ms - ahead_ms for each in life.stretches if each.completed_at_ms is not None]
    for index, incident in enumerate(incidents):
        later = incidents[index + 1 :]
        at_ms, amount = incident.at_ms, incident.amount
        match incident.event:
            case "poll_interval_exceeded":
                back = next((each for each in completions if each >= at_ms), None)
                cause = "hung" if back is None else "slow"
                yield _episode(group, incident.event, life, at_ms, back, cause, amount)
            case "event_loop_blocked" if not _is_of_a_pause(incident, incidents):
                yield _episode(group, "loop_blocked", life, at_ms - (amount or 0), at_ms, "a call did not await", None)
            case "process_stood_still":
                yield _episode(group, "process_paused", life, at_ms - (amount or 0), at_ms, "no thread ran", None)
            case "coordinator_lost" if amount is not None:
                found = next((each.at_ms for each in later if each.event == "coordinator_found"), None)
                yield _episode(group, "silent_coordinator", life, at_ms, found, incident.subject or "", None)
            case "catch_up_started":
                done = _next_of(later, "catch_up_done", incident.subject)
                yield _episode(group, "catch_up", life, at_ms, done, incident.subject or "", amount)


def _is_of_a_pause(blocked: Incident, incidents: Iterable[Incident]) -> bool:
    """Whether the loop was late because the whole process was paused. The event about the pause comes just before."""
    since_ms = blocked.at_ms - (blocked.amount or 0)
    return any(
        each.event == "process_stood_still" and each.seq < blocked.seq and since_ms <= each.at_ms <= blocked.at_ms
        for each in incidents
    )


def _next_of(later: Iterable[Incident], event: str, subject: str | None) -> int | None:
    return next((each.at_ms for each in later if each.event == event and each.subject == subject), None)


def _episode(
    group: str, kind: str, life: Life, began_ms: int, ended_ms: int | None, cause: str, amount: int | None
) -> Episode:
    duration_ms = None if ended_ms is None else ended_ms - began_ms
    return Episode(
        group, kind, life.member, life.host, life.instance_id, began_ms, ended_ms, duration_ms, cause, amount
    )


def _absences(group: str, lives: Iterable[Life]) -> Iterator[Episode]:
    """From the last time that the coordinator heard of a static name's process to the first time that it heard of the
    next process.
    """
    named: dict[str, list[Life]] = {}
    for life in lives:
        if life.instance_id is not None:
            named.setdefault(life.instance_id, []).append(life)
    for _, own in sorted(named.items()):
        for old, new in pairwise(own):
            if new.back_at_ms > old.gone_at_ms:
                yield _episode(group, "static_absence", old, old.gone_at_ms, new.back_at_ms, old.end, None)
        if own[-1].end not in ("open", "fenced"):
            yield _episode(group, "static_absence", own[-1], own[-1].last_at_ms, None, own[-1].end, None)


def _told_restart(group: str, old: Life, new: Life) -> Episode:
    back_ms = max(old.gone_at_ms, new.back_at_ms)  # the new process may begin before the old one ends
    return _episode(group, "restart", old, old.gone_at_ms, back_ms, new.member, None)


def _told_skew(group: str, skew: Skew, log_end_ms: int) -> Episode:
    spread = f"within {skew.spread_ms} ms over {skew.generations_count} generations"
    return Episode(
        group, "clock_skew", "", skew.host, None, log_end_ms, log_end_ms, skew.ahead_ms, spread, skew.generations_count
    )


# The rebalances of the group.


class _Sparing(NamedTuple):
    """The lives whose rebalances a setting could have avoided: under a static name that came back, or before and after
    a restart without a name.
    """

    came_back: frozenset[tuple[str, int]]
    replaced: frozenset[tuple[str, int]]
    successors: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, lives: Iterable[Life], restarts: Sequence[tuple[Life, Life]]) -> _Sparing:
        named: dict[str, list[Life]] = {}
        for life in lives:
            if life.instance_id is not None:
                named.setdefault(life.instance_id, []).append(life)
        came_back = frozenset(life.key for own in named.values() for life in own[:-1])
        return cls(came_back, frozenset(old.key for old, _ in restarts), frozenset(new.key for _, new in restarts))

    def setting(self, cause: str, life: Life, *, is_back: bool) -> str:
        """The setting that could have avoided a rebalance of this cause. `is_back`: the member came back."""
        is_static = life.instance_id is not None
        match cause:
            case "poll_interval_exceeded":
                return "max_poll_interval_ms" if is_back else ""
            case "process_paused" | "loop_blocked" | "session_expired":
                return "registration_timeout_ms" if is_static and life.has_registration else "session_timeout_ms"
            case "left" | "crashed" if life.key in self.came_back:
                return "registration_timeout_ms"
            case "returned":
                return "registration_timeout_ms"
            case "left" if life.key in self.replaced:
                return "group_instance_id"
            case "joined" if life.key in self.successors:
                return "group_instance_id"
            case "joined" if is_static:
                return "expansion_timeout_ms"
        return ""


class _Found(NamedTuple):
    """One reason for a rebalance. For a member that came back, `removal` is why it had been removed."""

    rank: int
    at_ms: int
    member: str
    life: Life
    removal: str
    is_back: bool


def _rebalances(group: str, generations: Iterable[Sequence[View]], sparing: _Sparing) -> Iterator[Rebalance]:
    before: Sequence[View] = ()
    known: set[str] = set()
    for views in generations:
        cause, by, setting = _cause(views, before, known, sparing)
        last = max(views, key=lambda view: (view.joining_at_ms, view.life.key))
        started = min(view.started_at_ms for view in views)
        completed = max(view.completed_at_ms for view in views)
        generation = views[0].stretch.generation
        assert generation is not None
        yield Rebalance(
            group=group,
            generation=generation,
            cause=cause,
            caused_by=by,
            setting=setting,
            why=_why(views),
            started_at_ms=started,
            completed_at_ms=completed,
            duration_ms=completed - started,
            members_count=len(views),
            partitions_count=sum(view.stretch.partitions_count or 0 for view in views),
            last_member=last.life.member,
            longest_wait_ms=max(view.waited_ms for view in views),
            waited_ms={view.life.member: view.waited_ms for view in views},
            standstill_ms=sum(
                (view.completed_at_ms - view.joining_at_ms) * (view.stretch.partitions_count or 0) for view in views
            ),
        )
        known.update(view.life.name for view in views)
        before = views


def _why(views: Iterable[View]) -> str:
    """The reason of the first member that did not only follow the others."""
    ordered = sorted(views, key=lambda view: (view.started_at_ms, view.life.key))
    told = [view.stretch for view in ordered if view.stretch.why is not None]
    first = next((each for each in told if not _only_followed(each)), told[0] if told else None)
    return "" if first is None else first.why or ""


def _only_followed(stretch: Stretch) -> bool:
    return (stretch.why or "").startswith(GENERIC) if stretch.reason is None else stretch.reason == "group"


def _cause(views: Sequence[View], before: Sequence[View], known: set[str], sparing: _Sparing) -> tuple[str, str, str]:
    """The cause, the member that it is about, and the setting that could have avoided it."""
    present, earlier = {view.life.key for view in views}, {view.life.key for view in before}
    completed = max(view.completed_at_ms for view in views)
    found = [_departure(view, completed) for view in before if view.life.key not in present]
    for view in views:
        removal = _removal(view.stretch)
        if view.life.key in earlier:
            cause = removal
        elif view.life.name in known:
            cause = "returned" if view.is_first else "rejoined"
        else:
            cause = "joined"
        if cause is not None:
            found.append(
                _Found(RANK.index(cause), view.started_at_ms, view.life.member, view.life, removal or "", is_back=True)
            )
    if not found:
        asked = sorted(
            (view.started_at_ms, view.life.member)
            for view in views
            if view.stretch.why is not None and not _only_followed(view.stretch)
        )
        return ("asked", asked[0][1], "") if asked else ("unknown", "", "")
    first = min(found, key=lambda each: each[:3])
    cause = RANK[first.rank]
    spared = first.removal if cause == "rejoined" else cause
    return cause, first.member, sparing.setting(spared, first.life, is_back=first.is_back)


def _departure(view: View, completed_ms: int) -> _Found:
    """Why a member of the previous generation is not in this one."""
    life, turn = view.life, view.stretch.turn
    following = next((each for each in life.stretches if each.turn == turn + 1), None)
    removal = None if following is None else _removal(following)
    if removal == "poll_interval_exceeded":
        cause = removal
    elif life.end in LEAVING and life.last_at_ms <= completed_ms:
        cause = LEAVING[life.end]
    elif following is not None:
        cause = removal or _expiry(following)
    else:
        cause = "session_expired"
    is_back = following is not None and following.completed_at_ms is not None
    return _Found(RANK.index(cause), life.last_at_ms, life.member, life, cause, is_back)


def _removal(stretch: Stretch) -> str | None:
    """Why a member was removed, or gave up, in this stretch; `None` if it was not."""
    exceeded = [each for each in stretch.incidents if each.event == "poll_interval_exceeded"]
    if exceeded:
        interval = min(each.amount or 0 for each in exceeded)
        return "process_paused" if BLOCKED_PART * _paused_ms(stretch) > interval else "poll_interval_exceeded"
    return _expiry(stretch) if any(each.event == "member_removed" for each in stretch.incidents) else None


def _expiry(stretch: Stretch) -> str:
    """Why a member's session expired: its process was paused, its loop was blocked, or neither is known."""
    session = stretch.settings[0] if stretch.settings else None
    incidents = stretch.incidents
    blocked = [each for each in incidents if each.event == "event_loop_blocked" and not _is_of_a_pause(each, incidents)]
    lengths = {
        "process_paused": _paused_ms(stretch),
        "loop_blocked": max((each.amount or 0 for each in blocked), default=0),
    }
    return next((cause for cause, ms in lengths.items() if BLOCKED_PART * ms > (session or 0)), "session_expired")


def _paused_ms(stretch: Stretch) -> int:
    return max((each.amount or 0 for each in stretch.incidents if each.event == "process_stood_still"), default=0)
