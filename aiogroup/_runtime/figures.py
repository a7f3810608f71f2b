"""Reads a consumer's figures from the state of its tasks, a few partitions at a time; of these it makes its metrics."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from aiogroup._core.fetching.partition import Partition
from aiogroup._core.telemetry.counts import Counts
from aiogroup._core.telemetry.figures import Figures, FiguresInSteps, PartitionFigures, TopicCount
from aiogroup._core.telemetry.health import Health
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.config import ConsumerConfig

__all__ = ["STEP_COUNT", "STEP_MS", "figures_of", "metrics_of", "partition_figures"]

STEP_COUNT: Final = 200
STEP_MS: Final = 2
"""A step ends after this time, or this number of partitions, whichever comes first: the loop belongs to all."""


def figures_of(engine: Engine | None, config: ConsumerConfig, counts: Counts, health: Health) -> FiguresInSteps:
    """The figures by now. Partitions that are given up between two steps are left out."""
    partitions: list[PartitionFigures] = []
    if engine is not None:
        yield from _read(engine, partitions)
    return Figures(
        group_id=config.group_id,
        client_id=config.client_id,
        status=health.status,
        since_request_ms=health.since_request_ms,
        since_heartbeat_ms=health.since_heartbeat_ms,
        events=dict(counts.events),
        rebalances=counts.rebalances.copy(),
        commits=counts.commits.copy(),
        loop_blocked=counts.loop_blocked.copy(),
        group=None if engine is None or engine.member is None else engine.member.figures(now_ms()),
        partitions=tuple(partitions),
        topics=None if engine is None else _topics(engine),
        record_ages_ms=None if engine is None else dict(engine.requests.record_ages_ms),
        buffered_bytes=None if engine is None else engine.assignment.buffered_bytes + engine.recovery.buffered_bytes,
    )


def _read(engine: Engine, into: list[PartitionFigures]) -> Generator[None, None, None]:
    assignment = engine.assignment
    engine.delivery.settle()
    began_at_ms, count = now_ms(), 0
    for partition in tuple(assignment):
        if count >= STEP_COUNT or (not count % 16 and now_ms() - began_at_ms >= STEP_MS):
            yield
            engine.delivery.settle()
            began_at_ms, count = now_ms(), 0
        count += 1
        if assignment.get(partition.tp) is partition:
            into.append(partition_figures(engine, partition))


def partition_figures(engine: Engine, partition: Partition) -> PartitionFigures:
    """The figures of one partition. The caller has settled the delivery."""
    read_committed = engine.config.read_committed
    heard_at_ms = engine.fetchers.heard_at_ms(partition)
    passed = partition.position
    if passed is not None:
        passed += sum(each.ledger.position for each in partition.lanes.cursors)
    return PartitionFigures(
        partition.tp.topic,
        partition.tp.partition,
        engine.offset_queries.known_lag(partition),
        partition.lag(read_committed=read_committed),
        partition.lanes.left_count,
        None if partition.committed is None else partition.committed.offset,
        partition.log.last_offset(read_committed=read_committed),
        None if heard_at_ms is None else now_ms() - heard_at_ms,
        passed,
    )


def _topics(engine: Engine) -> dict[str, TopicCount]:
    engine.delivery.settle()
    return {topic: TopicCount(*counted) for topic, counted in engine.delivery.handed_out.items()}


def metrics_of(engine: Engine, steps: FiguresInSteps) -> dict[str, float | int | None]:
    """A few of the figures, summed over the partitions. They are read in one step."""
    figures = _read_to_end(steps)
    lags = [each.lag for each in figures.partitions if each.lag is not None]
    is_known = bool(lags) and len(lags) == len(figures.partitions)
    return {
        "assigned_partitions": len(figures.partitions),
        "records_lag_max": max(lags) if is_known else None,
        "records_lag_sum": sum(lags) if is_known else None,
        "buffered_bytes": figures.buffered_bytes,
        "waiting_bytes": sum(each.buffer.fetched_bytes for each in engine.assignment if each.waits_for_range),
        "rebalance_total": None if figures.group is None else figures.group.rebalances_count,
        "last_poll_ms_ago": figures.since_request_ms,
        "last_heartbeat_ms_ago": figures.since_heartbeat_ms,
    }


def _read_to_end(steps: FiguresInSteps) -> Figures:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            figures: Figures = end.value
            return figures
