"""The iterator of `Consumer.merged`: records of all assigned partitions in the order of their timestamps (KIP-695)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal, Protocol

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.delivery.merge import NEVER_WAIT, MergeRule, Stall, Waiting
from aiogroup._core.delivery.merging import Merging, OnBadTimestamp, TimestampOf
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.typed import K, V
from aiogroup._core.values import dataclass
from aiogroup._runtime.delivery.handling import HandlingOrNone
from aiogroup._runtime.delivery.readers import is_request
from aiogroup._runtime.delivery.requests import Requests
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.offset_queries import OffsetQueries
from aiogroup.config import RECORDS_PER_TURN, ConsumerConfig
from aiogroup.errors import ConfigError, MergeStalledError
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["MergeSettings", "Merged"]

EMIT_MS: Final = 1_000
"""The shortest interval between two reports that the merge goes on without a partition: with topics that have no
backlog that happens at every record.
"""


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The settings that `Consumer.merged` takes.

    Raises:
        ConfigError: a setting is out of range, or is not a function where one is needed.
    """

    max_task_idle_ms: int = 0
    timestamp: TimestampOf | None = None
    buffered_records_per_partition: int = 1_000
    stalled: Literal["wait", "raise"] = "wait"
    on_bad_timestamp: OnBadTimestamp | None = None

    def __post_init__(self) -> None:
        _check_count("max_task_idle_ms", self.max_task_idle_ms, NEVER_WAIT, "-1 never waits, 0 not for producers")
        _check_count("buffered_records_per_partition", self.buffered_records_per_partition, 1, "the next one is needed")
        if self.stalled not in ("wait", "raise"):
            raise ConfigError(f"merged: stalled={self.stalled!r} must be 'wait' or 'raise'")
        for name in ("timestamp", "on_bad_timestamp"):
            given = getattr(self, name)
            if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
                raise ConfigError(f"merged: {name}={given!r} must be a function, and none that is awaited")


class Running(Protocol):
    """The parts of a started consumer that a merge uses."""

    @property
    def config(self) -> ConsumerConfig: ...
    @property
    def link(self) -> Link: ...
    @property
    def assignment(self) -> Assignment: ...
    @property
    def delivery(self) -> Delivery: ...
    @property
    def changes(self) -> Changes[Signal]: ...
    @property
    def emit(self) -> Emit: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def offset_queries(self) -> OffsetQueries: ...
    @property
    def handling(self) -> HandlingOrNone: ...


class Merged(AsyncIterator[Record[K, V]]):
    """Records of all assigned partitions, the one with the least timestamp first: `async for record in merged`.

    Made by `Consumer.merged`. Records with equal timestamps are ordered by topic and partition; within a partition the
    order is always that of the offsets. A record is processed when the next one is asked for, however many records are
    buffered after it.
    """

    def __init__(
        self,
        settings: MergeSettings,
        config: ConsumerConfig,
        started: Callable[[], Running],
        iterated: Callable[[], Running | None],
    ) -> None:
        self._settings = settings
        self._rule = MergeRule(settings.max_task_idle_ms, config.default_api_timeout_ms)
        self._started = started
        self._iterated = iterated
        self._merging: Merging | None = None
        self._is_closed = False
        self._emitted_at_ms = -EMIT_MS

    def __repr__(self) -> str:
        waiting = ", ".join(f"{tp.topic}-{tp.partition}: {each.state}" for tp, each in self.waiting_for.items())
        counts = f"stream_time={self.stream_time} late={self.late} enforced={self.enforced}"
        return f"<Merged {counts} waiting_for={{{waiting}}}>"

    # What it reports.

    @property
    def stream_time(self) -> int | None:
        """The highest timestamp that was handed out, `None` before the first; it never goes back."""
        self._settle()
        return self._rule.stream_time

    @property
    def late(self) -> int:
        """How many records had a timestamp below the stream time when they were handed out; `record.lateness_ms` says
        by how much.
        """
        self._settle()
        return self._rule.late_count

    @property
    def enforced(self) -> int:
        """How many records were handed out while some partition had no record to compare."""
        self._settle()
        return self._rule.enforced_count

    @property
    def waiting_for(self) -> Mapping[TopicPartition, Waiting]:
        """The partitions that the merge waited for at the last request, each with its state and since when."""
        return self._rule.waiting_for

    # Records.

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """As `Consumer.__aiter__`: the record that an earlier loop left in hand is delivered again."""
        running = self._iterated()
        if running is None or self._is_closed:
            return self  # `__anext__` raises an error that says what to do
        running.requests.iterate()
        return running.handling.over(self._begun(running).cursor)

    @is_request
    async def __anext__(self) -> Record[K, V]:
        """The next record by time.

        Raises:
            StopAsyncIteration: the consumer was stopped, or this iterator was closed. MergeStalledError: with
            `stalled="raise"`, no broker answered for a partition within `default_api_timeout_ms`; ask again to wait on.
            TimestampError: a record has no usable timestamp: `seek` past it, or pass `on_bad_timestamp`.
        and the errors of `Consumer.getone`. A partition that cannot go on raises its error at each request until it is
        moved by `seek`, or left out by `pause`: without its next record the order is not known.
        """
        running = self._started()
        return await running.handling.one(anext(self._begun(running).cursor))

    async def aclose(self) -> None:
        """Hand out no more records, and buffer as without a merge. Records in hand stay in hand."""
        self._is_closed = True
        if self._merging is not None:
            self._started().requests.end_merge()

    def _begun(self, running: Running) -> Merging:
        if self._merging is None:
            config, settings = running.config, self._settings
            self._merging = Merging(
                running.assignment,
                running.delivery,
                self._rule,
                records_per_turn=RECORDS_PER_TURN,
                read_committed=config.read_committed,
                timestamp=settings.timestamp,
                on_bad_timestamp=settings.on_bad_timestamp,
            )
            self._merging.cursor.wait = self._next
        return self._merging

    @is_request
    async def _next(self) -> Record[Any, Any]:
        if self._is_closed:
            raise StopAsyncIteration
        running = self._started()
        requests, merging = running.requests, self._begun(running)

        def decode_ahead() -> bool:
            requests.turn.begin()
            return merging.decode_ahead(requests.turn.has_time)

        def take() -> Record[Any, Any] | None:
            now = now_ms()
            record = merging.open(now, requests.turn.left_ns(), requests.turn.has_time)
            running.assignment.need_any(when=record is None and self._rule.needs_records)
            if record is None:
                self._wait(running, now)
            elif merging.is_enforced:
                self._emit_enforced(running, now)
            return record

        return await requests.next_merged(
            take,
            decode_ahead,
            lambda: self._rule.wake_at_ms,
            enough_count=self._settings.buffered_records_per_partition,
        )

    # Waiting.

    def _wait(self, running: Running, now: int) -> None:
        """Ask for the lags and records that the merge waits for, and report partitions that take too long."""
        assignment = running.assignment
        if assignment.tally.needs_records:
            running.changes.tell(Change.FETCHABLE)
        for tp in self._rule.unknown:
            running.offset_queries.want_end(assignment[tp])
        stalls = self._rule.take_stalls(now)
        reasons = [f"{each.tp.topic}-{each.tp.partition} is {each.state} ({_why(running, each)})" for each in stalls]
        for each in stalls:
            tp = each.tp
            running.emit(
                events.MergeStalled(tp.topic, tp.partition, each.state.value, each.blocked_ms, _why(running, each))
            )
        if stalls and self._settings.stalled == "raise":
            raise MergeStalledError(
                f"no good answer for default_api_timeout_ms, so nothing can be merged: {', '.join(reasons)}. Ask again "
                "to wait on, or pause() these partitions to go on without them",
                partitions=[each.tp for each in stalls],
            )

    def _emit_enforced(self, running: Running, now: int) -> None:
        if now - self._emitted_at_ms >= EMIT_MS:
            self._emitted_at_ms = now
            running.emit(events.MergeEnforced(self._rule.missing, self._rule.enforced_count))

    def _settle(self) -> None:
        if self._merging is not None:
            self._merging.settle()


def _why(running: Running, stall: Stall) -> str:
    """The latest news of a partition that blocks the merge."""
    partition = running.assignment.get(stall.tp)
    if running.link.cluster.leader(stall.tp) < 0:
        return "no leader is known"
    if partition is not None and partition.target.error:
        return partition.target.error
    return "no answer yet"


def _check_count(name: str, given: object, least: int, why: str) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise ConfigError(f"merged: {name}={given!r} must be a whole number from {least} on: {why}")
