"""Computes a running consumer's health from the state of its tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.target import FORBIDDEN, UNKNOWN
from aiogroup._core.telemetry.health import Health, HealthStatus, Since
from aiogroup._core.values import dataclass
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.membership.inspection import GroupHealth
from aiogroup._runtime.net.link import FETCH
from aiogroup.errors import FencedInstanceIdError, named
from aiogroup.structs import TopicPartition

__all__ = ["health_of"]

UNANSWERED_FETCH_MS: Final = 30_000
"""If no leader has answered a fetch for this time, the brokers count as unreachable."""
STILL_REFUSED_MS: Final = 5_000
"""A partition whose last refusal is older than this may just be waiting for records."""


END_WHY: Final = {HealthStatus.STOPPING: "stop() has begun", HealthStatus.STOPPED: "stopped"}


@dataclass(frozen=True, slots=True)
class _State:
    status: HealthStatus
    why: str
    is_wholly_degraded: bool = False


@dataclass(frozen=True, slots=True)
class _Stuck:
    """Partitions of which brokers let nothing be read, and why; the last reason is that positions are not known, if
    `lacks_positions`.
    """

    tps: set[TopicPartition]
    why: tuple[str, ...]
    lacks_positions: bool


def health_of(engine: Engine | None, ending: HealthStatus | None, since: Since, *, is_starting: bool) -> Health:
    """The health of a consumer with this engine: STOPPING or STOPPED if it is `ending`."""
    if engine is None or ending is HealthStatus.STOPPED:  # there may be no event loop, and so no clock
        status = ending or HealthStatus.STARTING
        unstarted_why = "start() waits for the brokers" if is_starting else "not started"
        return Health(status, END_WHY.get(status, unstarted_why), 0, None, None)
    now = now_ms()
    group = GroupHealth() if engine.member is None else engine.member.health(now)
    missing = tuple(sorted(engine.following.topics.missing(engine.link.cluster)))
    if ending is not None:
        found = _State(ending, END_WHY[ending])
    elif (error := engine.inbox.fatal) is not None:
        is_fenced = isinstance(error, FencedInstanceIdError)
        found = _State(HealthStatus.FENCED if is_fenced else HealthStatus.FAILED, str(error))
    else:
        found = _state(engine, group, missing, now)
    return Health(
        found.status,
        found.why,
        len(engine.assignment),
        _since_request_ms(engine, now),
        group.since_heartbeat_ms,
        missing,
        found.is_wholly_degraded,
        since.ms(found.status, now),
    )


def _state(engine: Engine, group: GroupHealth, missing: tuple[str, ...], now: int) -> _State:
    """The state of a consumer that has neither failed nor stopped, and the reason."""
    status, why = _of_group(engine, group)
    forbidden = [each.tp for each in engine.assignment if each.target.error == FORBIDDEN]
    unread = sorted({tp.topic for tp in forbidden} | engine.following.topics.forbidden())
    reads_nothing = bool(missing or unread) and engine.following.topics_named() <= {*missing, *unread}
    if reads_nothing and status is HealthStatus.READY:
        why = "nothing to read"
    if missing:
        why += f"; no broker knows {', '.join(missing)}"
    overdue = [each.tp for each in engine.assignment if each.lanes.is_overdue]
    if overdue:
        why += f"; no job moved what is pending of {named(overdue)}"
    stuck = _stuck(engine, {*forbidden, *(each.tp for each in engine.assignment if each.tp.topic in missing)}, now)
    why += "".join(f"; {each}" for each in stuck.why)
    if unread:
        why += f"; READ is not granted on the topic: {', '.join(unread)}"
    if group.held:
        why += f"; where {named(group.held)} begin is not committed: {group.why_held}"
    if status is not HealthStatus.PARKED and (
        silence := group.silence or _fetch_silence(engine, now, stuck) or _never_connected(engine)
    ):
        return _State(HealthStatus.UNREACHABLE, silence)
    if status is not HealthStatus.READY:
        return _State(status, why)
    if engine.recovery.is_catching_up() and not overdue:  # what is overdue is pending, too
        return _State(HealthStatus.CATCHING_UP, why)
    stands = {*group.held, *forbidden, *stuck.tps}
    if not (missing or overdue or unread or stands):
        return _State(HealthStatus.READY, why)
    is_all = reads_nothing or (bool(stands) and len(stands) == len(engine.assignment))
    return _State(HealthStatus.DEGRADED, why, is_all)


def _stuck(engine: Engine, explained: Collection[TopicPartition], now: int) -> _Stuck:
    """What brokers do not let be read, apart from what is `explained` otherwise."""
    limit_ms, positions = _limit_ms(engine), engine.positions
    leaderless = engine.fetchers.leaderless(now)
    unanswered = engine.fetchers.unanswered(now - limit_ms)
    refused = {each.tp: each.target.error for each in engine.assignment if _is_refused(each, now - limit_ms, now)}
    known = {*explained, *leaderless, *refused}
    unknown = [tp for tp in positions.unknown(now - limit_ms) if tp not in known]
    why = []
    if leaderless:
        why.append(f"no broker leads {named(leaderless)}")
    if unanswered:
        why.append(f"no fetch was answered for {limit_ms} ms of {named(unanswered)}")
    if refused:
        why.append(f"the leaders of {named(refused)} refuse to be read from: {', '.join(sorted({*refused.values()}))}")
    if unknown:
        reason = f": {positions.why_unknown}" if positions.why_unknown else ""
        why.append(f"the position is not known of {named(unknown)}{reason}")
    return _Stuck({*leaderless, *unanswered, *refused, *unknown}, tuple(why), lacks_positions=bool(unknown))


def _is_refused(partition: Partition, since_ms: int, now: int) -> bool:
    """Whether its leader has refused its fetches from that instant until now."""
    target = partition.target
    if target.failing_since_ms is None or target.error in ("", FORBIDDEN):
        return False
    return target.failing_since_ms <= since_ms and target.backoff_until_ms > now - STILL_REFUSED_MS


def _of_group(engine: Engine, group: GroupHealth) -> tuple[HealthStatus, str]:
    """The state by what the group and the application say, without a look at topics and brokers."""
    subscription, assignment, status, why = engine.subscription, engine.assignment, group.status, group.why
    if subscription.is_empty:
        return HealthStatus.JOINING, "nothing is subscribed or assigned"
    if status is HealthStatus.READY and assignment and all(each.is_paused for each in assignment):
        status, why = HealthStatus.PAUSED, "the application has paused all partitions"
    if subscription.pattern is not None and not subscription.names():
        why += f"; no topic matches {subscription.pattern.pattern!r}"
    return status, why


def _since_request_ms(engine: Engine, now: int) -> int | None:
    asked_at_ms = engine.requests.last_asked_at_ms
    return None if asked_at_ms is None else now - asked_at_ms


def _limit_ms(engine: Engine) -> int:
    return max(UNANSWERED_FETCH_MS, 2 * engine.config.fetch_max_wait_ms)


def _fetch_silence(engine: Engine, now: int, stuck: _Stuck) -> str:
    """A message if no leader has answered for too long; empty while one does, or nothing is asked."""
    unanswered_ms = engine.fetchers.unanswered_ms(now, lacks_positions=stuck.lacks_positions)
    if unanswered_ms < _limit_ms(engine):
        return ""
    # Without a position nothing is asked for.
    return stuck.why[-1] if stuck.lacks_positions else f"no broker has answered a fetch for {unanswered_ms} ms"


def _never_connected(engine: Engine) -> str:
    """A message if there are leaders, and none of them could be connected since it has its address."""
    link = engine.link
    leaders = {link.cluster.leader(each.tp) for each in engine.assignment} - {UNKNOWN}
    failed = [link.why_never_connected(each, FETCH) for each in sorted(leaders)]
    return f"no leader can be connected: {', '.join(failed[:3])}" if failed and all(failed) else ""
