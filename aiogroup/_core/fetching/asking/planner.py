"""Plans which broker is asked for which partitions, and for how many bytes. Only partitions that were touched are
planned again.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Collection
from dataclasses import field
from typing import Final, NamedTuple

from aiogroup._core.changes import Change
from aiogroup._core.cluster import Cluster
from aiogroup._core.fetching.asking.sessions import Asked, FetchSession
from aiogroup._core.fetching.assignment import LaneTable
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.target import UNKNOWN
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["BrokerPlan", "FetchPlan", "Planner", "node_for"]

WAIT_MIN_MS: Final = 20
"""The shortest wait at the broker while a lane with a full buffer is left out, since its buffer may be drained at
any moment.
"""
FETCHES_AHEAD: Final = 2
"""How many fetches of a lane are buffered: one that is being read, and one to go on with while the next is under
way.
"""
SHARE_FLOOR_BYTES: Final = 64 * 1024
"""Four batches of a producer's default size."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerPlan:
    """What is planned for one broker: `partitions` are read from it, and `session` asks for some of these.

    `full` are left out because enough of them is buffered. They leave the session, as in Java: otherwise the broker
    would answer every request at once with records that cannot be buffered. To come back costs nothing, since their
    offset has changed anyway, and to leave costs some twenty bytes. `large` maps partitions to the size of their long
    next batch.
    """

    session: FetchSession = field(default_factory=FetchSession)
    partitions: set[TopicPartition] = field(default_factory=set)
    full: set[TopicPartition] = field(default_factory=set)
    large: dict[TopicPartition, int] = field(default_factory=dict)
    named: Collection[TopicPartition] = ()
    """The partitions that the request under way names because they are new or have changed: the last answer was not
    about them as they are now.
    """
    answered_at_ms: int | None = None


class FetchPlan(NamedTuple):
    """Ask for the partitions that the broker's session wants, `max_bytes` in total; if that is 0, send no request now.

    `full_count` partitions of this broker are left out because enough of them is buffered. `is_blocked`: other requests
    have reserved the memory that this one needs.
    """

    max_bytes: int
    full_count: int
    is_blocked: bool = False


class _Place(NamedTuple):
    """Where a lane is fetched, by this snapshot of the cluster."""

    node_id: int
    broker: BrokerPlan
    cluster: Cluster
    leader_epoch: int
    is_preferred: bool


def node_for(lane: Lane, cluster: Cluster, now_ms: int) -> int:
    """The broker to read from: the preferred replica until its time ends (KIP-392), otherwise the leader; -1 if
    unknown.
    """
    target = lane.target
    if target.preferred_replica != UNKNOWN:
        if now_ms < target.preferred_until_ms and target.preferred_replica in cluster.brokers:
            return target.preferred_replica
        target.prefer_leader()
    return cluster.leader(lane.tp)


class Planner:
    """Keeps every broker's session in step with the assignment and the cluster."""

    def __init__(self, assignment: LaneTable[Lane], config: ConsumerConfig) -> None:
        self._assignment = assignment
        self._config = config
        self._least_bytes = config.least_fetch_bytes
        self._cluster: Cluster | None = None
        self._brokers: dict[int, BrokerPlan] = {}
        self._places: dict[TopicPartition, _Place] = {}
        self._due: dict[TopicPartition, int] = {}  # when a lane must be planned again although nothing touched it
        self._due_heap: list[tuple[int, TopicPartition]] = []

    @property
    def nodes(self) -> Collection[int]:
        """Brokers that lead, or are preferred for, an assigned partition; -1 when one has none."""
        return {node_id for node_id, broker in self._brokers.items() if broker.partitions}

    @property
    def leaderless(self) -> list[TopicPartition]:
        """The partitions that have no leader, or do not exist, in order. Those whose topic is missing are not among
        them.
        """
        broker, cluster = self._brokers.get(UNKNOWN), self._cluster
        if broker is None or cluster is None:
            return []
        return sorted(tp for tp in broker.partitions if tp.topic in cluster.topics)

    @property
    def sessions(self) -> dict[int, FetchSession]:
        """The sessions with all brokers that were ever asked."""
        return {node_id: broker.session for node_id, broker in self._brokers.items()}

    def broker(self, node_id: int) -> BrokerPlan:
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = BrokerPlan()
        return broker

    def moved(self, node_id: int) -> dict[TopicPartition, Asked]:
        """The partitions at this broker that a seek moved and that no request has named since."""
        wanted = self.broker(node_id).session.wanted
        return {
            tp: wanted[tp]
            for tp in self._assignment.tally.moved
            if tp in wanted and (place := self._places.get(tp)) is not None and place.node_id == node_id
        }

    def is_at(self, node_id: int, tp: TopicPartition, asked: Asked) -> bool:
        """Whether this broker's answer about the lane is still of use, wherever the position is now."""
        place, lane, topic_id = self._places.get(tp), asked.lane, asked.topic_id
        if place is None or place.node_id != node_id or self._assignment.get(tp) is not lane:
            return False
        return topic_id is lane.topic_id or topic_id in (lane.topic_id, ZERO_UUID)

    def heard_at_ms(self, lane: Lane) -> int | None:
        """When the partition's end was last known: by an answer that names it, or by a session's answer without news of
        it.
        """
        return self._or_no_news(lane, lane.log.heard_at_ms)

    def answered_at_ms(self, lane: Lane) -> int | None:
        """When a fetch of the lane was last answered. In a session an answer that does not name it means that it
        has no news.
        """
        return self._or_no_news(lane, lane.log.received_at_ms)

    def _or_no_news(self, lane: Lane, at_ms: int | None) -> int | None:
        place = self._places.get(lane.tp)
        if at_ms is None or place is None or place.broker.answered_at_ms is None:
            return at_ms
        broker = place.broker
        is_silent = lane.tp in broker.session.held and lane.tp not in broker.named
        return max(at_ms, place.broker.answered_at_ms) if is_silent else at_ms

    @property
    def wake_at_ms(self) -> int | None:
        """When to plan again although nothing was touched."""
        return self._due_heap[0][0] if self._due_heap else None

    def plan_touched(self, cluster: Cluster, now_ms: int) -> None:
        """Plan the touched partitions again."""
        tally = self._assignment.tally
        while self._due_heap and self._due_heap[0][0] <= now_ms:
            at_ms, tp = heapq.heappop(self._due_heap)
            if self._due.get(tp) == at_ms:
                del self._due[tp]
                tally.touched[tp] = None
        if cluster is not self._cluster:
            self._cluster = cluster
            tally.touch(each.tp for each in self._assignment)
        touched, tally.touched = tally.touched, {}
        for tp in touched:
            self._plan_lane(tp, cluster, now_ms)

    def next_fetch(self, node_id: int, free_bytes: int) -> FetchPlan:
        """The next request to `node_id`, given that `free_bytes` of the buffers' bound are left."""
        broker, config = self._brokers.get(node_id) or self.broker(node_id), self._config
        wanted_count, full_count = len(broker.session.wanted), len(broker.full)
        max_bytes = min(config.fetch_max_bytes, free_bytes)
        if max_bytes < self._least_bytes:
            return FetchPlan(0, full_count + wanted_count, is_blocked=wanted_count > 0)
        if broker.large:
            max_bytes = max(max_bytes, *broker.large.values())
        return FetchPlan(max_bytes if wanted_count else 0, full_count)

    def _plan_lane(self, tp: TopicPartition, cluster: Cluster, now_ms: int) -> None:
        lane, place, tally = self._assignment.get(tp), self._places.get(tp), self._assignment.tally
        if place is not None:
            place.broker.full.discard(tp)
            place.broker.large.pop(tp, None)
        if lane is None:
            self._leave(tp, place)
            self._due.pop(tp, None)
            return
        target = lane.target
        if place is None or place.cluster is not cluster or place.is_preferred or target.preferred_replica != UNKNOWN:
            place = self._find_place(lane, place, cluster, now_ms)
        broker, session, most_bytes = place.broker, place.broker.session, self._config.max_partition_fetch_bytes
        if target.backoff_until_ms > now_ms or self._due or target.preferred_replica != UNKNOWN:
            self._note_due(lane, now_ms)
        if tally.enough_count or target.most_bytes:
            most_bytes = self._most_bytes(lane, broker)
        is_fetched = lane.is_fetched and not (target.is_halted or now_ms < target.backoff_until_ms)
        if not is_fetched or (lane.bars and lane.is_paused):
            session.drop(tp)
            return
        full_bytes = target.most_bytes or FETCHES_AHEAD * most_bytes
        is_bounded = tally.is_narrow or tally.enough_count > 0
        lane.is_left_out = lane.buffer.fetched_bytes >= full_bytes or (is_bounded and lane.has_enough)
        if lane.is_left_out:
            broker.full.add(tp)
            session.drop(tp)
            return
        if target.batch_bytes:
            broker.large[tp] = target.batch_bytes
            most_bytes = max(most_bytes, target.batch_bytes)
        if lane.topic_id is None:
            lane.topic_id = cluster.topic_id(tp.topic)
        topic_id = lane.topic_id or ZERO_UUID
        session.want(tp, Asked(lane, target.changes_count, topic_id, place.leader_epoch, target.offset, most_bytes))

    def _find_place(self, lane: Lane, former: _Place | None, cluster: Cluster, now_ms: int) -> _Place:
        tp, node_id, info = lane.tp, node_for(lane, cluster, now_ms), cluster.partition(lane.tp)
        if former is not None and former.node_id != node_id:
            self._leave(tp, former)
            self._assignment.tally.changes.tell(Change.FETCHABLE)
        broker = self.broker(node_id)
        broker.partitions.add(tp)
        # KIP-320: a broker that knows a newer or an older leader than we do refuses instead of answering.
        epoch = UNKNOWN if info is None else info.leader_epoch
        place = _Place(node_id, broker, cluster, epoch, lane.target.preferred_replica != UNKNOWN)
        self._places[tp] = place
        return place

    def _leave(self, tp: TopicPartition, place: _Place | None) -> None:
        if place is not None:
            place.broker.session.drop(tp)
            place.broker.partitions.discard(tp)
            del self._places[tp]

    def _note_due(self, lane: Lane, now_ms: int) -> None:
        at_ms = lane.target.backoff_until_ms
        if at_ms <= now_ms:
            if lane.target.preferred_replica == UNKNOWN:
                if self._due:
                    self._due.pop(lane.tp, None)
                return
            at_ms = lane.target.preferred_until_ms
        if self._due.get(lane.tp) != at_ms:
            self._due[lane.tp] = at_ms
            heapq.heappush(self._due_heap, (at_ms, lane.tp))

    def _most_bytes(self, lane: Lane, broker: BrokerPlan) -> int:
        """The most bytes of a partition per answer. A merge needs records of all partitions, so one answer should hold
        some of each.

        It is no less than two batches, if their size is known: a broker leaves out a batch that is longer.
        """
        config, tally = self._config, self._assignment.tally
        most_bytes = min(config.max_partition_fetch_bytes, lane.target.most_bytes or config.max_partition_fetch_bytes)
        if not tally.enough_count:
            return most_bytes
        room_bytes = config.max_buffered_bytes // (4 * max(1, len(self._assignment)))
        share_bytes = min(room_bytes, config.fetch_max_bytes // max(1, len(broker.partitions)))
        return min(most_bytes, max(share_bytes, 2 * tally.batch_bytes, SHARE_FLOOR_BYTES))
