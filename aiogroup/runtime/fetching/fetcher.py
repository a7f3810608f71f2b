"""The fetchers: one task per broker keeps that broker's partitions buffered, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import ref

import anyio

from aiogroup.config import ResetPolicy, parse_reset_policy
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from aiogroup.fetching.assignment import LaneTable
from aiogroup.fetching.decode import DecodeSettings, PartitionDecoder
from aiogroup.fetching.extent import extent_of
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.planner import WAIT_MIN_MS, FetchPlan, Planner
from aiogroup.fetching.remedies import FetchRemedy, fetch_remedy_for
from aiogroup.fetching.room import Room
from aiogroup.fetching.sessions import Asked, SessionRequest, request_for, without_session
from aiogroup.fetching.target import PREFERRED_REPLICA_MS, UNKNOWN
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

__all__ = ["Fetchers"]

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
TURN_BYTES: Final = 512 * 1024
"""So much of an answer is copied before the loop runs; a smaller answer is there as a whole or not at all."""
ALONE_SHARE: Final = 0.9
"""A slice that is so much of what it keeps in memory is not copied."""
SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
EARLIEST: Final = ResetPolicy("earliest")
LOOK_MS: Final = 1_000
OVERDUE_MS: Final = 3_000


class Fetchers:
    """Starts and ends one fetcher per broker that leads, or is preferred for, an assigned partition."""

    def __init__(
        self,
        context: Context,
        refresher: Refresher,
        positions: Positions,
        *,
        assignment: LaneTable[Lane] | None = None,
        channel: str = FETCH,
        lane: str = LIVE,
    ) -> None:
        self._context = context
        self._refresher = refresher
        self._positions = positions
        self._assignment: LaneTable[Lane] = context.assignment if assignment is None else assignment
        self._channel = channel
        self._planner = Planner(self._assignment, context.config)
        self._running: dict[int, anyio.CancelScope] = {}
        self._tally = self._assignment.tally
        self._is_awaited = False  # a fetcher waits for what another one's request holds
        self._lets_others_go_on = False  # before the next request is made
        self._sent_at_ms: dict[int, int] = {}
        self._tried_since_ms: dict[int, int] = {}  # by node: since the first try that it has not answered
        self._answered_at_ms = now_ms()
        self._asking_for_moved: set[int] = set()
        config = context.config
        self._room = Room(self._tally, config.lane_buffer_bytes(lane), config.max_partition_fetch_bytes)
        self._policy = parse_reset_policy(config.auto_offset_reset)
        self._settings = DecodeSettings(
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            lane=lane,
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
        self._room.look(self._assignment)
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
            is_draining = drained_count != context.delivery.drained_count
            drained_count = context.delivery.drained_count
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
        partition, offset = asked.partition, asked.fetch_offset
        if not self._planner.is_at(node_id, partition.tp, asked):
            self._planner.share(node_id).session.miss(partition.tp)
            return
        # An answer to where the partition was before a seek, a reset or a revocation says nothing of records.
        # Neither does the second of two brokers', when the leader moved while the first one was asked.
        is_there = (partition.target.changes_count, partition.target.offset) == (asked.changes_count, offset)
        remedy = fetch_remedy_for(data.error_code)
        if remedy is not FetchRemedy.PROCEED:
            if is_there:
                self._mend(node_id, partition, offset, data, remedy)
            return
        if data.diverging_epoch.end_offset >= 0:
            if is_there:
                self._doubt(partition)
            return
        # Where the log ends is told once in a session, so it is taken from every answer.
        partition.log.end_offset = known(data.high_watermark)
        partition.log.last_stable_offset = known(
            data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        )
        partition.log.begin_offset = known(data.log_start_offset)
        partition.log.heard_at_ms = received_at_ms
        if not is_there:
            return
        partition.log.received_at_ms = received_at_ms
        self._note_opened(partition)
        if data.preferred_read_replica >= 0:
            partition.target.preferred_replica = data.preferred_read_replica
            partition.target.preferred_until_ms = received_at_ms + PREFERRED_REPLICA_MS
            self._context.fetchable.pulse()
        if data.records:
            self._buffer(node_id, asked, data)
        elif not partition.target.batch_bytes:  # else it may be that only the room for its long batch was missing
            partition.heal()

    def _buffer(self, node_id: int, asked: Asked, data: PartitionData) -> None:
        assert data.records is not None
        partition, offset = asked.partition, asked.fetch_offset
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        records = standing_alone(data.records)
        acknowledge = _Acknowledge(self._context, partition.ledger)
        decoder = self._decoder(partition, records, offset, aborted, self._settings, acknowledge)
        if decoder.incomplete_batch_bytes:
            self._ask_for_whole(node_id, asked, decoder.incomplete_batch_bytes, len(records))
            return
        partition.heal()
        extent = extent_of(records, offset)
        partition.target.is_broken = extent.end is None
        partition.target.offset = offset if extent.end is None else extent.end
        partition.put(decoder, extent.epochs)

    def _ask_for_whole(self, node_id: int, asked: Asked, batch_bytes: int, received_bytes: int) -> None:
        """The answer has only a part of its first batch: as much is asked for as that batch says to be long.

        A broker that follows KIP-74 gives the first batch whole then. One that does not, or a damaged length, would be
        asked for the same for ever: so from the second time on with backoff, and told.
        """
        partition, offset, is_again = asked.partition, asked.fetch_offset, asked.partition.target.batch_bytes > 0
        partition.target.batch_bytes = batch_bytes
        if not is_again:
            return
        tp, setting = partition.tp, self._context.config.max_partition_fetch_bytes
        why = (
            f"its batch says that it takes {batch_bytes} bytes, and {received_bytes} of them came although "
            f"{asked.max_bytes} were asked for (max_partition_fetch_bytes={setting}, raised where a batch needs more)"
        )
        partition.target.error = why
        partition.back_off(now_ms(), self._context.config)
        self._context.tell(events.FetchFailed(node_id, tp.topic, tp.partition, f"offset {offset}: {why}"))
        if partition.target.failures_count > 1:  # once it may be that others took the room of the answer
            partition.fail(RecordTooLargeError(tp, offset, batch_bytes, why))

    def _note_opened(self, partition: Lane) -> None:
        self._context.delivery.opened[partition.tp] = partition

    def _decoder(self, partition: Lane, *settings: Any) -> PartitionDecoder:  # noqa: ANN401 (of PartitionDecoder)
        return PartitionDecoder(partition.tp, *settings)

    def _mend(self, node_id: int, partition: Lane, offset: int, data: PartitionData, remedy: FetchRemedy) -> None:
        context, config, tp = self._context, self._context.config, partition.tp
        row = lookup(data.error_code)
        partition.target.error = row.name
        context.tell(events.FetchFailed(node_id, tp.topic, tp.partition, row.name))
        # Whoever leads now decides; the preference may have ended while the answer was on its way.
        follower = node_id != context.link.cluster.leader(tp)
        if partition.target.preferred_replica != UNKNOWN:
            partition.target.preferred_replica = UNKNOWN
            context.fetchable.pulse()  # another fetcher has it now
        if remedy is FetchRemedy.OUT_OF_RANGE and not follower:
            self._out_of_range(partition, offset)
            return
        if remedy is FetchRemedy.NOT_AUTHORIZED:
            context.inbox.put(TopicAuthorizationError([tp.topic]))
            context.changed.pulse()
        partition.back_off(now_ms(), config)
        if remedy is not FetchRemedy.BACK_OFF:
            self._refresher.want()

    def _doubt(self, partition: Lane) -> None:
        """Only told to who says `last_fetched_epoch`, as we do not; but never to be passed over."""
        partition.doubt()
        partition.back_off(now_ms(), self._context.config)
        self._context.positions_wanted.pulse()

    def _out_of_range(self, partition: Lane, offset: int) -> None:
        """The leader says so. Only what is at the position counts: behind it, records are still to be delivered."""
        assert isinstance(partition, Partition)
        if partition.buffer.pieces or (partition.buffer.slice is not None and partition.position != offset):
            partition.back_off(now_ms(), self._context.config)
            return
        # The low-water mark of a token (KIP-333): what the log still holds behind it is nobody's but ours to read.
        is_low_water = offset == partition.committed and is_ours(partition.committed_metadata)
        policy = EARLIEST if is_low_water else self._policy
        if policy.kind == "none":
            partition.stick(OffsetOutOfRangeError(partition.tp, offset))
            self._context.changed.pulse()
            return
        self._context.delivery.forget([partition])
        self._positions.reset(partition, policy, why=f"offset {offset} is out of range")


def standing_alone(records: bytes | memoryview) -> bytes | memoryview:
    """A copy where it is needed, or the smallest slice would keep the whole answer in memory."""
    whole_bytes = memoryview(records.obj).nbytes if isinstance(records, memoryview) else len(records)
    return bytes(records) if len(records) < ALONE_SHARE * whole_bytes else records


def known(offset: int) -> int | None:
    """-1 on the wire is "not known", never an offset to measure to."""
    return offset if offset >= 0 else None


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
