"""The fetchers: one task per broker keeps that broker's partitions buffered, within bounds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Final
from weakref import ref

import anyio

from aiogroup._core.changes import Change, Waiter
from aiogroup._core.fetching.asking.answers import ask_for_whole, by_partition, take
from aiogroup._core.fetching.asking.budget import FetchBudget
from aiogroup._core.fetching.asking.planner import WAIT_MIN_MS, BrokerPlan, FetchPlan, Planner
from aiogroup._core.fetching.asking.remedies import FetchRemedy
from aiogroup._core.fetching.asking.sessions import Asked, SessionRequest, request_for, without_session
from aiogroup._core.fetching.assignment import LaneTable
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder, PassedOver
from aiogroup._core.fetching.target import UNKNOWN
from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import FETCH_FAILED
from aiogroup._runtime.context import Context
from aiogroup._runtime.fetching.lane_rules import LaneRules
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import COMMIT, HEARTBEAT, METADATA
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    TopicAuthorizationError,
)
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["Fetchers"]

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
TURN_BYTES: Final = 512 * 1024
"""How many bytes of an answer are handled before the loop runs again; a smaller answer becomes visible all at once."""
AT_ONCE_BYTES: Final = 16 * 1024
"""An answer with at most this many bytes of records is taken in the step that reads it from the socket."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
LOOK_MS: Final = 1_000
_ERROR_CODE: Final = attrgetter("error_code")
OVERDUE_MS: Final = 3_000
CONNECT_AGAIN_MS: Final = 10_000
"""How long a node may deny that it is the leader, after it was connected again for that, until it is once more."""


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
        self._is_awaited = False  # a fetcher waits for memory that another fetcher's request has reserved
        self._lets_others_go_on = False  # yield to other tasks before the next request
        self._sent_at_ms: dict[int, int] = {}
        self._tried_since_ms: dict[int, int] = {}  # by node: the time of the first unanswered attempt
        self._answered_at_ms = now_ms()
        self._asking_for_moved: set[int] = set()
        self._denied_at_ms: dict[TopicPartition, int] = {}  # when a leader denied it first
        config = context.config
        self._budget = FetchBudget(self._tally, config.lane_buffer_bytes(rules.lane), config.max_partition_fetch_bytes)
        self._ends: Mapping[TopicPartition, int] = {}
        self._settings = DecodeSettings(
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            lane=rules.lane,
            max_batch_bytes=config.max_batch_bytes,
        )

    def read_up_to(self, ends: Mapping[TopicPartition, int]) -> list[PassedOver]:
        """From now on fetch nothing of these partitions once all before these offsets is buffered. The mapping may be
        changed; a seek takes a change up.

        Returns:
            A list that gets each batch that is passed over. It must be emptied again and again.
        """
        noted: list[PassedOver] = []
        self._ends = ends
        self._settings = replace(self._settings, passed_over=noted)
        return noted

    async def run(self) -> None:
        """Keep one fetcher running for each broker that is needed."""
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
                self._context.failures.end(FETCH_FAILED, node_id)
            if self._tally.moved:
                self._ask_for_moved()
            self._look_for_silent_brokers(now_ms())
            await self._context.changes[Waiter.FETCHERS].wait(now_ms() + LOOK_MS)

    def _look(self) -> int:
        """Bring the plan up to date. Returns the instant for which it holds."""
        now = now_ms()
        self._budget.look(self._lanes)
        self._planner.plan_touched(self._context.link.cluster, now)
        return now

    def _look_for_silent_brokers(self, now: int) -> None:
        """Refresh the metadata when a fetch is long overdue: its broker may have frozen and lost its leadership.
        Waiting for the time-out would take much longer.
        """
        limit_ms = self._context.config.fetch_max_wait_ms + OVERDUE_MS
        if any(now - sent_at_ms > limit_ms for sent_at_ms in self._sent_at_ms.values()):
            self._refresher.want()

    def note_assignment(self) -> None:
        """Partitions came or went: count the silence of brokers from now on."""
        self._answered_at_ms = now_ms()

    def unanswered_ms(self, now: int) -> int:
        """For how long no broker has answered a fetch although records are wanted; 0 if none are wanted."""
        tried_since_ms = min(self._tried_since_ms.values(), default=None)
        if tried_since_ms is None and not any(each.awaits_position for each in self._context.assignment):
            return 0
        return now - max(tried_since_ms or 0, self._answered_at_ms)

    def heard_at_ms(self, lane: Lane) -> int | None:
        return self._planner.heard_at_ms(lane)

    def answered_at_ms(self, lane: Lane) -> int | None:
        return self._planner.answered_at_ms(lane)

    async def _run_one(self, node_id: int) -> None:
        context, config = self._context, self._context.config
        wait_ms = WAIT_MIN_MS
        drained_count = failures_count = 0
        self._tried_since_ms[node_id] = now_ms()
        await context.link.get_ready(node_id, self._channel)  # while the positions are looked up
        while True:
            now = self._look()
            # A quiet broker must not reserve all the memory: each broker without a request under way has a share.
            idle_count = len(self._running) - len(self._sent_at_ms)
            plan = self._planner.next_fetch(node_id, self._budget.share_bytes(idle_count))
            self._is_awaited = self._is_awaited or plan.is_blocked
            if not plan.max_bytes:
                self._tried_since_ms.pop(node_id, None)
                if plan.is_blocked or self._tally.is_narrow:
                    context.delivery.supply.is_room_wanted = True
                else:
                    context.delivery.supply.is_drain_wanted = True
                await context.changes[Waiter.FETCHERS].wait(self._planner.wake_at_ms)
                continue
            # A full buffer may be drained at any moment, so its partition must be asked for soon: keep the wait short.
            # While the application drains nothing, wait longer each time: otherwise we would send fifty empty requests
            # a second.
            is_draining = drained_count != context.delivery.supply.drained_count
            drained_count = context.delivery.supply.drained_count
            wait_ms = WAIT_MIN_MS if is_draining or not plan.full_count else wait_ms * 2
            limit_ms = min(wait_ms, config.fetch_max_wait_ms) if plan.full_count else config.fetch_max_wait_ms
            wait_ms = min(wait_ms, config.fetch_max_wait_ms)
            is_answered = await self._fetch(node_id, plan, limit_ms, now)
            if self._lets_others_go_on:
                self._lets_others_go_on = False
                await asyncio.sleep(0)
            if is_answered:
                failures_count = 0
                if context.failures.failing:
                    context.failures.end(FETCH_FAILED, node_id)
                continue
            failures_count += 1
            self._refresher.want()
            until_ms = now_ms() + config.backoff_ms(failures_count)
            while now_ms() < until_ms:
                await context.changes[Waiter.FETCHERS].wait(until_ms)

    async def _fetch(self, node_id: int, plan: FetchPlan, wait_ms: int, now: int) -> bool:
        """Send one request, and further ones while `_take_at_once` takes the answers; handle the last answer. Returns
        False if the broker did not give it.
        """
        context, broker = self._context, self._planner.broker(node_id)
        session = broker.session
        sent = _Sent(node_id, broker, session.begin(), plan.max_bytes)
        request = self._begin_request(sent, wait_ms, now)
        response: FetchResponse | None = None
        try:
            response = await context.link.send(
                node_id,
                request,
                self._channel,
                at_most=None if sent.begun.has_ids else BY_NAME,
                on_answer=partial(self._take_at_once, sent),
            )
            return sent.is_taken or await self._take_answer(sent, response)
        except (AuthenticationFailedError, ConsumerStoppedError):
            raise
        except AiogroupError as error:
            context.emit(events.FetchFailed(node_id, None, None, str(error)))
            for asked in session.held.values():
                asked.lane.target.error = str(error)
            return False
        finally:
            if response is None:
                session.lost()
            if not sent.has_woken:
                context.delivery.look_again()
                context.changes.tell(Change.ANSWERED)  # once, so that a waiting request sees all its partitions
            self._end_request(sent)

    def _begin_request(self, sent: _Sent, wait_ms: int, now: int) -> FetchRequest:
        """The request that is to be sent now. What it needs of the memory is reserved for it."""
        begun, tally = sent.begun, self._tally
        sent.broker.named = begun.partitions
        if tally.moved:
            for tp in [each for each in tally.moved if each in sent.broker.session.held]:
                del tally.moved[tp]
        sent.reserved_bytes = max(sent.max_bytes, self._budget.largest_bytes)
        tally.in_flight_bytes += sent.reserved_bytes
        self._sent_at_ms[sent.node_id] = now
        self._tried_since_ms.setdefault(sent.node_id, now)
        return request_for(begun, self._context.config, max_bytes=sent.max_bytes, max_wait_ms=wait_ms)

    def _end_request(self, sent: _Sent) -> None:
        """Give back what the request reserved, once."""
        if sent.is_over:
            return
        sent.is_over = True
        self._sent_at_ms.pop(sent.node_id, None)
        self._give_back(sent.reserved_bytes)

    def _give_back(self, reserved_bytes: int) -> None:
        self._tally.in_flight_bytes -= reserved_bytes
        if self._is_awaited:
            self._is_awaited = False
            self._lets_others_go_on = True  # otherwise a quiet broker would reserve the memory again each time
            self._context.changes.tell(Change.FETCHABLE)

    def end_sessions(self) -> None:
        """Close the brokers' fetch sessions (KAFKA-7109). Call this once no fetcher runs.

        A broker has room for a thousand sessions, and keeps an unused one for at least two minutes. This is best
        effort: nobody waits for an answer, and a session whose first answer has not arrived cannot be closed. A session
        belongs to no connection. One on which no fetch waits is best: a broker usually still reads what was written
        behind a fetch before the connection was closed, but not if the connection breaks while it sends a long answer.
        """
        link = self._context.link
        for node_id, session in self._planner.sessions.items():
            connection, last = link.opened(node_id, METADATA, COMMIT, HEARTBEAT, self._channel), session.end()
            if connection is not None and last is not None:
                with suppress(AiogroupError):
                    request = request_for(last, self._context.config, max_bytes=0, max_wait_ms=0)
                    connection.write(request, at_most=None if last.has_ids else BY_NAME)

    # After a seek.

    def _ask_for_moved(self) -> None:
        """Fetch moved partitions at once: a request that waits at the broker for other records must not delay them."""
        for node_id in self._sent_at_ms.keys() - self._asking_for_moved:
            if self._planner.moved(node_id):
                self._asking_for_moved.add(node_id)
                self._context.supervisor.spawn(f"{self._channel}er {node_id} after a seek", self._run_moved, node_id)

    async def _run_moved(self, node_id: int) -> None:
        """Fetch what a seek moved, until a request of the session names it.

        These requests use no session and a connection of their own, so that the request under way goes on for the other
        partitions. They do not wait at the broker, since the next seek would wait for them.
        """
        context, idle_ms = self._context, WAIT_MIN_MS
        try:
            while asked := self._planner.moved(node_id):
                if await self._fetch_moved(node_id, asked):
                    idle_ms = WAIT_MIN_MS
                else:
                    until_ms, idle_ms = now_ms() + idle_ms, idle_ms * 2
                    context.delivery.supply.is_room_wanted = True
                    await context.changes[Waiter.FETCHERS].wait(until_ms)
                self._look()
        finally:
            self._asking_for_moved.discard(node_id)

    async def _fetch_moved(self, node_id: int, asked: dict[TopicPartition, Asked]) -> bool:
        """Send one request and handle its answer. Returns whether records arrived."""
        context, begun = self._context, without_session(asked)
        plan = self._planner.next_fetch(node_id, self._budget.share_bytes(1))
        if not plan.max_bytes:
            return False
        request = request_for(begun, context.config, max_bytes=plan.max_bytes, max_wait_ms=0)
        reserved_bytes = max(plan.max_bytes, self._budget.largest_bytes)
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
            context.emit(events.FetchFailed(node_id, None, None, str(error)))
            for tp in asked:
                self._tally.moved.pop(tp, None)  # the session's next request asks for them
            return False
        finally:
            context.delivery.look_again()
            context.changes.tell(Change.ANSWERED)
            self._give_back(reserved_bytes)

    # The answer.

    def _take_at_once(self, sent: _Sent, response: FetchResponse, answer: asyncio.Future[FetchResponse]) -> bool:
        """Take a short answer without an error as soon as it is read: at the head there is one for each record, and
        every turn of the loop costs time. Every other answer is left to the fetcher.

        If it brings all records that the log has, the requests that wait for records are woken here, and `_ask_on`
        writes the next fetch after they have run. The fetcher, which waits for `answer`, need not wake up for that:
        then this returns True, and `answer` stays open.
        """
        if response.error_code or sent.begun.is_full:
            return False
        session = sent.broker.session
        answers, size_bytes = by_partition(response, session)
        if not 0 < size_bytes <= AT_ONCE_BYTES or any(map(_ERROR_CODE, answers.values())):
            return False
        self._open_answer(sent, response, answers, size_bytes)
        sent.is_taken, is_more_there = True, False
        for tp, data in answers.items():
            asked = session.held.get(tp)
            if asked is not None:
                self._take_partition(sent.node_id, asked, data, self._answered_at_ms)
                is_more_there = is_more_there or not self._is_at_end(asked.lane)
        self._end_request(sent)
        if is_more_there:
            return False
        sent.has_woken = True
        self._context.delivery.look_again()
        self._context.changes.tell(Change.ANSWERED)
        if response.throttle_time_ms:
            return False
        answer.get_loop().call_soon(self._ask_on, sent, response, answer)
        return True

    def _ask_on(self, sent: _Sent, response: FetchResponse, answer: asyncio.Future[FetchResponse]) -> None:
        """Write the next request for the fetcher that waits for `answer`, or wake it if there is anything else to do.

        At the head this saves a task's step, a future and three coroutines for each record.
        """
        if answer.done():  # the fetcher was ended
            return
        try:
            if not self._write_next(sent, answer):
                answer.set_result(response)
        except Exception as error:  # noqa: BLE001 (handed to the fetcher)
            answer.set_exception(error)

    def _write_next(self, sent: _Sent, answer: asyncio.Future[FetchResponse]) -> bool:
        """Returns False, and changes nothing, if more must be done than to write a request."""
        connection = self._context.link.ready(sent.node_id, self._channel)
        if connection is None or self._lets_others_go_on:
            return False
        now = self._look()
        idle_count = len(self._running) - len(self._sent_at_ms)
        plan = self._planner.next_fetch(sent.node_id, self._budget.share_bytes(idle_count))
        if plan.full_count or not plan.max_bytes:
            return False
        sent.begin(sent.broker.session.begin(), plan.max_bytes)
        config = self._context.config
        connection.write(
            self._begin_request(sent, config.fetch_max_wait_ms, now),
            at_most=None if sent.begun.has_ids else BY_NAME,
            on_answer=partial(self._take_at_once, sent),
            answer=answer,
        )
        connection.wait_on(answer, now, config.request_timeout_ms)
        return True

    def _open_answer(
        self, sent: _Sent, response: FetchResponse, answers: dict[TopicPartition, PartitionData], answer_bytes: int
    ) -> None:
        """Note what the answer, which names these partitions, says about the broker and the session."""
        node_id, begun = sent.node_id, sent.begun
        self._answered_at_ms = received_at_ms = now_ms()
        self._tried_since_ms.pop(node_id, None)
        broker = sent.broker
        session = broker.session
        # A broker sends its first batch whole, however long it is (KIP-74): reserve that much from now on.
        if answer_bytes > sent.max_bytes:
            self._budget.largest_bytes = max(self._budget.largest_bytes, answer_bytes)
        session.answered(response.error_code, response.session_id, answers)
        if not begun.is_full and not session.is_open:
            why = lookup(response.error_code).name if response.error_code else "the broker closed it"
            self._context.emit(events.FetchSessionLost(node_id, why, len(session.held)))
        if not response.error_code:
            broker.named, broker.answered_at_ms = (), received_at_ms
            for tp, named in begun.partitions.items():
                if tp not in answers and named.lane.log.heard_at_ms is not None:
                    named.lane.log.heard_at_ms = received_at_ms  # it has no news

    async def _take_answer(self, sent: _Sent, response: FetchResponse) -> bool:
        """Handle the answer partition by partition, and let the loop run in between: the answer may hold megabytes."""
        node_id, held = sent.node_id, sent.broker.session.held
        answers, answer_bytes = by_partition(response, sent.broker.session)
        self._open_answer(sent, response, answers, answer_bytes)
        if response.error_code:
            return self._mend_session(node_id, response.error_code, sent.begun)
        received_at_ms, turn_bytes = self._answered_at_ms, 0
        is_more_there = not answers
        for tp, data in answers.items():
            asked = held.get(tp)
            if asked is None:
                continue
            self._take_partition(node_id, asked, data, received_at_ms)
            is_more_there = is_more_there or not self._is_at_end(asked.lane)
            turn_bytes += len(data.records or b"")
            if turn_bytes >= TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)
        # Tasks that wait for these records run first if the next request will wait at the broker anyway.
        self._lets_others_go_on = not is_more_there
        return True

    def _is_at_end(self, lane: Lane) -> bool:
        """Whether the log has no records after those that are fetched."""
        end = lane.log.last_offset(read_committed=self._settings.read_committed)
        return end is not None and lane.target.offset >= end

    def _mend_session(self, node_id: int, error_code: int, begun: SessionRequest) -> bool:
        """Whether to ask again at once: the next request replaces a session that the broker does not know."""
        if error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._refresher.want()
        if error_code in SESSION_ERRORS and not begun.is_full:
            return True
        self._context.emit(events.FetchFailed(node_id, None, None, lookup(error_code).name))
        return False

    def _take_partition(self, node_id: int, asked: Asked, data: PartitionData, received_at_ms: int) -> None:
        context, lane = self._context, asked.lane
        if not self._planner.is_at(node_id, lane.tp, asked):
            self._planner.broker(node_id).session.miss(lane.tp)
            return
        if data.preferred_read_replica == node_id:  # only leaders name one: this address leads to the leader by now
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._mend(node_id, lane, asked.fetch_offset, refused, FetchRemedy.REFRESH)
            return
        taken = take(lane, asked, data, received_at_ms, self._make_decoder)
        if not taken.is_current:
            return
        if taken.remedy is not FetchRemedy.PROCEED:
            self._mend(node_id, lane, asked.fetch_offset, data.error_code, taken.remedy)
        elif taken.is_diverged:  # we never send `last_fetched_epoch`, but a divergence must not be ignored
            lane.doubt()
            lane.back_off(now_ms(), context.config)
        else:
            self._rules.on_answer(lane)
            if context.failures.failing:
                context.failures.end_partitions(frozenset((lane.tp,)))
        if taken.names_replica:
            context.changes.tell(Change.FETCHABLE)
        if taken.incomplete_bytes:
            self._ask_for_whole(node_id, asked, taken.incomplete_bytes, len(data.records or b""))
        elif taken.is_buffered:
            self._rules.on_buffered(lane)
            if self._ends and lane.target.offset >= self._ends.get(lane.tp, sys.maxsize):
                lane.target.is_halted = True

    def _make_decoder(
        self, lane: Lane, records: bytes | memoryview, offset: int, aborted: Sequence[tuple[int, int]]
    ) -> PartitionDecoder:
        acknowledge = _Acknowledge(self._context, lane.ledger)
        return self._rules.decoder(lane, records, offset, aborted, self._settings, acknowledge)

    def _ask_for_whole(self, node_id: int, asked: Asked, batch_bytes: int, received_bytes: int) -> None:
        why = ask_for_whole(asked, batch_bytes, received_bytes, now_ms(), self._context.config)
        if why is not None:
            tp, offset = asked.lane.tp, asked.fetch_offset
            self._context.emit(events.FetchFailed(node_id, tp.topic, tp.partition, f"offset {offset}: {why}"))

    def _mend(self, node_id: int, lane: Lane, offset: int, error_code: int, remedy: FetchRemedy) -> None:
        context, tp, name = self._context, lane.tp, lookup(error_code).name
        lane.target.error = name
        context.emit(events.FetchFailed(node_id, tp.topic, tp.partition, name))
        # Compare with the present leader: the preferred replica may have changed while the answer was under way.
        is_leader = node_id == context.link.cluster.leader(tp)
        if lane.target.preferred_replica != UNKNOWN:
            lane.target.preferred_replica = UNKNOWN
            context.changes.tell(Change.FETCHABLE)  # the partition belongs to another fetcher now
        if remedy is FetchRemedy.OUT_OF_RANGE and is_leader:
            self._rules.on_out_of_range(lane, offset)
            return
        if error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and is_leader:
            self._doubt_connection(node_id, lane)
        if remedy is FetchRemedy.NOT_AUTHORIZED:
            context.inbox.put(TopicAuthorizationError([tp.topic]))
        lane.back_off(now_ms(), context.config)
        if remedy is not FetchRemedy.BACK_OFF:
            self._refresher.want()

    def _doubt_connection(self, node_id: int, lane: Lane) -> None:
        """If fresh metadata still call this node the leader, another one may answer here: a name or an address that was
        used again leads there, and so does the connection as long as it is open. Connect again.
        """
        now = now_ms()
        if not lane.target.failures_count:
            self._denied_at_ms[lane.tp] = now
        elif self._refresher.asked_at_ms > self._denied_at_ms.get(lane.tp, now):
            link = self._context.link
            if link.let_go(node_id, self._channel):  # else another request is under way there, and is refused, too
                self._denied_at_ms[lane.tp] = now + CONNECT_AGAIN_MS
                link.let_go(node_id, f"{self._channel} after a seek")
                link.let_go(node_id, METADATA)


class _Sent:
    """The request to a broker that is under way, and what was done with its answer."""

    __slots__ = ("begun", "broker", "has_woken", "is_over", "is_taken", "max_bytes", "node_id", "reserved_bytes")

    def __init__(self, node_id: int, broker: BrokerPlan, begun: SessionRequest, max_bytes: int) -> None:
        self.node_id = node_id
        self.broker = broker
        self.reserved_bytes = 0
        self.begin(begun, max_bytes)

    def begin(self, begun: SessionRequest, max_bytes: int) -> None:
        self.begun = begun
        self.max_bytes = max_bytes
        self.is_taken = False  # the answer was, as soon as it was read
        self.has_woken = False  # whoever waits for records was woken
        self.is_over = False  # what was reserved for it is given back


class _Acknowledge:
    """The function that `record.ack()` calls. There is one per fetched piece, so that a record need not refer to its
    partition.

    Its reference is weak: the garbage collector does not track records, so a cycle through them would stay for ever.
    """

    __slots__ = ("_context", "_ledger")

    def __init__(self, context: Context, ledger: Ledger) -> None:
        self._context = ref(context)
        self._ledger = ledger

    def __call__(self, record: Record) -> None:
        context = self._context()
        if context is not None:
            context.delivery.ack(self._ledger, record.offset)
