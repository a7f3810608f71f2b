"""The fetchers: one task per broker keeps that broker's partitions buffered, within bounds."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import anyio
from aiokafka.structs import TopicPartition

from aiogroup.cluster import Cluster
from aiogroup.config import parse_reset_policy
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
)
from aiogroup.fetching.decode import DecodeSettings, PartitionDecoder
from aiogroup.fetching.extent import extent_of
from aiogroup.fetching.planner import RESPONSE_FLOOR_BYTES, WAIT_MIN_MS, FetchPlan, node_for, plan_fetch
from aiogroup.fetching.position import PREFERRED_REPLICA_MS, UNKNOWN, Partition
from aiogroup.fetching.remedies import FetchRemedy, fetch_remedy_for
from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.protocol.errors import lookup
from aiogroup.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiogroup.runtime.clock import now_ms
from aiogroup.runtime.context import Context
from aiogroup.runtime.link import FETCH
from aiogroup.runtime.positions import Positions
from aiogroup.runtime.refresher import Refresher
from aiogroup.telemetry import events

__all__ = ["Fetchers"]

BY_NAME: Final = 12
"""The last version of Fetch that names topics."""
TURN_BYTES: Final = 512 * 1024
"""So much of an answer is copied before the loop runs; a smaller answer is there as a whole or not at all."""
LOOK_MS: Final = 1_000
OVERDUE_MS: Final = 3_000


class Fetchers:
    """Starts and ends one fetcher per broker that leads, or is preferred for, an assigned partition."""

    def __init__(self, context: Context, refresher: Refresher, positions: Positions) -> None:
        self._context = context
        self._refresher = refresher
        self._positions = positions
        self._running: dict[int, anyio.CancelScope] = {}
        self._in_flight_bytes = 0
        self._is_awaited = False  # a fetcher waits for what another one's request holds
        self._sent_at_ms: dict[int, int] = {}
        config = context.config
        self._policy = parse_reset_policy(config.auto_offset_reset)
        self._new_policy = parse_reset_policy(config.new_partition_reset)
        self._settings = DecodeSettings(
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
        )

    async def run(self) -> None:
        """Watch which brokers matter."""
        while True:
            now, cluster = now_ms(), self._context.link.cluster
            nodes = {node_for(each, cluster, now) for each in self._context.assignment}
            if UNKNOWN in nodes:
                self._refresher.want()
            nodes.discard(UNKNOWN)
            for node_id in nodes - self._running.keys():
                self._running[node_id] = self._context.supervisor.spawn(f"fetcher {node_id}", self._run_one, node_id)
            for node_id in self._running.keys() - nodes:
                self._running.pop(node_id).cancel()
            self._look_for_silent_brokers(now)
            await self._context.fetchable.wait(now + LOOK_MS)

    def _look_for_silent_brokers(self, now: int) -> None:
        """A fetch that is long overdue: perhaps its broker froze and leads no more; do not wait for the time-out."""
        limit_ms = self._context.config.fetch_max_wait_ms + OVERDUE_MS
        if any(now - sent_at_ms > limit_ms for sent_at_ms in self._sent_at_ms.values()):
            self._refresher.want()

    async def run_inflater(self) -> None:
        """Decompress big batches in a worker thread: the loop goes on meanwhile."""
        delivery = self._context.delivery
        queue = delivery.to_inflate
        while True:
            if not queue:
                await self._context.inflate_wanted.wait()
                continue
            partition = queue.popleft()
            if partition.buffer and partition.buffer[0].needs_inflate():
                delivery.inflating = partition.buffer[0]
                try:
                    await asyncio.to_thread(partition.buffer[0].inflate)
                finally:
                    delivery.inflating = None
            self._context.changed.pulse()

    async def _run_one(self, node_id: int) -> None:
        context, config = self._context, self._context.config
        wait_ms = WAIT_MIN_MS
        drained_count = failures_count = 0
        while True:
            plan = plan_fetch(node_id, context.assignment, context.link.cluster, config, self._share_bytes(), now_ms())
            self._is_awaited = self._is_awaited or plan.is_blocked
            if not plan.partitions:
                await context.fetchable.wait(plan.wake_at_ms)
                continue
            if self._begins_anew(plan):
                continue
            # A partition with a full buffer may be drained any moment: do not stay away from it for long. While the
            # application drains nothing wait longer each time, or we would ask for nothing fifty times a second.
            is_draining = drained_count != context.delivery.drained_count
            drained_count = context.delivery.drained_count
            wait_ms = WAIT_MIN_MS if is_draining or not plan.full_count else wait_ms * 2
            limit_ms = min(wait_ms, config.fetch_max_wait_ms) if plan.full_count else config.fetch_max_wait_ms
            wait_ms = min(wait_ms, config.fetch_max_wait_ms)
            if await self._fetch(node_id, plan, limit_ms):
                failures_count = 0
                continue
            failures_count += 1
            self._refresher.want()
            until_ms = now_ms() + config.backoff_ms(failures_count)
            while now_ms() < until_ms:
                await context.fetchable.wait(until_ms)

    def _begins_anew(self, plan: FetchPlan) -> bool:
        """A topic that was deleted and made anew has other records at the same offsets: a position means nothing."""
        any_anew = False
        for partition in plan.partitions:
            info = self._context.link.cluster.topics.get(partition.tp.topic)
            if info is None or info.topic_id == ZERO_UUID:
                continue
            is_anew = partition.topic_id not in (None, info.topic_id)
            partition.topic_id = info.topic_id
            if is_anew:
                any_anew = True
                self._context.delivery.forget([partition])
                self._positions.reset(partition, self._new_policy, why="the topic was deleted and made anew")
        return any_anew

    def _share_bytes(self) -> int:
        """What is free for one of the brokers that are not asked now: a quiet one must not hold the room of all."""
        waiting_count = max(1, len(self._running) - len(self._sent_at_ms))
        free_bytes = self._free_bytes()
        return max(free_bytes // waiting_count, min(free_bytes, RESPONSE_FLOOR_BYTES))

    def _free_bytes(self) -> int:
        bound = self._context.config.max_buffered_bytes - self._in_flight_bytes
        free_bytes = bound - sum(each.buffered_bytes for each in self._context.assignment)
        if free_bytes >= RESPONSE_FLOOR_BYTES:
            return free_bytes
        # What paused partitions keep must not starve the others: it is fetched again when they are resumed.
        for partition in self._context.assignment:
            if partition.is_paused and partition.buffer:
                partition.drop_buffer()
        return bound - sum(each.buffered_bytes for each in self._context.assignment)

    async def _fetch(self, node_id: int, plan: FetchPlan, wait_ms: int) -> bool:
        """One request and its answer; False when the broker did not give one."""
        context = self._context
        asked = {each.tp: (each, each.changes_count, each.fetch_offset) for each in plan.partitions}
        request, at_most = self._request(plan, wait_ms)
        for partition in plan.partitions:
            partition.is_fetching = True
        self._in_flight_bytes += plan.max_bytes
        self._sent_at_ms[node_id] = now_ms()
        try:
            response = await context.link.send(node_id, request, FETCH, at_most=at_most)
            if response.error_code:
                context.tell(events.FetchFailed(node_id, None, None, lookup(response.error_code).name))
                return False
            await self._take_answer(node_id, response, asked)
            return True
        except (AuthenticationFailedError, ConsumerStoppedError):
            raise
        except AiogroupError as error:
            context.tell(events.FetchFailed(node_id, None, None, str(error)))
            return False
        finally:
            context.changed.pulse()  # once, so that a waiting request sees all partitions and takes turns
            self._in_flight_bytes -= plan.max_bytes
            self._sent_at_ms.pop(node_id, None)
            for partition in plan.partitions:
                partition.is_fetching = False
            if self._is_awaited:
                self._is_awaited = False
                context.fetchable.pulse()

    def _request(self, plan: FetchPlan, wait_ms: int) -> tuple[FetchRequest, int | None]:
        config, cluster = self._context.config, self._context.link.cluster
        topics: dict[str, list[FetchPartition]] = defaultdict(list)
        for partition in plan.partitions:
            topics[partition.tp.topic].append(
                FetchPartition(
                    partition=partition.tp.partition,
                    current_leader_epoch=_epoch(cluster, partition.tp),
                    fetch_offset=partition.fetch_offset,
                    partition_max_bytes=max(config.max_partition_fetch_bytes, partition.fetch_bytes),
                )
            )
        ids = {name: info.topic_id for name, info in cluster.topics.items() if name in topics}
        have_ids = len(ids) == len(topics) and ZERO_UUID not in ids.values()
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max(plan.max_bytes, *(each.fetch_bytes for each in plan.partitions)),
            isolation_level=int(config.read_committed),
            topics=tuple(
                FetchTopic(topic=name, topic_id=ids.get(name, ZERO_UUID), partitions=tuple(partitions))
                for name, partitions in topics.items()
            ),
            rack_id=config.client_rack or "",
        )
        return request, None if have_ids else BY_NAME

    # The answer.

    async def _take_answer(
        self,
        node_id: int,
        response: FetchResponse,
        asked: Mapping[TopicPartition, tuple[Partition, int, int]],
    ) -> None:
        """Partition by partition, letting the loop run between them: the answer may hold megabytes."""
        turn_bytes = 0
        names = {info.topic_id: name for name, info in self._context.link.cluster.topics.items()}
        single = sum(len(topic.partitions) for topic in response.responses) == 1
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition, changes_count, offset = asked.get(TopicPartition(name, data.partition_index), (None, 0, 0))
                # An answer to where the partition was before a seek, a reset or a revocation says nothing.
                if partition is not None and partition.changes_count == changes_count:
                    self._take_partition(node_id, partition, offset, data, copy=not single)
                    turn_bytes += len(data.records or b"")
                    if turn_bytes >= TURN_BYTES:
                        turn_bytes = 0
                        await asyncio.sleep(0)

    def _take_partition(
        self, node_id: int, partition: Partition, offset: int, data: PartitionData, *, copy: bool
    ) -> None:
        remedy = fetch_remedy_for(data.error_code)
        if remedy is not FetchRemedy.PROCEED:
            self._mend(node_id, partition, offset, data, remedy)
            return
        now = now_ms()
        partition.failures_count = 0
        partition.received_at_ms = now
        partition.end_offset = data.high_watermark
        partition.last_stable_offset = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        partition.begin_offset = max(0, data.log_start_offset)
        self._context.delivery.opened[partition.tp] = partition
        if data.preferred_read_replica >= 0:
            partition.preferred_replica = data.preferred_read_replica
            partition.preferred_until_ms = now + PREFERRED_REPLICA_MS
            self._context.fetchable.pulse()
        if data.records:
            self._buffer(partition, offset, data, copy=copy)

    def _buffer(self, partition: Partition, offset: int, data: PartitionData, *, copy: bool) -> None:
        assert data.records is not None
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        # A copy of its own, or the smallest slice would keep the whole answer in memory.
        records = bytes(data.records) if copy else data.records
        decoder = PartitionDecoder(
            partition.tp, records, offset, aborted, self._settings, _Acknowledge(self._context, partition)
        )
        if decoder.incomplete_batch_bytes:
            partition.fetch_bytes = decoder.incomplete_batch_bytes
            return
        partition.fetch_bytes = 0
        extent = extent_of(records, offset)
        partition.is_broken = extent.end is None
        partition.fetch_offset = offset if extent.end is None else extent.end
        partition.put(decoder, extent.epochs)

    def _mend(self, node_id: int, partition: Partition, offset: int, data: PartitionData, remedy: FetchRemedy) -> None:
        context, config, tp = self._context, self._context.config, partition.tp
        row = lookup(data.error_code)
        context.tell(events.FetchFailed(node_id, tp.topic, tp.partition, row.name))
        # Whoever leads now decides; the preference may have ended while the answer was on its way.
        follower = node_id != context.link.cluster.leader(tp)
        partition.preferred_replica = UNKNOWN
        if remedy is FetchRemedy.OUT_OF_RANGE and not follower:
            self._out_of_range(partition, offset)
            return
        if remedy is FetchRemedy.NOT_AUTHORIZED:
            context.inbox.put(TopicAuthorizationError([tp.topic]))
            context.changed.pulse()
        partition.back_off(now_ms(), config)
        if remedy is not FetchRemedy.BACK_OFF:
            self._refresher.want()

    def _out_of_range(self, partition: Partition, offset: int) -> None:
        """The leader says so. Only what is at the position counts: behind it, records are still to be delivered."""
        if partition.buffer or (partition.slice is not None and partition.position != offset):
            partition.back_off(now_ms(), self._context.config)
            return
        if self._policy.kind == "none":
            partition.stick(OffsetOutOfRangeError(partition.tp, offset))
            self._context.changed.pulse()
            return
        self._context.delivery.forget([partition])
        self._positions.reset(partition, self._policy, why=f"offset {offset} is out of range")


def _epoch(cluster: Cluster, tp: TopicPartition) -> int:
    """KIP-320: a broker that knows a newer leader than we, or an older one, refuses instead of answering."""
    info = cluster.partition(tp)
    return UNKNOWN if info is None else info.leader_epoch


class _Acknowledge:
    """What `record.ack()` calls: one per fetched piece, so that a record needs no place for its partition."""

    __slots__ = ("_context", "_partition")

    def __init__(self, context: Context, partition: Partition) -> None:
        self._context = context
        self._partition = partition

    def __call__(self, record: object) -> None:
        self._context.delivery.settle()
        self._partition.ledger.ack(record.offset)  # type: ignore[attr-defined]
        self._context.group_changed.pulse()
