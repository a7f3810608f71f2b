"""The fetchers: one task per broker keeps that broker's partitions buffered, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol
from weakref import ref

import anyio

from aiogroup.config import ResetPolicy, parse_reset_policy
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
)
from aiogroup.fetching.answers import ask_for_whole, is_out_of_range, take
from aiogroup.fetching.assignment import LaneTable
from aiogroup.fetching.decode import DecodeSettings, PartitionDecoder
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.planner import WAIT_MIN_MS, FetchPlan, Planner
from aiogroup.fetching.remedies import FetchRemedy
from aiogroup.fetching.room import Room
from aiogroup.fetching.sessions import Asked, SessionRequest, request_for, without_session
from aiogroup.fetching.target import UNKNOWN
from aiogroup.offsets.ledger import Ledger
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.fetch import FetchResponse, PartitionData
from aiogroup.records import LIVE, Record
from aiogroup.recovery.token import is_ours
from aiogroup.runtime.context import Context
from aiogroup.runtime.fetching.positions import Positions
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.metadata.refresher import Refresher
from aiogroup.runtime.net.link import FETCH
from aiogroup.structs import TopicPartition
from aiogroup.telemetry import events

__all__ = ["Fetchers", "LaneRules", "LiveRules"]

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
TURN_BYTES: Final = 512 * 1024
"""So much of an answer is copied before the loop runs; a smaller answer is there as a whole or not at all."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
EARLIEST: Final = ResetPolicy("earliest")
LOOK_MS: Final = 1_000
OVERDUE_MS: Final = 3_000


class LaneRules(Protocol):
    """What the fetchers of the live lanes do in another way than those of the catch-up lanes (KIP-333).

    `lane` is the name that records carry, `channel` that of the connections.
    """

    lane: str
    channel: str

    def decoder(self, lane: Lane, *settings: Any) -> PartitionDecoder:  # noqa: ANN401 (those of PartitionDecoder)
        """What decodes the records of an answer."""

    def on_answer(self, lane: Lane) -> None:
        """A good answer came, with records or without."""

    def on_buffered(self, lane: Lane) -> None:
        """Records of an answer were buffered."""

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        """The leader's log does not hold `offset`."""


class LiveRules:
    """The live lanes: what is out of range goes on as the policy says."""

    lane = LIVE
    channel = FETCH

    def __init__(self, context: Context, positions: Positions) -> None:
        self._context = context
        self._positions = positions
        self._policy = parse_reset_policy(context.config.auto_offset_reset)

    def decoder(self, lane: Lane, *settings: Any) -> PartitionDecoder:  # noqa: ANN401 (those of PartitionDecoder)
        return PartitionDecoder(lane.tp, *settings)

    def on_answer(self, lane: Lane) -> None:
        self._context.delivery.opened[lane.tp] = lane

    def on_buffered(self, lane: Lane) -> None:
        """Nothing waits for that."""

    def on_out_of_range(self, lane: Lane, offset: int) -> None:
        assert isinstance(lane, Partition)
        context = self._context
        if not is_out_of_range(lane, offset):
            lane.back_off(now_ms(), context.config)
            return
        # The low-water mark of a token (KIP-333): what the log still holds behind it is nobody's but ours to read.
        is_low_water = offset == lane.committed and is_ours(lane.committed_metadata)
        policy = EARLIEST if is_low_water else self._policy
        if policy.kind == "none":
            lane.stick(OffsetOutOfRangeError(lane.tp, offset))
            context.changed.pulse()
            return
        context.delivery.forget([lane])
        self._positions.reset(lane, policy, why=f"offset {offset} is out of range")


class Fetchers:
    """Starts and ends one fetcher per broker that leads, or is preferred for, one of the lanes."""

    def __init__(
        self,
        context: Context,
        refresher: Refresher,
        lanes: LaneTable[Lane],
        rules: LaneRules,
    ) -> None:
        self._context = context
        self._refresher = refresher
        self._rules = rules
        self._lanes = lanes
        self._channel = rules.channel
        self._planner = Planner(self._lanes, context.config)
        self._running: dict[int, anyio.CancelScope] = {}
        self._tally = self._lanes.tally
        self._is_awaited = False  # a fetcher waits for what another one's request holds
        self._lets_others_go_on = False  # before the next request is made
        self._sent_at_ms: dict[int, int] = {}
        self._tried_since_ms: dict[int, int] = {}  # by node: since the first try that it has not answered
        self._answered_at_ms = now_ms()
        self._asking_for_moved: set[int] = set()
        config = context.config
        self._room = Room(self._tally, config.lane_buffer_bytes(rules.lane), config.max_partition_fetch_bytes)
        self._settings = DecodeSettings(
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            lane=rules.lane,
        )

    async def run(self) -> None:
        """Watch which brokers matter."""
        while True:
            self._look()
            nodes = set(self._planner.nodes)
            if UNKNOWN in nodes:
                self._refresher.want()
                self._tried_since_ms.setdefault(UNKNOWN, now_ms())
            else:
                self._tried_since_ms.pop(UNKNOWN, None)
            nodes.discard(UNKNOWN)
            for node_id in nodes - self._running.keys():
                name = f"{self._channel}er {node_id}"
                self._running[node_id] = self._context.supervisor.spawn(name, self._run_one, node_id)
            for node_id in self._running.keys() - nodes:
                self._running.pop(node_id).cancel()
                self._tried_since_ms.pop(node_id, None)
            if self._tally.moved:
                self._ask_for_moved()
            self._look_for_silent_brokers(now_ms())
            await self._context.fetchable.wait(now_ms() + LOOK_MS)

    def _look(self) -> None:
        """Let the plan follow what happened."""
        self._room.look(self._lanes)
        self._planner.look(self._context.link.cluster, now_ms())

    def _look_for_silent_brokers(self, now: int) -> None:
        """A fetch that is long overdue: perhaps its broker froze and leads no more; do not wait for the time-out."""
        limit_ms = self._context.config.fetch_max_wait_ms + OVERDUE_MS
        if any(now - sent_at_ms > limit_ms for sent_at_ms in self._sent_at_ms.values()):
            self._refresher.want()

    def note_assignment(self) -> None:
        """Partitions came or went: what is asked from now on is not overdue yet."""
        self._answered_at_ms = now_ms()

    def unanswered_ms(self, now: int) -> int:
        """For how long no broker has answered a fetch, although some are asked or cannot be; 0: none is wanted."""
        tried_since_ms = min(self._tried_since_ms.values(), default=None)
        if tried_since_ms is None and not any(each.awaits_position for each in self._context.assignment):
            return 0
        return now - max(tried_since_ms or 0, self._answered_at_ms)

    def heard_at_ms(self, partition: Lane) -> int | None:
        return self._planner.heard_at_ms(partition)

    def answered_at_ms(self, partition: Lane) -> int | None:
        return self._planner.answered_at_ms(partition)

    async def _run_one(self, node_id: int) -> None:
        context, config = self._context, self._context.config
        wait_ms = WAIT_MIN_MS
        drained_count = failures_count = 0
        self._tried_since_ms[node_id] = now_ms()
        await context.link.get_ready(node_id, self._channel)  # while the positions are looked up
        while True:
            self._look()
            # A quiet broker must not hold the room of all: each of those that are not asked now has a share.
            plan = self._planner.plan(node_id, self._room.share_bytes(len(self._running) - len(self._sent_at_ms)))
            self._is_awaited = self._is_awaited or plan.is_blocked
            if not plan.max_bytes:
                self._tried_since_ms.pop(node_id, None)
                await context.fetchable.wait(self._planner.wake_at_ms)
                continue
            # A partition with a full buffer may be drained any moment: do not stay away from it for long. While the
            # application drains nothing wait longer each time, or we would ask for nothing fifty times a second.
            is_draining = drained_count != context.delivery.supply.drained_count
            drained_count = context.delivery.supply.drained_count
            wait_ms = WAIT_MIN_MS if is_draining or not plan.full_count else wait_ms * 2
            limit_ms = min(wait_ms, config.fetch_max_wait_ms) if plan.full_count else config.fetch_max_wait_ms
            wait_ms = min(wait_ms, config.fetch_max_wait_ms)
            is_answered = await self._fetch(node_id, plan, limit_ms)
            if self._lets_others_go_on:
                self._lets_others_go_on = False
                await asyncio.sleep(0)
            if is_answered:
                failures_count = 0
                continue
            failures_count += 1
            self._refresher.want()
            until_ms = now_ms() + config.backoff_ms(failures_count)
            while now_ms() < until_ms:
                await context.fetchable.wait(until_ms)

    async def _fetch(self, node_id: int, plan: FetchPlan, wait_ms: int) -> bool:
        """One request and its answer; False when the broker did not give one."""
        context, share = self._context, self._planner.share(node_id)
        session = share.session
        begun = session.begin()
        share.named = begun.partitions
        for tp in [each for each in self._tally.moved if each in session.held]:
            del self._tally.moved[tp]
        request = request_for(begun, context.config, max_bytes=plan.max_bytes, max_wait_ms=wait_ms)
        reserved_bytes = max(plan.max_bytes, self._room.largest_bytes)
        self._tally.in_flight_bytes += reserved_bytes
        self._sent_at_ms[node_id] = now = now_ms()
        self._tried_since_ms.setdefault(node_id, now)
        response: FetchResponse | None = None
        try:
            at_most = None if begun.has_ids else BY_NAME
            response = await context.link.send(node_id, request, self._channel, at_most=at_most)
            received_at_ms = self._answered_at_ms = now_ms()
            self._tried_since_ms.pop(node_id, None)
            # A broker gives its first batch whole, however long that is (KIP-74): it is counted on from now on.
            answer_bytes = sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)
            if answer_bytes > plan.max_bytes:
                self._room.largest_bytes = max(self._room.largest_bytes, answer_bytes)
            return await self._take_answer(node_id, response, begun, received_at_ms)
        except (AuthenticationFailedError, ConsumerStoppedError):
            raise
        except AiogroupError as error:
            context.tell(events.FetchFailed(node_id, None, None, str(error)))
            for asked in session.held.values():
                asked.partition.target.error = str(error)
            return False
        finally:
            if response is None:
                session.lost()
            context.delivery.look_again()
            context.changed.pulse()  # once, so that a waiting request sees all partitions and takes turns
            self._tally.in_flight_bytes -= reserved_bytes
            self._sent_at_ms.pop(node_id, None)
            if self._is_awaited:
                self._is_awaited = False
                self._lets_others_go_on = True  # or a quiet broker would take the room again each time
                context.fetchable.pulse()

    # After a seek.

    def _ask_for_moved(self) -> None:
        """A request that waits at its broker for other records must not hold up who waits for these."""
        for node_id in self._sent_at_ms.keys() - self._asking_for_moved:
            if self._planner.moved(node_id):
                self._asking_for_moved.add(node_id)
                self._context.supervisor.spawn(f"{self._channel}er {node_id} after a seek", self._run_moved, node_id)

    async def _run_moved(self, node_id: int) -> None:
        """Fetch what a seek moved, until a request of the session names it.

        Without a session and on a connection of its own, so that the request under way goes on for the others. These
        requests do not wait at the broker: the next seek would wait for them.
        """
        context, idle_ms = self._context, WAIT_MIN_MS
        try:
            while asked := self._planner.moved(node_id):
                if await self._fetch_moved(node_id, asked):
                    idle_ms = WAIT_MIN_MS
                else:
                    until_ms, idle_ms = now_ms() + idle_ms, idle_ms * 2
                    await context.fetchable.wait(until_ms)
                self._look()
        finally:
            self._asking_for_moved.discard(node_id)

    async def _fetch_moved(self, node_id: int, asked: dict[TopicPartition, Asked]) -> bool:
        """One request and its answer; whether records came."""
        context, begun = self._context, without_session(asked)
        plan = self._planner.plan(node_id, self._room.share_bytes(1))
        if not plan.max_bytes:
            return False
        request = request_for(begun, context.config, max_bytes=plan.max_bytes, max_wait_ms=0)
        reserved_bytes = max(plan.max_bytes, self._room.largest_bytes)
        self._tally.in_flight_bytes += reserved_bytes
        try:
            at_most = None if begun.has_ids else BY_NAME
            channel = f"{self._channel} after a seek"
            response = await context.link.send(node_id, request, channel, at_most=at_most)
            received_at_ms, has_records = now_ms(), False
            by_id = {each.topic_id: tp.topic for tp, each in asked.items()}
            for topic in response.responses:
                for data in topic.partitions:
                    tp = TopicPartition(topic.topic or by_id.get(topic.topic_id, ""), data.partition_index)
                    if tp in asked:
                        has_records = has_records or bool(data.records)
                        self._take_partition(node_id, asked[tp], data, received_at_ms)
            return has_records
        except (AuthenticationFailedError, ConsumerStoppedError):
            raise
        except AiogroupError as error:
            context.tell(events.FetchFailed(node_id, None, None, str(error)))
            for tp in asked:
                self._tally.moved.pop(tp, None)  # the session's next request asks for them
            return False
        finally:
            context.delivery.look_again()
            context.changed.pulse()
            self._tally.in_flight_bytes -= reserved_bytes

    # The answer.

    async def _take_answer(
        self, node_id: int, response: FetchResponse, begun: SessionRequest, received_at_ms: int
    ) -> bool:
        """Partition by partition, letting the loop run between them: the answer may hold megabytes."""
        share = self._planner.share(node_id)
        session = share.session
        answers = {
            TopicPartition(topic.topic or session.name_of(topic.topic_id), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        session.answered(response.error_code, response.session_id, answers)
        if not begun.is_full and not session.is_open:
            why = lookup(response.error_code).name if response.error_code else "the broker closed it"
            self._context.tell(events.FetchSessionLost(node_id, why, len(session.held)))
        if response.error_code:
            return self._mend_session(node_id, response.error_code, begun)
        share.named, share.answered_at_ms = (), received_at_ms
        for tp, named in begun.partitions.items():
            if tp not in answers and named.partition.log.heard_at_ms is not None:
                named.partition.log.heard_at_ms = received_at_ms  # it is as it was
        turn_bytes = 0
        is_more_there = not answers
        for tp, data in answers.items():
            asked = session.held.get(tp)
            if asked is None:
                continue
            self._take_partition(node_id, asked, data, received_at_ms)
            is_more_there = is_more_there or not self._is_at_end(asked.partition)
            turn_bytes += len(data.records or b"")
            if turn_bytes >= TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)
        self._lets_others_go_on = not is_more_there  # who waits for these records; the next request will wait anyway
        return True

    def _is_at_end(self, partition: Lane) -> bool:
        """What is fetched next is not there yet."""
        end = partition.log.last_offset(read_committed=self._context.config.read_committed)
        return end is not None and partition.target.offset >= end

    def _mend_session(self, node_id: int, error_code: int, begun: SessionRequest) -> bool:
        """Whether to ask again at once: a session that the broker does not know is replaced by the next request."""
        if error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._refresher.want()
        if error_code in SESSION_ERRORS and not begun.is_full:
            return True
        self._context.tell(events.FetchFailed(node_id, None, None, lookup(error_code).name))
        return False

    def _take_partition(self, node_id: int, asked: Asked, data: PartitionData, received_at_ms: int) -> None:
        context, lane = self._context, asked.partition
        if not self._planner.is_at(node_id, lane.tp, asked):
            self._planner.share(node_id).session.miss(lane.tp)
            return

        def make_decoder(records: bytes | memoryview, offset: int, aborted: list[tuple[int, int]]) -> PartitionDecoder:
            acknowledge = _Acknowledge(context, lane.ledger)
            return self._rules.decoder(lane, records, offset, aborted, self._settings, acknowledge)

        taken = take(lane, asked, data, received_at_ms, make_decoder)
        if not taken.is_current:
            return
        if taken.remedy is not FetchRemedy.PROCEED:
            self._mend(node_id, lane, asked.fetch_offset, data.error_code, taken.remedy)
        elif taken.is_diverged:  # only told to who says `last_fetched_epoch`, as we do not; but never to be passed over
            lane.doubt()
            lane.back_off(now_ms(), context.config)
            context.positions_wanted.pulse()
        else:
            self._rules.on_answer(lane)
        if taken.names_replica:
            context.fetchable.pulse()
        if taken.incomplete_bytes:
            self._ask_for_whole(node_id, asked, taken.incomplete_bytes, len(data.records or b""))
        elif taken.is_buffered:
            self._rules.on_buffered(lane)

    def _ask_for_whole(self, node_id: int, asked: Asked, batch_bytes: int, received_bytes: int) -> None:
        why = ask_for_whole(asked, batch_bytes, received_bytes, now_ms(), self._context.config)
        if why is not None:
            tp, offset = asked.partition.tp, asked.fetch_offset
            self._context.tell(events.FetchFailed(node_id, tp.topic, tp.partition, f"offset {offset}: {why}"))

    def _mend(self, node_id: int, lane: Lane, offset: int, error_code: int, remedy: FetchRemedy) -> None:
        context, tp, name = self._context, lane.tp, lookup(error_code).name
        lane.target.error = name
        context.tell(events.FetchFailed(node_id, tp.topic, tp.partition, name))
        # Whoever leads now decides; the preference may have ended while the answer was on its way.
        is_leader = node_id == context.link.cluster.leader(tp)
        if lane.target.preferred_replica != UNKNOWN:
            lane.target.preferred_replica = UNKNOWN
            context.fetchable.pulse()  # another fetcher has it now
        if remedy is FetchRemedy.OUT_OF_RANGE and is_leader:
            self._rules.on_out_of_range(lane, offset)
            return
        if remedy is FetchRemedy.NOT_AUTHORIZED:
            context.inbox.put(TopicAuthorizationError([tp.topic]))
            context.changed.pulse()
        lane.back_off(now_ms(), context.config)
        if remedy is not FetchRemedy.BACK_OFF:
            self._refresher.want()


class _Acknowledge:
    """What `record.ack()` calls: one per fetched piece, so that a record needs no place for its partition.

    It refers weakly: records are outside of the garbage collector's sight, so a cycle through them would stay for ever.
    """

    __slots__ = ("_context", "_ledger")

    def __init__(self, context: Context, ledger: Ledger) -> None:
        self._context = ref(context)
        self._ledger = ledger

    def __call__(self, record: Record) -> None:
        context = self._context()
        if context is not None:
            context.delivery.settle()
            self._ledger.ack(record.offset)
            context.group_changed.pulse()
