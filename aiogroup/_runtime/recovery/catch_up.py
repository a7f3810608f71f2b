"""The catch-up lanes of a consumer, which read beside its live lanes (KIP-333), and the tasks that watch them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final
from weakref import WeakSet

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.fetching.truncation import leader_of
from aiogroup._core.recovery.lane_starts import Recovery
from aiogroup._core.recovery.partition_lanes import PartitionLanes
from aiogroup._core.recovery.progress import LOOK_MS
from aiogroup._core.recovery.ranges import count
from aiogroup._core.recovery.token import ID_BYTES, LogId, make_id
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import FETCH_FAILED, Failures
from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.loop.clock import Signal, now_ms, wall_ms
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.leader_offsets import EARLIEST, LeaderOffsets
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError
from aiogroup.structs import OffsetAndTimestamp, TopicPartition

__all__ = ["CatchUp"]

LOG_STARTS: Final = "looking up where logs begin"
LOG_START_MS: Final = 60_000
"""How often leaders are asked for the start of the log, to see whether retention comes close to pending ranges."""


def _lanes_of(live: Partition) -> PartitionLanes | None:
    return live.lanes if isinstance(live.lanes, PartitionLanes) else None


class CatchUp:
    """The catch-up lanes of all assigned partitions. It is the `LanesOwner` of each partition's lanes."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        failures: Failures,
        fetched: LaneTable[RangeCursor],
        offsets: LeaderOffsets,
    ) -> None:
        self.fetched = fetched
        self.wanted = Signal()
        self.config = config
        self._link = link
        self._assignment = assignment
        self.delivery = delivery
        self._changes = changes
        self._emit = emit
        self._failures = failures
        self._offsets = offsets
        self._begun: WeakSet[PartitionLanes] = WeakSet()
        self._is_share_out_due = False
        self._caught_up_count = 0  # partitions, since `_catching_up_since_ms`
        self._catching_up_since_ms: int | None = None
        self._doubted: set[TopicPartition] = set()  # their cursors are out of range

    @property
    def lanes(self) -> list[PartitionLanes]:
        return [each for partition in self._assignment if (each := _lanes_of(partition)) is not None]

    def is_catching_up(self) -> bool:
        """Whether a catch-up lane has work."""
        self.delivery.settle()
        return any(each.book.is_catching_up for each in self.lanes)

    # The owner of lanes.

    def now_ms(self) -> int:
        return now_ms()

    def wall_ms(self) -> int:
        return wall_ms()

    def fresh_id(self) -> str:
        return make_id(secrets.token_bytes(ID_BYTES))

    def emit(self, event: Event) -> None:
        self._emit(event)

    def move_live(self, live: Partition, offset: int, leader_epoch: int, *, is_seek: bool) -> None:
        delivery, leader = self.delivery, leader_of(self._link.cluster, live.tp)
        if is_seek:
            delivery.seek(live, offset, leader_epoch=leader_epoch, leader=leader)
        else:
            delivery.forget([live])
            live.start_at(offset, leader_epoch=leader_epoch, leader=leader)

    def on_moved(self) -> None:
        self.share_out()

    def share_out(self) -> None:
        """Do so once for all lanes that move in one step: a seek may move thousands, and each share depends on all."""
        self._is_share_out_due = True
        self.wanted.pulse()

    def _share_out(self) -> None:
        """Divide one bound among the live lanes that wait for catch-up lanes.

        Each lane may fill only half of its share, because an answer to a request that was already sent may still come.
        """
        self._is_share_out_due = False
        waiting = [each for each in self._assignment if each.waits_for_range]
        for each in waiting:
            each.target.bound(max(1, self.config.parallel_buffer_bytes // (2 * len(waiting))))

    def drop(self, lanes: PartitionLanes) -> None:
        self._begun.discard(lanes)

    # The lanes of an assignment.

    def has_begun(self, live: Partition) -> bool:
        return _lanes_of(live) is not None

    def begin(self, live: Partition, log_id: LogId, recovery: Recovery) -> None:
        """Begin the lanes of an assigned partition where `recovery` says. Nothing is read before `follow`."""
        live.lanes = lanes = PartitionLanes(self, live, log_id, recovery)
        self._begun.add(lanes)
        pending = recovery.pending
        if pending:
            if self._catching_up_since_ms is None:
                self._catching_up_since_ms = now_ms()
            spans = tuple((each.start, each.end) for each in pending)
            self.emit(
                events.CatchUpStarted(
                    live.tp.topic, live.tp.partition, spans, recovery.live, count(pending), recovery.id
                )
            )

    def follow(self) -> None:
        """Follow a change of the assignment: read owned partitions, and close the cursors of the others."""
        for lanes in tuple(self._begun):
            is_ours = self._assignment.get(lanes.live.tp) is lanes.live
            if is_ours and not lanes.is_owned:
                lanes.is_owned = True
                lanes.fetch_next()
            elif not is_ours and lanes.is_owned:
                lanes.close()
        self._share_out()
        self.wanted.pulse()

    def doubt(self, tp: TopicPartition) -> None:
        """A fetch was out of range: ask where the log begins."""
        self._doubted.add(tp)
        self.wanted.pulse()

    def fetch_next(self, live: Partition) -> None:
        """A range may be fetched to its end: go on with the next one."""
        lanes = _lanes_of(live)
        if lanes is not None:
            lanes.fetch_next()

    async def run(self) -> None:
        """Emit events for ranges that are done, and let live lanes that waited for them go on."""
        while True:
            if self._is_share_out_due:
                self._share_out()
            lanes = self._unfinished
            self.delivery.settle()
            for each in lanes:
                each.note_done()
                self._caught_up_count += each.is_done
            if not self._unfinished:
                self._tell_caught_up()
            if [each for each in self.lanes if each.let_live_go_on()]:
                self._share_out()
                self._changes.tell(Change.POSITION)
            await self.wanted.wait(now_ms() + LOOK_MS if lanes else None)

    def _tell_caught_up(self) -> None:
        count, since_ms = self._caught_up_count, self._catching_up_since_ms
        self._caught_up_count, self._catching_up_since_ms = 0, None
        if count and since_ms is not None:
            self.emit(events.CaughtUp(count, now_ms() - since_ms))

    async def run_log_starts(self) -> None:
        """Notice what retention removes. A task of its own: a frozen leader must not delay the events of `run`."""
        asked_at_ms = now_ms()
        while True:
            lanes = self._unfinished
            is_due = bool(lanes) and now_ms() - asked_at_ms >= LOG_START_MS
            if is_due or self._doubted:
                asked_at_ms = now_ms() if is_due else asked_at_ms
                await self._ask_log_starts(self._doubted | {each.live.tp for each in lanes if is_due})
                continue  # lanes may have begun meanwhile
            await self.wanted.wait(asked_at_ms + LOG_START_MS if lanes else None)

    @property
    def _unfinished(self) -> list[PartitionLanes]:
        return [each for each in self.lanes if not each.is_done]

    async def _ask_log_starts(self, tps: set[TopicPartition]) -> None:
        self._doubted.clear()
        until_ms = now_ms() + self.config.request_timeout_ms
        read_committed = self.config.read_committed
        try:
            await self._offsets.ask_leaders(
                dict.fromkeys(tps, EARLIEST), until_ms, self._note_log_starts, read_committed=read_committed
            )
        except AiogroupError as error:
            self.emit(events.FetchFailed(-1, None, None, f"{LOG_STARTS}: {error}"))
        else:
            self._failures.end(FETCH_FAILED, -1, why=LOG_STARTS)

    def _note_log_starts(self, found: Mapping[TopicPartition, OffsetAndTimestamp]) -> None:
        self.delivery.settle()
        for tp, start in found.items():
            live = self._assignment.get(tp)
            lanes = None if live is None else _lanes_of(live)
            if lanes is not None and lanes.live.state is not PositionState.COMMITTED:
                lanes.raise_log_start(start.offset)
        self.wanted.pulse()  # perhaps nothing is pending any more
