"""The catch-up lanes of a consumer, which read beside its live lanes (KIP-333), and the tasks that watch them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakSet

from aiogroup.errors import AiogroupError
from aiogroup.fetching.assignment import LaneTable
from aiogroup.fetching.partition import Partition, PositionState
from aiogroup.fetching.range_cursor import RangeCursor
from aiogroup.recovery.ranges import count
from aiogroup.recovery.recovery import Recovery
from aiogroup.recovery.token import Place
from aiogroup.runtime.context import Context
from aiogroup.runtime.loop.clock import Signal, now_ms
from aiogroup.runtime.metadata.refresher import EARLIEST, Refresher
from aiogroup.runtime.recovery.lanes import LOOK_MS, PartitionLanes
from aiogroup.structs import OffsetAndTimestamp, TopicPartition
from aiogroup.telemetry import events

__all__ = ["CatchUp"]

LOG_START_MS: Final = 60_000
"""How often leaders are asked for the start of the log, to see whether retention comes near to pending ranges."""


class CatchUp:
    """The catch-up lanes of all assigned partitions."""

    def __init__(self, context: Context, assignment: LaneTable[RangeCursor], refresher: Refresher) -> None:
        self.context = context
        self.assignment = assignment
        self.wanted = Signal()
        self.is_handed_off = context.config.parallel_handoff
        self.is_ordered = context.config.parallel_order == "ordered"
        self._refresher = refresher
        self._begun: WeakSet[PartitionLanes] = WeakSet()
        self._doubted: set[TopicPartition] = set()  # their cursors are out of range

    def settle(self) -> None:
        self.context.delivery.settle()

    @property
    def lanes(self) -> list[PartitionLanes]:
        return [each.lanes for each in self.context.assignment if each.lanes is not None]

    @property
    def is_catching_up(self) -> bool:
        self.settle()
        return any(each.book.is_catching_up for each in self.lanes)

    def begin(self, live: Partition, place: Place, recovery: Recovery) -> None:
        """Begin the lanes of an assigned partition where `recovery` says."""
        live.lanes = lanes = PartitionLanes(self, live, place, recovery)
        self._begun.add(lanes)
        pending = recovery.pending
        if pending:
            spans = tuple((each.start, each.end) for each in pending)
            self.context.tell(
                events.CatchUpStarted(
                    live.tp.topic, live.tp.partition, spans, recovery.live, count(pending), recovery.id
                )
            )
        self.follow()

    def drop(self, lanes: PartitionLanes) -> None:
        self._begun.discard(lanes)

    def share_out(self) -> None:
        """Divide one bound among the live lanes that wait behind catch-up lanes.

        Each may fill half of its part, because an answer to a request already sent may still come.
        """
        waiting = [each for each in self.context.assignment if each.behind is not None]
        for each in waiting:
            each.target.most_bytes = max(1, self.context.config.parallel_buffer_bytes // (2 * len(waiting)))

    def follow(self) -> None:
        """Follow a change of the assignment: read owned partitions, and close the cursors of the others."""
        for lanes in tuple(self._begun):
            is_ours = self.context.assignment.get(lanes.live.tp) is lanes.live
            if is_ours and not lanes.is_owned:
                lanes.is_owned = True
                lanes.fetch_next()
            elif not is_ours and lanes.is_owned:
                lanes.close()
        self.share_out()
        self.wanted.pulse()

    def doubt(self, tp: TopicPartition) -> None:
        """A fetch was out of range: ask where the log begins."""
        self._doubted.add(tp)
        self.wanted.pulse()

    async def run(self) -> None:
        """Tell of ranges that are done, and let live lanes that waited for them go on."""
        while True:
            lanes = self._untold
            self.settle()
            for each in lanes:
                each.look()
            if [each for each in self.lanes if each.let_live_go_on()]:
                self.share_out()
                self.context.fetchable.pulse()
                self.context.changed.pulse()
            await self.wanted.wait(now_ms() + LOOK_MS if lanes else None)

    async def run_log_starts(self) -> None:
        """Notice what retention removes. A task of its own: a frozen leader must not delay the events of `run`."""
        asked_at_ms = now_ms()
        while True:
            lanes = self._untold
            is_due = bool(lanes) and now_ms() - asked_at_ms >= LOG_START_MS
            if is_due or self._doubted:
                asked_at_ms = now_ms() if is_due else asked_at_ms
                await self._ask_log_starts(self._doubted | {each.live.tp for each in lanes if is_due})
                continue  # lanes may have begun meanwhile
            await self.wanted.wait(asked_at_ms + LOG_START_MS if lanes else None)

    @property
    def _untold(self) -> list[PartitionLanes]:
        return [each for each in self.lanes if not each.is_told]

    async def _ask_log_starts(self, tps: set[TopicPartition]) -> None:
        self._doubted.clear()
        until_ms = now_ms() + self.context.config.request_timeout_ms
        read_committed = self.context.config.read_committed
        try:
            await self._refresher.ask_leaders(
                dict.fromkeys(tps, EARLIEST), until_ms, self._note_log_starts, read_committed=read_committed
            )
        except AiogroupError as error:
            self.context.tell(events.FetchFailed(-1, None, None, f"looking up where logs begin: {error}"))

    def _note_log_starts(self, found: Mapping[TopicPartition, OffsetAndTimestamp]) -> None:
        self.settle()
        for tp, start in found.items():
            live = self.context.assignment.get(tp)
            if live is not None and live.lanes is not None and live.state is not PositionState.COMMITTED:
                live.lanes.raise_log_start(start.offset)
        self.wanted.pulse()  # perhaps nothing is pending any more
        self.context.fetchable.pulse()
        self.context.changed.pulse()
