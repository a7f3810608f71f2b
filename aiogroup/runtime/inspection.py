"""Computes a running consumer's health and metrics from the state of its tasks."""

from __future__ import annotations

from typing import Final

from aiogroup.errors import named
from aiogroup.runtime.engine import Engine
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.telemetry.health import Health, HealthStatus

__all__ = ["health_of", "metrics_of"]

UNANSWERED_FETCH_MS: Final = 30_000
"""If no leader has answered a fetch for this time, the brokers count as unreachable."""


def health_of(engine: Engine | None, *, is_stopped: bool) -> Health:
    if engine is None or is_stopped:
        status = HealthStatus.STOPPED if is_stopped else HealthStatus.JOINING
        return Health(status, "stopped" if is_stopped else "not started", 0, None, None)
    now = now_ms()
    asked_at_ms = engine.requests.last_asked_at_ms
    since_request_ms = None if asked_at_ms is None else now - asked_at_ms
    group = engine.group.health(now)
    status, why = group.status, group.why
    missing = tuple(sorted(engine.following.topics.missing(engine.context.link.cluster)))
    status, why = _with_topics(engine, missing, status, why)
    overdue = [each.tp for each in engine.context.assignment if each.lanes is not None and each.lanes.is_overdue]
    if overdue:
        status = HealthStatus.DEGRADED if status is HealthStatus.READY else status
        why += f"; no job moved what is pending of {named(overdue)}"
    if status is not HealthStatus.PARKED and (silence := group.silence or _fetch_silence(engine, now)):
        status, why = HealthStatus.UNREACHABLE, silence
    if engine.context.inbox.fatal is not None:
        status, why = HealthStatus.FAILED, str(engine.context.inbox.fatal)
    return Health(status, why, len(engine.context.assignment), since_request_ms, group.since_heartbeat_ms, missing)


def _with_topics(engine: Engine, missing: tuple[str, ...], status: HealthStatus, why: str) -> tuple[HealthStatus, str]:
    """The status and its reason, corrected by missing topics or an empty subscription."""
    subscription, is_ready = engine.subscription, status is HealthStatus.READY
    if subscription.is_empty:
        return HealthStatus.JOINING, "nothing is subscribed or assigned"
    if not missing:
        if subscription.pattern is not None and not subscription.names():
            why += f"; no topic matches {subscription.pattern.pattern!r}"
        return status, why
    unknown = f"no broker knows {', '.join(missing)}"
    if is_ready and engine.following.topics_named() <= set(missing):
        return HealthStatus.JOINING, f"nothing to read; {unknown}"
    return HealthStatus.DEGRADED if is_ready else status, f"{why}; {unknown}"


def _fetch_silence(engine: Engine, now: int) -> str:
    """A message if no leader has answered for too long; empty while one does, or nothing is asked."""
    limit_ms = max(UNANSWERED_FETCH_MS, 2 * engine.context.config.fetch_max_wait_ms)
    unanswered_ms = engine.fetchers.unanswered_ms(now)
    return f"no broker has answered a fetch for {unanswered_ms} ms" if unanswered_ms >= limit_ms else ""


def metrics_of(engine: Engine) -> dict[str, float | int | None]:
    context = engine.context
    context.delivery.settle()
    lags = [engine.offset_queries.known_lag(each) for each in context.assignment]
    known = [lag for lag in lags if lag is not None]
    health = health_of(engine, is_stopped=False)
    return {
        "assigned_partitions": len(context.assignment),
        "records_lag_max": max(known) if known and len(known) == len(lags) else None,
        "records_lag_sum": sum(known) if known and len(known) == len(lags) else None,
        "buffered_bytes": context.assignment.buffered_bytes + engine.recovery.buffered_bytes,
        "waiting_bytes": sum(each.buffer.fetched_bytes for each in context.assignment if each.waits_for_range),
        "rebalance_total": engine.group.rebalances_count,
        "last_poll_ms_ago": health.since_request_ms,
        "last_heartbeat_ms_ago": health.since_heartbeat_ms,
    }
