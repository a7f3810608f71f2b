"""What one broker is asked for and what its answers mean, as a machine: one request at a time.

Whoever carries it out asks `is_due` whenever something may have changed. If a request is due it calls `begin`, sends
what that returns, and says what became of it: `answered`, and then `take_more` as long as `has_more`, or `lost`. After
each of these calls `news` holds what concerns others than the lanes; the caller empties it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from aiogroup._core.cluster import Cluster
from aiogroup._core.fetching.asking.answers import ask_for_whole, take
from aiogroup._core.fetching.asking.budget import FetchBudget
from aiogroup._core.fetching.asking.planner import WAIT_MIN_MS, FetchPlan, Planner
from aiogroup._core.fetching.asking.remedies import FetchRemedy
from aiogroup._core.fetching.asking.sessions import Asked, SessionRequest, request_for, without_session
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.records.decode import Acknowledge, DecodeSettings
from aiogroup._core.fetching.target import UNKNOWN
from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiogroup._core.telemetry import events
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = [
    "BY_NAME",
    "TURN_BYTES",
    "AfterSeek",
    "BrokerFetch",
    "Brokers",
    "Denied",
    "News",
    "NotAuthorized",
    "OutOfRange",
    "Room",
    "Want",
]

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
TURN_BYTES: Final = 512 * 1024
"""How many bytes of an answer are taken before the event loop should run again."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Want(Enum):
    METADATA = auto()
    """The cluster has probably changed."""
    BROKERS = auto()
    """A partition belongs to another broker now, or memory was given back that another broker waits for."""


class Room(Enum):
    MEMORY = auto()
    """The bound leaves no room for a request."""
    BUFFER = auto()
    """Enough of all partitions is buffered, or nothing is wanted."""


class OutOfRange(NamedTuple):
    """The leader's log does not hold the offset at which the lane is read."""

    lane: Lane
    offset: int


class NotAuthorized(NamedTuple):
    topic: str


class Denied(NamedTuple):
    """The leader that the metadata name says that it is not the leader, for the first time or again."""

    lane: Lane
    is_first: bool


News: TypeAlias = "events.FetchFailed | events.FetchSessionLost | Want | OutOfRange | NotAuthorized | Denied"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Brokers:
    """What the machines of all brokers share."""

    planner: Planner
    budget: FetchBudget
    config: ConsumerConfig
    settings: DecodeSettings
    acknowledge: Callable[[Ledger], Acknowledge]
    answered_at_ms: int
    """When a broker answered last, or partitions came or went."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where nothing more is fetched of these partitions."""
    idle_count: int = 0
    """How many brokers have no request under way."""
    is_room_awaited: bool = False
    """A broker waits for memory that another broker's request has reserved."""

    def look(self, cluster: Cluster, now_ms: int) -> None:
        """Bring the plan up to date."""
        self.budget.look()
        self.planner.plan_touched(cluster, now_ms)


class BrokerFetch:
    """`is_due`, `begin`, then `answered` or `lost`. `end` when the broker is not needed any more."""

    _share = 1
    """Of the memory: each broker has one."""

    def __init__(self, node_id: int, brokers: Brokers, now_ms: int) -> None:
        self.node_id = node_id
        self.news: list[News] = []
        self.opened: list[Lane] = []
        """The lanes of which the last answer spoke without an error."""
        self.wake_at_ms = 0
        """No request is due before this instant."""
        self.asked_at_ms: int | None = None
        """Since when the broker owes a connection or an answer."""
        self.tried_since_ms: int | None = now_ms
        """The time of the first attempt that was not answered; `None` if nothing is wanted of the broker."""
        self.waits_for: Room | None = None
        """What would make a request due."""
        self._brokers = brokers
        self._planner = brokers.planner
        self._tally = brokers.budget.tally
        self._broker = brokers.planner.broker(node_id)
        self._asked: Mapping[TopicPartition, Asked] = {}
        self._begun: SessionRequest | None = None
        self._plan = FetchPlan(0, 0)
        self._reserved_bytes = self._received_at_ms = 0
        self.is_more_there = False
        """The next request is to be written at once: the logs have records after those that were taken last, so
        its answer will not wait for new ones, or the last answer named no partition.
        """
        self.has_more = False
        """Only a part of the last answer is taken."""
        self._left: Iterator[tuple[TopicPartition, PartitionData]] = iter(())
        self._wait_ms = WAIT_MIN_MS
        self._drained_count = self._failures_count = 0
        brokers.idle_count += self._share

    @property
    def is_under_way(self) -> bool:
        """A request was sent, and is not answered."""
        return self._begun is not None

    @property
    def is_answered(self) -> bool:
        """The last request was answered, and not refused."""
        return not self._failures_count

    # The request.

    def is_due(self, cluster: Cluster, now_ms: int) -> bool:
        """Whether a request is to be sent now."""
        brokers = self._brokers
        brokers.look(cluster, now_ms)
        self.waits_for = None
        if self._begun is not None or self.has_more or now_ms < self.wake_at_ms:
            return False
        # A quiet broker must not reserve all the memory: each broker without a request under way has a share.
        self._plan = plan = self._planner.next_fetch(self.node_id, brokers.budget.share_bytes(brokers.idle_count))
        if not plan.max_bytes:
            brokers.is_room_awaited = brokers.is_room_awaited or plan.is_blocked
            self.waits_for = Room.MEMORY if plan.is_blocked or self._tally.is_narrow else Room.BUFFER
            self.tried_since_ms = self.asked_at_ms = None
            return False
        if self.asked_at_ms is None:
            self.asked_at_ms = now_ms
            if self.tried_since_ms is None:
                self.tried_since_ms = now_ms
        return True

    def begin(self, now_ms: int, drained_count: int) -> tuple[FetchRequest, int | None]:
        """The request that is due, and the highest version that it may be sent in. What it needs of the memory is
        reserved. `drained_count` fetched pieces were used up so far.
        """
        session, tally, config = self._broker.session, self._tally, self._brokers.config
        wait_ms, full_count = config.fetch_max_wait_ms, self._plan.full_count
        if full_count:
            # A full buffer may be drained at any moment, so its partition must be asked for soon: keep the wait short.
            # While the application drains nothing, wait longer each time: otherwise we would send fifty empty requests
            # a second.
            self._wait_ms = WAIT_MIN_MS if drained_count != self._drained_count else self._wait_ms * 2
            self._wait_ms = wait_ms = min(self._wait_ms, wait_ms)
            self._drained_count = drained_count
        begun = session.begin()
        self._asked = session.held
        self._broker.named = begun.partitions
        if tally.moved:
            tally.was_named(session.held)
        return self._send(begun, wait_ms, now_ms)

    def _send(self, begun: SessionRequest, wait_ms: int, now_ms: int) -> tuple[FetchRequest, int | None]:
        budget, max_bytes = self._brokers.budget, self._plan.max_bytes
        self._begun = begun
        self.asked_at_ms = now_ms
        self._reserve(max(max_bytes, budget.largest_bytes))
        self._brokers.idle_count -= self._share
        request = request_for(begun, self._brokers.config, max_bytes=max_bytes, max_wait_ms=wait_ms)
        return request, None if begun.has_ids else BY_NAME

    def _reserve(self, size_bytes: int) -> None:
        """Count so much for the answer that is under way, or for what of it is not taken yet."""
        self._tally.in_flight_bytes += size_bytes - self._reserved_bytes
        self._reserved_bytes = size_bytes

    def _end_request(self) -> None:
        """Give back what the request reserved."""
        self._begun = None
        self._reserve(0)
        self._brokers.idle_count += self._share
        if self._brokers.is_room_awaited:
            self._brokers.is_room_awaited = False
            self.news.append(Want.BROKERS)

    # The answer.

    def answered(self, response: FetchResponse, cluster: Cluster, now_ms: int) -> None:
        """Take the answer, or as much of it as should be taken before the event loop runs again."""
        begun, brokers, names = self._begun, self._brokers, self._broker.session.names
        assert begun is not None
        brokers.answered_at_ms = self._received_at_ms = now_ms
        self.tried_since_ms = self.asked_at_ms = None
        answers, size_bytes = {}, 0
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                answers[TopicPartition(name, data.partition_index)] = data
                size_bytes += len(data.records or b"")
        brokers.budget.note_answer(size_bytes, self._plan.max_bytes, now_ms)
        self._end_request()
        if self._open(begun, response, answers, now_ms):
            self._failures_count = 0
            self._left, self.is_more_there = iter(answers.items()), not answers
            self._reserve(size_bytes)
            self.take_more(cluster, now_ms)

    def _open(
        self,
        begun: SessionRequest,
        response: FetchResponse,
        answers: Mapping[TopicPartition, PartitionData],
        now_ms: int,
    ) -> bool:
        """Note what the answer, which names these partitions, says about the broker and the session. Returns whether
        there is anything to take.
        """
        broker, code = self._broker, response.error_code
        session = broker.session
        if not session.answered(code, response.session_id, answers) and not begun.is_full:
            why = lookup(code).name if code else "the broker closed it"
            self.news.append(events.FetchSessionLost(self.node_id, why, len(session.held)))
        if code:
            self._mend_session(begun, code, now_ms)
            return False
        broker.named, broker.answered_at_ms = (), now_ms
        for tp, named in begun.partitions.items():
            if tp not in answers:
                named.lane.log.hear_no_news(now_ms)
                named.lane.target.was_not_refused()
        return True

    def _mend_session(self, begun: SessionRequest, error_code: int, now_ms: int) -> None:
        """The next request replaces a session that the broker does not know; it is due at once."""
        if error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self.news.append(Want.METADATA)
        if error_code in SESSION_ERRORS and not begun.is_full:
            return
        self.news.append(events.FetchFailed(self.node_id, None, None, lookup(error_code).name))
        self._back_off(now_ms)

    def take_more(self, cluster: Cluster, now_ms: int) -> None:
        """Take the next part of the answer."""
        taken_bytes, is_committed = 0, self._brokers.settings.read_committed
        for tp, data in self._left:
            asked = self._asked.get(tp)
            if asked is None:
                continue
            if self._planner.is_at(self.node_id, tp, asked):
                self._take_partition(asked, data, cluster, now_ms)
                lane = asked.lane
                end = lane.log.last_stable_offset if is_committed else lane.log.end_offset
                self.is_more_there = self.is_more_there or end is None or lane.target.offset < end
            else:
                self._broker.session.miss(tp)
            taken_bytes += len(data.records or b"")
            if taken_bytes >= TURN_BYTES:
                self.has_more = True
                self._reserve(self._reserved_bytes - taken_bytes)
                return
        self.has_more = False
        self._reserve(0)

    def _take_partition(self, asked: Asked, data: PartitionData, cluster: Cluster, now_ms: int) -> None:
        lane, brokers = asked.lane, self._brokers
        if data.preferred_read_replica == self.node_id:  # only leaders name one: the address leads to the leader by now
            self._mend(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER, FetchRemedy.REFRESH, cluster, now_ms)
            return
        taken = take(asked, data, self._received_at_ms, brokers.settings, brokers.acknowledge)
        if not taken.is_current:
            return
        if taken.remedy is not FetchRemedy.PROCEED:
            self._mend(asked, data.error_code, taken.remedy, cluster, now_ms)
            return
        if taken.is_diverged:  # we never send `last_fetched_epoch`, but a divergence must not be ignored
            lane.doubt()
            lane.back_off(now_ms, brokers.config)
            return
        if taken.names_replica and not data.records and lane.target.preferred_replica not in cluster.brokers:
            self._wait_for_replica(lane, now_ms)
            return
        self.opened.append(lane)
        if taken.names_replica:
            self.news.append(Want.BROKERS)
        if taken.incomplete_bytes:
            received_bytes = len(data.records or b"")
            why = ask_for_whole(asked, taken.incomplete_bytes, received_bytes, now_ms, brokers.config)
            if why is not None:
                self._fail(lane.tp, f"offset {asked.fetch_offset}: {why}")
        elif brokers.ends and taken.is_buffered and lane.target.offset >= brokers.ends.get(lane.tp, sys.maxsize):
            lane.target.halt()

    def _mend(self, asked: Asked, error_code: int, remedy: FetchRemedy, cluster: Cluster, now_ms: int) -> None:
        lane, tp, name, news = asked.lane, asked.lane.tp, lookup(error_code).name, self.news
        lane.target.failed(name)
        self._fail(tp, name)
        # Compare with the present leader: the preferred replica may have changed while the answer was under way.
        is_leader = self.node_id == cluster.leader(tp)
        if lane.target.preferred_replica != UNKNOWN:
            lane.target.prefer_leader()
            news.append(Want.BROKERS)
        if remedy is FetchRemedy.OUT_OF_RANGE and is_leader:
            news.append(OutOfRange(lane, asked.fetch_offset))
            return
        if error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and is_leader:
            news.append(Denied(lane, not lane.target.failures_count))
        if remedy is FetchRemedy.NOT_AUTHORIZED:
            news.append(NotAuthorized(tp.topic))
        lane.back_off(now_ms, self._brokers.config)
        if remedy is not FetchRemedy.BACK_OFF:
            news.append(Want.METADATA)

    def _wait_for_replica(self, lane: Lane, now_ms: int) -> None:
        """Its leader sends us to a broker that has just come, and will send no records itself
        (AbstractFetch.selectReadReplica, which asks for metadata, too).
        """
        why = f"its leader names node {lane.target.preferred_replica}, which the metadata do not have yet"
        lane.target.prefer_leader()
        lane.target.failed(why)
        self._fail(lane.tp, why)
        lane.back_off(now_ms, self._brokers.config)
        self.news.append(Want.METADATA)

    def _fail(self, tp: TopicPartition, why: str) -> None:
        self.news.append(events.FetchFailed(self.node_id, tp.topic, tp.partition, why))

    # No answer.

    def lost(self, why: str, now_ms: int) -> None:
        """The request was not answered, or could not be sent."""
        self.news.append(events.FetchFailed(self.node_id, None, None, why))
        session = self._broker.session
        for asked in session.held.values() if self.is_under_way else session.wanted.values():
            asked.lane.target.failed(why)
        self.asked_at_ms = None
        self._drop()
        self._back_off(now_ms)

    def end(self) -> None:
        """The broker is not needed any more. Its answer, if one is under way, is not waited for."""
        self._drop()
        self.has_more = False
        self._reserve(0)
        self._brokers.idle_count -= self._share

    def _drop(self) -> None:
        if self.is_under_way:
            self._broker.session.lost()
            self._end_request()

    def _back_off(self, now_ms: int) -> None:
        self._failures_count += 1
        self.wake_at_ms = now_ms + self._brokers.config.backoff_ms(self._failures_count)
        self.news.append(Want.METADATA)


class AfterSeek(BrokerFetch):
    """Fetches what a seek moved, until a request of the session names it: the request under way, which waits at the
    broker for other records, must not delay that.

    Its requests use no session, and do not wait at the broker, since the next seek would wait for them.
    """

    _share = 0
    _idle_ms = WAIT_MIN_MS
    _is_hurried = False

    @property
    def is_wanted(self) -> bool:
        return bool(self._planner.moved(self.node_id))

    def is_due(self, cluster: Cluster, now_ms: int) -> bool:
        self._brokers.look(cluster, now_ms)
        moved, is_hurried, self._is_hurried = self._planner.moved(self.node_id), self._is_hurried, False
        is_wanted = bool(moved)
        if is_hurried and moved != self._asked:
            # But what had no records a moment ago is not asked for again at once: each answer is a change, too.
            self.wake_at_ms = 0
        self.waits_for = Room.MEMORY if is_wanted else Room.BUFFER
        if self._begun is not None or self.has_more or now_ms < self.wake_at_ms or not is_wanted:
            return False
        free_bytes, tally = self._brokers.budget.share_bytes(1), self._tally
        if not (tally.fetched_bytes or tally.decoded_bytes):
            # All is reserved by requests that wait at brokers for other records: this one must not wait for them.
            free_bytes = max(free_bytes, self._brokers.config.least_fetch_bytes)
        self._plan = self._planner.next_fetch(self.node_id, free_bytes)
        if not self._plan.max_bytes:
            self._wait(now_ms)
        return self._plan.max_bytes > 0

    def hurry(self) -> None:
        """Something has changed: look at once whether there is anything to fetch now."""
        self._is_hurried = True

    def begin(self, now_ms: int, drained_count: int) -> tuple[FetchRequest, int | None]:
        begun = without_session(self._planner.moved(self.node_id))
        self._asked = begun.partitions
        return self._send(begun, 0, now_ms)

    def _open(
        self,
        begun: SessionRequest,
        response: FetchResponse,
        answers: Mapping[TopicPartition, PartitionData],
        now_ms: int,
    ) -> bool:
        if any(data.records for data in answers.values()):
            self._idle_ms = WAIT_MIN_MS
        else:
            self._wait(now_ms)
        return True

    def _wait(self, now_ms: int) -> None:
        longest_ms = max(WAIT_MIN_MS, self._brokers.config.fetch_max_wait_ms)
        self.wake_at_ms, self._idle_ms = now_ms + self._idle_ms, min(self._idle_ms * 2, longest_ms)

    def lost(self, why: str, now_ms: int) -> None:
        self.news.append(events.FetchFailed(self.node_id, None, None, why))
        self._tally.was_named(self._planner.moved(self.node_id))  # the session's next request asks for them
        self._drop()

    def _drop(self) -> None:
        if self.is_under_way:
            self._end_request()
