"""The members of one group, joined from the stretches of all of them, with the clocks of their hosts corrected.

The clocks of hosts differ. The coordinator sends a generation to all its members at once, to within the time that a
message takes. So the difference of their clocks at that moment, over all generations that two hosts share, tells how
far the clocks are apart. All instants below are corrected by that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import Final, NamedTuple

from aiogroup.spark.liveness.stretches import SETTINGS, SILENCE_MS, Stretch

__all__ = ["Life", "Skew", "View", "end_of", "generations_of", "lives_of", "restarts_of", "skews_of"]

SAME_GENERATION_MS: Final = 3_600_000
"""A group that was empty for days counts its generations from 1 again. So views of one number that are further apart
than this are of two generations.
"""


RESTART_MS: Final = 600_000
"""A member that begins within this time after another one stopped may be its replacement."""
SURGE_MS: Final = 120_000
"""A rolling deploy often starts the new process before it stops the old one, at most this long before."""


class Skew(NamedTuple):
    """How far a host's clock is ahead of the middle of its group; `spread_ms` is the most that two rounds differ."""

    host: str
    ahead_ms: int
    generations_count: int
    spread_ms: int


class Life(NamedTuple):
    """A member from its first line to its last, or until it failed, since a failed member is no longer in the group.

    `end` is stop, fenced, failed, silence, or open at the log's end.
    """

    member: str
    life: int
    host: str
    instance_id: str | None
    first_at_ms: int
    last_at_ms: int
    heard_first_ms: int | None
    heard_last_ms: int | None
    end: str
    stretches: tuple[Stretch, ...]

    @property
    def key(self) -> tuple[str, int]:
        return self.member, self.life

    @property
    def name(self) -> str:
        """The static name, which outlives a process; for a dynamic member, a name of this life."""
        return self.instance_id or f"{self.member}#{self.life}"

    @property
    def gone_at_ms(self) -> int:
        """When the coordinator last heard of the member, as far as the member's log knows."""
        return self.last_at_ms if self.heard_last_ms is None else self.heard_last_ms

    @property
    def back_at_ms(self) -> int:
        """When the coordinator first heard of the member, as far as the member's log knows."""
        return self.first_at_ms if self.heard_first_ms is None else self.heard_first_ms

    @property
    def has_registration(self) -> bool:
        """Whether the coordinator counts `registration_timeout_ms` for it."""
        settings = next((each.settings for each in reversed(self.stretches) if each.settings is not None), None)
        return settings is not None and settings[SETTINGS.index("registration_timeout_ms")] is not None


class View(NamedTuple):
    """One member's view of a generation, its instants corrected."""

    life: Life
    stretch: Stretch
    started_at_ms: int
    joining_at_ms: int
    completed_at_ms: int

    @property
    def waited_ms(self) -> int:
        """The time from the beginning until its application had handed over its records."""
        return max(self.joining_at_ms - self.started_at_ms, 0)

    @property
    def is_first(self) -> bool:
        return self.stretch.turn == 0


def end_of(stretches: Iterable[Stretch]) -> int:
    """The last instant in the group's log."""
    return max(each.last_at_ms for each in stretches)


def skews_of(stretches: Sequence[Stretch]) -> dict[str, Skew]:
    """The clock of each host relative to the median of the hosts that saw the same generations. A host that shares no
    generation is left out.
    """
    differences: dict[str, list[int]] = defaultdict(list)
    for views in _same_generation(stretches):
        at = {host: median_low([_answered_at(each) for each in own]) for host, own in _by_host(views).items()}
        if len(at) > 1:
            middle = median_low(at.values())
            for host, host_at_ms in at.items():
                differences[host].append(host_at_ms - middle)
    return {
        host: Skew(host, median_low(found), len(found), max(found) - min(found))
        for host, found in sorted(differences.items())
    }


def _by_host(views: Iterable[Stretch]) -> dict[str, list[Stretch]]:
    hosts: dict[str, list[Stretch]] = defaultdict(list)
    for each in views:
        hosts[each.host].append(each)
    return dict(sorted(hosts.items()))


def _answered_at(stretch: Stretch) -> int:
    at_ms = stretch.synced_at_ms if stretch.synced_at_ms is not None else stretch.completed_at_ms
    assert at_ms is not None
    return at_ms


def _same_generation(stretches: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    """The views of each generation, without those of a static member that came back into it without a rebalance."""
    generations: dict[int, list[Stretch]] = defaultdict(list)
    for each in stretches:
        if each.generation is not None:
            generations[each.generation].append(each)
    for _, views in sorted(generations.items()):
        views.sort(key=lambda each: (_answered_at(each), each.place))
        together: list[Stretch] = []
        seen: set[str] = set()
        for each in views:
            if together and _answered_at(each) - _answered_at(together[-1]) > SAME_GENERATION_MS:
                yield together
                together, seen = [], set()
            name = each.instance_id or each.member
            if name not in seen:
                seen.add(name)
                together.append(each)
        yield together


def lives_of(stretches: Sequence[Stretch], skews: Mapping[str, Skew], log_end_ms: int) -> list[Life]:
    """The lives of a group's members, in the order of their beginnings; instants are corrected."""
    lives: dict[tuple[str, int], list[Stretch]] = defaultdict(list)
    for each in stretches:
        lives[each.member, each.life].append(each)
    found = [
        _life(sorted(own, key=lambda each: each.turn), skews.get(own[0].host), log_end_ms) for own in lives.values()
    ]
    return sorted(found, key=lambda life: (life.first_at_ms, life.key))


def _is_fenced(failed: Stretch) -> bool:
    if failed.failed_error is None:  # an older log has only prose
        return "group_instance_id" in (failed.failed_why or "")
    return failed.failed_error == "FencedInstanceIdError"


def _life(own: Sequence[Stretch], skew: Skew | None, log_end_ms: int) -> Life:
    ahead_ms = skew.ahead_ms if skew else 0
    failed = next(((each.failed_at_ms, _is_fenced(each)) for each in own if each.failed_at_ms is not None), None)
    last_at_ms = (failed[0] if failed is not None else own[-1].last_at_ms) - ahead_ms
    if failed is not None:
        end = "fenced" if failed[1] else "failed"
    elif any(each.is_stopped for each in own):
        end = "stop"
    else:
        end = "silence" if log_end_ms - last_at_ms > SILENCE_MS else "open"
    heard = [at for each in own for at in (each.heard_first_ms, each.heard_last_ms) if at is not None]
    return Life(
        own[0].member,
        own[0].life,
        own[0].host,
        max((each.instance_id for each in own if each.instance_id), default=None),
        own[0].first_at_ms - ahead_ms,
        last_at_ms,
        min(heard) - ahead_ms if heard else None,
        max(heard) - ahead_ms if heard else None,
        end,
        tuple(own),
    )


def restarts_of(lives: Sequence[Life]) -> list[tuple[Life, Life]]:
    """Members without a static name that stopped, each with its replacement. Preferred is a member with the same client
    id, then one that began after the stop, then the one closest in time.
    """
    newcomers = [life for life in lives if life.instance_id is None]
    begins = [life.first_at_ms for life in newcomers]
    taken: set[tuple[str, int]] = set()
    found: list[tuple[Life, Life]] = []
    for old in sorted((life for life in newcomers if life.end == "stop"), key=lambda life: (life.last_at_ms, life.key)):
        first = bisect_left(begins, min(old.last_at_ms, max(old.last_at_ms - SURGE_MS, old.first_at_ms + SURGE_MS)))
        near = newcomers[first : bisect_right(begins, old.last_at_ms + RESTART_MS)]
        free = [life for life in near if life.key not in taken and life.key != old.key]
        if free:
            new = min(free, key=lambda life: _distance(old, life))
            taken.add(new.key)
            found.append((old, new))
    return found


def _distance(old: Life, new: Life) -> tuple[bool, bool, int, tuple[str, int]]:
    after_ms = new.first_at_ms - old.last_at_ms
    same_client = new.stretches[0].client_id == old.stretches[0].client_id
    return not same_client, after_ms < 0, abs(after_ms), new.key


def generations_of(lives: Iterable[Life], skews: Mapping[str, Skew]) -> list[list[View]]:
    """The views of each generation, and the generations in the order in which they were complete."""
    owners = {(each.member, each.life): each for each in lives}
    named = [stretch._replace(instance_id=life.instance_id) for life in owners.values() for stretch in life.stretches]
    found = [
        sorted((_view(owners[each.member, each.life], each, skews) for each in views), key=lambda view: view.life.key)
        for views in _same_generation(named)
    ]
    return sorted(found, key=lambda views: (max(view.completed_at_ms for view in views), views[0].stretch.generation))


def _view(life: Life, stretch: Stretch, skews: Mapping[str, Skew]) -> View:
    ahead_ms = skews[life.host].ahead_ms if life.host in skews else 0
    assert stretch.completed_at_ms is not None
    completed = stretch.completed_at_ms - ahead_ms
    started = completed - (stretch.duration_ms or 0)
    if stretch.started_at_ms is not None:
        started = min(started, stretch.started_at_ms - ahead_ms)
    joining = started + (stretch.waited_ms or 0)
    if stretch.joining_at_ms is not None:
        joining = stretch.joining_at_ms - ahead_ms
    return View(life, stretch, started, min(max(joining, started), completed), completed)
