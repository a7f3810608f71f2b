"""Plans which broker is asked for which partitions, and for how many bytes. Only partitions that were touched are
planned again.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Collection
from dataclasses import field
from typing import Final, NamedTuple

from aiogroup.cluster import Cluster
from aiogroup.config import ConsumerConfig
from aiogroup.fetching.asking.sessions import Asked, FetchSession
from aiogroup.fetching.assignment import LaneTable
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.target import UNKNOWN
from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.structs import TopicPartition

__all__ = ["FetchPlan", "Planner", "Share", "node_for"]

WAIT_MIN_MS: Final = 20
"""The shortest wait at the broker while a partition with a full buffer is left out, since its buffer may be drained at
any moment.
"""
RESPONSE_FLOOR_BYTES: Final = 64 * 1024
FETCHES_AHEAD: Final = 2
"""How many fetches of a partition are buffered: one that is being read, and one to go on with while the next is under
way.
"""
SHARE_FLOOR_BYTES: Final = 64 * 1024
"""Four batches of a producer's default size."""


@dataclasses.dataclass(slots=True)
class Share:
    """The part of the assignment that is read from one broker: `members`, some of which `session` asks for.

    `full` are left out because enough of them is buffered. They leave the session, as in Java: otherwise the broker
    would answer every request at once with records that cannot be buffered. To come back costs nothing, since their
    offset has changed anyway, and to leave costs some twenty bytes. `large` maps partitions to the size of their long
    next batch.
    """

    session: FetchSession = field(default_factory=FetchSession)
    members: set[TopicPartition] = field(default_factory=set)
    full: set[TopicPartition] = field(default_factory=set)
    large: dict[TopicPartition, int] = field(default_factory=dict)
    named: Collection[TopicPartition] = ()
    """The partitions that the request under way names because they are new or have changed: the last answer was not
    about them as they are now.
    """
    answered_at_ms: int | None = None


class FetchPlan(NamedTuple):
    """Ask for the partitions that the share's session wants, `max_bytes` in total; if that is 0, send no request now.

    `full_count` partitions of this broker are left out because enough of them is buffered. `is_blocked`: other requests
    have reserved the memory that this one needs.
    """

    max_bytes: int
    full_count: int
    is_blocked: bool = False


def node_for(partition: Lane, cluster: Cluster, now_ms: int) -> int:
    """The broker to read from: the preferred replica until its time ends (KIP-392), otherwise the leader; -1 if
    unknown.
    """
    target = partition.target
    if target.preferred_replica != UNKNOWN:
        if now_ms < target.preferred_until_ms and target.preferred_replica in cluster.brokers:
            return target.preferred_replica
        target.preferred_replica = UNKNOWN
    return cluster.leader(partition.tp)


class Planner:
    """Keeps every broker's session in step with the assignment and the cluster."""

    def __init__(self, assignment: LaneTable[Lane], config: ConsumerConfig) -> None:
        self._assignment = assignment
        self._config = config
        self._cluster: Cluster | None = None
        self._shares: dict[int, Share] = {}
        self._nodes: dict[TopicPartition, int] = {}
        self._due: dict[TopicPartition, int] = {}  # when a partition must be planned again although nothing touched it
        self._due_heap: list[tuple[int, TopicPartition]] = []

    @property
    def nodes(self) -> Collection[int]:
        """Brokers that lead, or are preferred for, an assigned partition; -1 when one has none."""
        return {node_id for node_id, share in self._shares.items() if share.members}

    def share(self, node_id: int) -> Share:
        share = self._shares.get(node_id)
        if share is None:
            share = self._shares[node_id] = Share()
        return share

    def moved(self, node_id: int) -> dict[TopicPartition, Asked]:
        """The partitions at this broker that a seek moved and that no request has named since."""
        wanted = self.share(node_id).session.wanted
        return {
            tp: wanted[tp] for tp in self._assignment.tally.moved if tp in wanted and self._nodes.get(tp) == node_id
        }

    def is_at(self, node_id: int, tp: TopicPartition, asked: Asked) -> bool:
        """Whether this broker's answer about the partition is still of use, wherever the position is now."""
        if self._assignment.get(tp) is not asked.partition or self._nodes.get(tp) != node_id:
            return False
        return asked.topic_id in (asked.partition.topic_id, ZERO_UUID)

    def heard_at_ms(self, partition: Lane) -> int | None:
        """When the partition's end was last known: by an answer that names it, or by a session's answer without news of
        it.
        """
        return self._or_no_news(partition, partition.log.heard_at_ms)

    def answered_at_ms(self, partition: Lane) -> int | None:
        """When a fetch of the partition was last answered. In a session an answer that does not name it means that it
        has no news.
        """
        return self._or_no_news(partition, partition.log.received_at_ms)

    def _or_no_news(self, partition: Lane, at_ms: int | None) -> int | None:
        share = self._shares.get(self._nodes.get(partition.tp, UNKNOWN))
        if at_ms is None or share is None or share.answered_at_ms is None:
            return at_ms
        is_silent = partition.tp in share.session.held and partition.tp not in share.named
        return max(at_ms, share.answered_at_ms) if is_silent else at_ms

    @property
    def wake_at_ms(self) -> int | None:
        """When to plan again although nothing was touched."""
        return self._due_heap[0][0] if self._due_heap else None

    def look(self, cluster: Cluster, now_ms: int) -> None:
        """Plan the touched partitions again."""
        tally = self._assignment.tally
        while self._due_heap and self._due_heap[0][0] <= now_ms:
            at_ms, tp = heapq.heappop(self._due_heap)
            if self._due.get(tp) == at_ms:
                del self._due[tp]
                tally.touched[tp] = None
        if cluster is not self._cluster:
            self._cluster = cluster
            tally.touched |= {each.tp: None for each in self._assignment}
        touched, tally.touched = tally.touched, {}
        for tp in touched:
            self._look_at(tp, cluster, now_ms)

    def plan(self, node_id: int, free_bytes: int) -> FetchPlan:
        """The next request to `node_id`, given that `free_bytes` of the buffers' bound are left."""
        share, config = self.share(node_id), self._config
        wanted_count, full_count = len(share.session.wanted), len(share.full)
        max_bytes = min(config.fetch_max_bytes, free_bytes)
        if max_bytes < min(RESPONSE_FLOOR_BYTES, config.fetch_max_bytes):
            return FetchPlan(0, full_count + wanted_count, is_blocked=wanted_count > 0)
        if share.large:
            max_bytes = max(max_bytes, *share.large.values())
        return FetchPlan(max_bytes if wanted_count else 0, full_count)

    def _look_at(self, tp: TopicPartition, cluster: Cluster, now_ms: int) -> None:
        partition = self._assignment.get(tp)
        node_id = None if partition is None else node_for(partition, cluster, now_ms)
        former_id = self._nodes.get(tp)
        if former_id is not None:
            share = self._shares[former_id]
            share.full.discard(tp)
            share.large.pop(tp, None)
            if former_id != node_id:
                share.session.drop(tp)
                share.members.discard(tp)
                del self._nodes[tp]
        if partition is None or node_id is None:
            self._due.pop(tp, None)
            return
        self._nodes[tp] = node_id
        share = self.share(node_id)
        share.members.add(tp)
        self._note_due(partition, now_ms)
        partition_bytes = self._partition_bytes(partition, share)
        if self._is_asked_for(partition, share, partition_bytes, now_ms):
            self._ask(partition, share, partition_bytes, cluster)
        else:
            share.session.drop(tp)

    def _note_due(self, partition: Lane, now_ms: int) -> None:
        at_ms = partition.target.backoff_until_ms
        if at_ms <= now_ms:
            if partition.target.preferred_replica == UNKNOWN:
                if self._due:
                    self._due.pop(partition.tp, None)
                return
            at_ms = partition.target.preferred_until_ms
        if self._due.get(partition.tp) != at_ms:
            self._due[partition.tp] = at_ms
            heapq.heappush(self._due_heap, (at_ms, partition.tp))

    def _is_asked_for(self, partition: Lane, share: Share, partition_bytes: int, now_ms: int) -> bool:
        if not partition.is_fetched or partition.is_paused or partition.target.is_halted:
            return False
        if now_ms < partition.target.backoff_until_ms:
            return False
        full_bytes = partition.target.most_bytes or FETCHES_AHEAD * partition_bytes
        partition.is_left_out = partition.buffer.fetched_bytes >= full_bytes or partition.has_enough
        if partition.is_left_out:
            share.full.add(partition.tp)
        return not partition.is_left_out

    def _partition_bytes(self, partition: Lane, share: Share) -> int:
        """The most bytes of a partition per answer. A merge needs records of all partitions, so one answer should hold
        some of each.

        It is no less than two batches, if their size is known: a broker leaves out a batch that is longer.
        """
        config, tally = self._config, self._assignment.tally
        most_bytes = min(
            config.max_partition_fetch_bytes, partition.target.most_bytes or config.max_partition_fetch_bytes
        )
        if not tally.enough_count:
            return most_bytes
        room_bytes = config.max_buffered_bytes // (4 * max(1, len(self._assignment)))
        share_bytes = min(room_bytes, config.fetch_max_bytes // max(1, len(share.members)))
        return min(most_bytes, max(share_bytes, 2 * tally.batch_bytes, SHARE_FLOOR_BYTES))

    def _ask(self, partition: Lane, share: Share, partition_bytes: int, cluster: Cluster) -> None:
        tp, info = partition.tp, cluster.partition(partition.tp)
        if partition.topic_id is None:
            partition.topic_id = cluster.topic_id(tp.topic)
        topic_id = partition.topic_id or ZERO_UUID
        if partition.target.batch_bytes:
            share.large[tp] = partition.target.batch_bytes
        max_bytes = max(partition_bytes, partition.target.batch_bytes)
        # KIP-320: a broker that knows a newer or an older leader than we do refuses instead of answering.
        epoch = UNKNOWN if info is None else info.leader_epoch
        share.session.want(
            tp, Asked(partition, partition.target.changes_count, topic_id, epoch, partition.target.offset, max_bytes)
        )
