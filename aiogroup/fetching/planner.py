"""Which partitions to ask which broker for, and for how much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aiogroup.cluster import Cluster
from aiogroup.config import ConsumerConfig
from aiogroup.fetching.position import UNKNOWN, Partition, PositionState

__all__ = ["FetchPlan", "node_for", "plan_fetch"]

WAIT_MIN_MS = 20
"""Shortest wait at the broker while a partition with a full buffer is left out: it may be drained any moment."""
RESPONSE_FLOOR_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """`partitions` to ask for in this order (the broker fills its answer from the first), `max_bytes` together.

    `full_count` partitions of this broker are left out because enough of them is buffered. `wake_at_ms` is when a
    partition that failed may be asked for again. `is_blocked`: another request, perhaps to another broker, holds a
    partition or the room that this one needs.
    """

    partitions: tuple[Partition, ...]
    max_bytes: int
    full_count: int
    wake_at_ms: int | None
    is_blocked: bool = False


def node_for(partition: Partition, cluster: Cluster, now_ms: int) -> int:
    """The broker to read from: the preferred replica while it holds (KIP-392), else the leader; -1 unknown."""
    if partition.preferred_replica != UNKNOWN:
        if now_ms < partition.preferred_until_ms and partition.preferred_replica in cluster.brokers:
            return partition.preferred_replica
        partition.preferred_replica = UNKNOWN
    return cluster.leader(partition.tp)


def plan_fetch(
    node_id: int,
    partitions: Iterable[Partition],
    cluster: Cluster,
    config: ConsumerConfig,
    free_bytes: int,
    now_ms: int,
) -> FetchPlan:
    """What to ask `node_id` for, given that `free_bytes` of the buffers' bound are left."""
    wanted: list[Partition] = []
    full_count = 0
    wake_at_ms: int | None = None
    is_blocked = False
    for partition in partitions:
        if partition.state is not PositionState.FETCHING or partition.is_paused or partition.is_broken:
            continue
        if node_for(partition, cluster, now_ms) != node_id:
            continue
        if partition.is_fetching:  # by the broker that led before
            is_blocked = True
        elif now_ms < partition.backoff_until_ms:
            at_ms = partition.backoff_until_ms
            wake_at_ms = at_ms if wake_at_ms is None else min(wake_at_ms, at_ms)
        elif partition.buffered_bytes >= config.max_partition_fetch_bytes:
            full_count += 1
        else:
            wanted.append(partition)
    max_bytes = min(config.fetch_max_bytes, free_bytes)
    if max_bytes < min(RESPONSE_FLOOR_BYTES, config.fetch_max_bytes):
        return FetchPlan((), 0, full_count + len(wanted), wake_at_ms, is_blocked or bool(wanted))
    # The emptiest first: the broker fills its answer in our order, and whoever waits longest starves least.
    wanted.sort(key=lambda each: each.buffered_bytes)
    return FetchPlan(tuple(wanted), max_bytes, full_count, wake_at_ms, is_blocked)
