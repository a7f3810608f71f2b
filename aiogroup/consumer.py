"""The public class `Consumer`, with aiokafka's names where the concept is the same."""

from __future__ import annotations

import asyncio
import re
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack, overload

import anyio

from aiogroup._core.fetching.epochs import NO_EPOCH
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.truncation import leader_of
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.following import Cause
from aiogroup._core.offsets.commit_plan import CommitEntry
from aiogroup._core.offsets.named_offsets import MAX_OFFSET, Offsets, read_offsets
from aiogroup._core.subscription import Subscription, check_partition, check_partitions
from aiogroup._core.telemetry.counts import Counts
from aiogroup._core.telemetry.event import Observer
from aiogroup._core.telemetry.figures import FiguresInSteps
from aiogroup._core.telemetry.health import GroupMetadata, Health, HealthStatus, Since
from aiogroup._core.telemetry.meter import ConsumerObserver
from aiogroup._core.telemetry.record_observer import record_observers
from aiogroup._core.typed import Generic, K, V
from aiogroup._runtime.build import build
from aiogroup._runtime.delivery.merged import Merged, MergeSettings
from aiogroup._runtime.delivery.paused import Paused
from aiogroup._runtime.delivery.readers import is_request
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.figures import figures_of, metrics_of
from aiogroup._runtime.group import Group
from aiogroup._runtime.inside import Inside
from aiogroup._runtime.inspection import health_of
from aiogroup._runtime.loop.clock import are_done, now_ms, running_loop, wall_ms
from aiogroup._runtime.loop.supervisor import load_anyio, start_task
from aiogroup._runtime.offsets.leader_offsets import EARLIEST, LATEST, epoch_before
from aiogroup._runtime.shutdown import Shutdown, StopReport
from aiogroup._runtime.telemetry.log import Log
from aiogroup._runtime.telemetry.observers import Observers, checked_observers
from aiogroup.assignors.foreign import resolve
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    ConfigError,
    ConsumerStoppedError,
    IllegalStateError,
    TimestampError,
    named,
)
from aiogroup.listener import AnyListener, check_listener
from aiogroup.records import CatchUpProgress, Lag, PartitionLag, Record, Records
from aiogroup.settings import ConsumerSettings, SettingsBesideDeserializers
from aiogroup.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = ["Consumer"]

PYTEST_PLUGIN: Final = "aiogroup_pytest"
"""Where it is loaded it is told of each consumer, as a test must not leave one running."""


class Consumer(Generic[K, V]):
    """Reads topics as a member of a consumer group, or alone without `group_id`.

    Positional arguments are topics to subscribe to; the settings are those of `ConsumerConfig`, in Kafka's names and
    milliseconds. `listener` serves every subscription that has no listener of its own. `observers` get every
    telemetry event; those with `begin_record` see each record, too. A consumer belongs to one event loop.

    For type checkers a consumer is a `Consumer[K, V]`, by what its deserializers return: see docs/typing.md.

    Raises:
        ConfigError: a setting is unknown, out of range or contradicts another, or an observer has no `on_event`.
        InvalidTopicError: Kafka would refuse a topic's name.
        TypeError: the listener has none of the callbacks.
    """

    # By which deserializers are given. The first is also for settings in a mapping, of which that is not known.

    @overload
    def __init__(
        self,
        *topics: str,
        listener: AnyListener | None = None,
        observers: Iterable[Observer] = (),
        key_deserializer: Callable[[bytes], K] | None,
        value_deserializer: Callable[[bytes], V] | None,
        **settings: Unpack[SettingsBesideDeserializers],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[K, bytes],
        *topics: str,
        listener: AnyListener | None = None,
        observers: Iterable[Observer] = (),
        key_deserializer: Callable[[bytes], K],
        value_deserializer: None = None,
        **settings: Unpack[SettingsBesideDeserializers],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes, V],
        *topics: str,
        listener: AnyListener | None = None,
        observers: Iterable[Observer] = (),
        key_deserializer: None = None,
        value_deserializer: Callable[[bytes], V],
        **settings: Unpack[SettingsBesideDeserializers],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes, bytes],
        *topics: str,
        listener: AnyListener | None = None,
        observers: Iterable[Observer] = (),
        key_deserializer: None = None,
        value_deserializer: None = None,
        **settings: Unpack[SettingsBesideDeserializers],
    ) -> None: ...

    def __init__(
        self,
        *topics: str,
        listener: AnyListener | None = None,
        observers: Iterable[Observer] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self.config = ConsumerConfig.of(**settings)
        self._assignors = resolve(self.config.partition_assignment_strategy)
        check_listener(listener)
        self._listener = listener
        self._subscription = Subscription()
        # No bound method of ours: what the tasks hold must not keep a forgotten consumer from being noticed.
        checked = checked_observers(observers)
        self._watching: tuple[ConsumerObserver, ...] = ()
        self._counts = Counts()
        log = Log(self.config.group_id, self.config.client_id)
        own = [self._own(each) for each in checked]
        self._observers = Observers(log, (self._counts, *own))
        self._record_observers = record_observers(checked)
        self._emit = self._observers.emit
        self._engine: Engine | None = None
        self._starting: Engine | None = None
        self._stopping: asyncio.Future[StopReport] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since = Since()
        # The request for records whose offsets were made fit for a transaction, and the ownerships that they are of.
        self._given_to_transaction: tuple[int, frozenset[tuple[TopicPartition, int]]] = (-1, frozenset())
        if topics:
            self._subscription.subscribe(topics, None, listener)
        load_anyio()
        if (plugin := sys.modules.get(PYTEST_PLUGIN)) is not None:
            plugin.on_consumer_made(self)

    # Life.

    async def start(self) -> None:
        """Connect, and join the group if topics are subscribed; returns when partitions are assigned.

        Another member may hold its records for long: after `request_timeout_ms` it returns without an assignment,
        which then comes while records are waited for. If this is cancelled while it joins, the consumer is stopped.

        Raises:
            ConsumerStoppedError: it is, or was meanwhile, stopped.
            ConnectionLostError, KafkaTimeoutError, ProtocolError: no bootstrap server answered.
            AuthenticationFailedError: one refused the credentials.
            GroupError, GroupAuthorizationError: the group refused the member.
        """
        self._check_not_stopped()
        if self._engine is not None or self._starting is not None:
            raise IllegalStateError("the consumer was started already")
        self._loop = asyncio.get_running_loop()
        engine = self._starting = build(
            self.config, self._assignors, self._subscription, self._emit, self._record_observers
        )
        try:
            for each in self._watching:
                engine.measure(each.meter)
            await engine.start()
            self._engine = engine
            for each in self._watching:
                each.on_start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await engine.close()
            raise
        finally:
            self._starting = None
        try:
            await engine.group.wait_for_assignment(now_ms() + self.config.request_timeout_ms)
        except BaseException:
            with anyio.CancelScope(shield=True):  # a scope of anyio would cancel this, too, and the member would stay
                await self.stop(timeout_ms=1_000)
            raise

    async def stop(
        self, timeout_ms: int = 20_000, *, drain: bool = True, leave_group: bool | None = None
    ) -> StopReport:
        """Hand over, commit what is processed, leave the group, close; never longer than `timeout_ms`.

        The default ends within the 30 s that Kubernetes gives a pod (`terminationGracePeriodSeconds`).
        With `drain` a record that another task holds may be finished first, for at most half of the time-out. A record
        whose task has ended, perhaps after it passed the record on, is not waited for: it is in the report, and comes
        again. Where no error is under way the event `records_left_in_hand` warns of what is left.
        `leave_group` overrides that dynamic members leave and static ones keep their name (KIP-345). Any later stop
        returns the first one's report, or says that it had not ended in the later one's time-out. Whoever is cancelled
        here leaves the stop running, which ends in its time-out, and its events say how.

        Raises:
            IllegalStateError: called inside a rebalance callback.
            TypeError: not a time-out.
        """
        _check_timeout(timeout_ms, "stop")
        if self._is_in_callback:
            raise IllegalStateError("stop() cannot be called inside a rebalance callback; return from it first")
        self._check_loop()
        # A stop that was cancelled before its first step has done nothing.
        if self._stopping is not None and not self._stopping.cancelled():
            if not await are_done([self._stopping], timeout_ms):
                return StopReport(problems=("an earlier stop() with a longer time-out: not done in time",))
            return self._stopping.result()
        engine = self._engine or self._starting
        if engine is None:
            self._stopping = asyncio.get_running_loop().create_future()
            self._stopping.set_result(StopReport())
        else:
            has_failed = sys.exc_info()[0] is not None  # as in `finally`, or at the end of `async with`
            shutdown = Shutdown(engine, timeout_ms, drain=drain, leave_group=leave_group, has_failed=has_failed)
            self._stopping = start_task("stop", shutdown.run)
        return await asyncio.shield(self._stopping)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()

    @property
    def _runs_in(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which it was started, until somebody stops it."""
        is_begun = self._engine is not None or self._starting is not None
        return self._loop if is_begun and self._stopping is None else None

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and self._stopping is None:
            engine.group.abandon()
            if (plugin := sys.modules.get(PYTEST_PLUGIN)) is not None:
                plugin.on_consumer_forgotten(self)
            warn(f"a Consumer was forgotten without stop(): {self!r}", ResourceWarning, source=self, stacklevel=1)

    def __repr__(self) -> str:
        state = "stopped" if self._stopping is not None else "new" if self._engine is None else "running"
        return f"<Consumer group={self.config.group_id!r} topics={sorted(self.subscription())} {state}>"

    # Records.

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        """Iterate over records. The record that an earlier loop left in hand comes again; see `skip`.

        The loop ends when the consumer is stopped; a new one then raises ConsumerStoppedError.
        """
        engine = self._iterated()
        if engine is None:
            return self  # `__anext__` says what to do
        engine.requests.iterate()
        return engine.handling.over(engine.delivery.cursor)

    @is_request
    async def __anext__(self) -> Record[K, V]:
        self._check_loop()
        engine = self._started()
        return await engine.handling.one(anext(engine.delivery.cursor))

    def merged(
        self,
        max_task_idle_ms: int = 0,
        timestamp: Callable[[Record[K, V]], int] | None = None,
        buffered_records_per_partition: int = 1_000,
        *,
        stalled: Literal["wait", "raise"] = "wait",
        on_bad_timestamp: Callable[[Record[K, V], TimestampError], object] | None = None,
    ) -> Merged[K, V]:
        """Iterate over the records of all assigned partitions in the order of their timestamps (KIP-695).

        The iterator has `stream_time`, and what it `enforced`, `late` and is `waiting_for`. Everything else is as in
        `async for record in consumer`. `pause` leaves a partition out.

        Args:
            max_task_idle_ms: how long a partition without a record holds the others up: -1 never; 0 until the broker
                says that it has none; above 0 that many milliseconds longer, in which producers may write one.
            timestamp: another time than the record's own, in whole milliseconds from 0 on.
            buffered_records_per_partition: a partition with this many buffered records is not fetched further.
            stalled: what happens when no broker says anything good of a partition for `default_api_timeout_ms`. The
                event `merge_stalled` is emitted; "raise": and MergeStalledError raised, after which one may ask again.
            on_bad_timestamp: called with a record without a good timestamp, and the error; then it is skipped. Without
                it TimestampError is raised.

        Raises:
            ConfigError: an argument is out of range, or no function; or `enable_parallel_rebalance`, whose backlog has
                other times than the head.
        """
        if self.config.enable_parallel_rebalance:
            raise ConfigError(
                "merged() cannot keep the order with enable_parallel_rebalance: its backlog comes beside new records"
            )
        settings = MergeSettings(max_task_idle_ms, timestamp, buffered_records_per_partition, stalled, on_bad_timestamp)
        return Merged(settings, self.config, self._started, self._iterated)

    @is_request
    async def getone(self, *partitions: TopicPartition) -> Record[K, V]:
        """The next record, of these partitions if any are named; waits for one.

        Raises:
            ConsumerStoppedError: the consumer is, or was meanwhile, stopped.
            ConcurrentConsumptionError: another request is waiting, or another task that still runs holds a record that
                this request would mark as processed.
            RecordDeserializationError, OffsetOutOfRangeError, LogTruncationError, NoOffsetForPartitionError: `seek` to
                go on.
            TopicAuthorizationError: add the ACL; PollIntervalExceeded: ask again, if `raise_on_poll_interval`.
            IllegalStateError: nothing is subscribed or assigned, a named partition is not assigned (or, while this
                waited, none of them was any more), or called inside a rebalance callback.
        """
        engine = self._asked(partitions)
        return await engine.handling.one(engine.requests.one(self._named(partitions)))

    @is_request
    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Records[K, V]:
        """Records by partition, at most `max_records` (`max_poll_records` by default).

        Waits at most `timeout_ms` milliseconds for the first; empty when none came. Raises as `getone`, and:
            TypeError, ValueError: not a time-out, or not a number of records.
        """
        _check_timeout(timeout_ms, "getmany")
        limit = self._limit(max_records)
        engine = self._asked(partitions)
        return await engine.handling.batch(engine.requests.batch(max(0, timeout_ms), limit, self._named(partitions)))

    @is_request
    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> Records[K, V]:
        """As `getmany`; without a time-out it waits until there are records. See `Records.metadata` (KIP-695)."""
        if timeout_ms is not None:
            _check_timeout(timeout_ms, "poll")
        limit = self._limit(max_records)
        engine = self._asked()
        return await engine.handling.batch(engine.requests.batch(timeout_ms, limit, frozenset()))

    async def skip(self, *partitions: TopicPartition) -> None:
        """Go on after what is in hand, which counts as processed, and after a poison record.

        That is the one whose RecordDeserializationError (or TimestampError) the last request for records raised; of a
        damaged batch, all of it. With `partitions`, as where each has a worker of its own, only these are meant, with
        all of their records in hand. Without, records that another task still handles are left to it.

        With `auto_ack=False` no record in hand counts as processed by this: only `record.ack()` says so.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        engine = self._running()
        engine.requests.skip(frozenset(self._owned(tp).tp for tp in partitions))

    # Offsets.

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Make offsets durable: those given (the next to process), or all that was delivered.

        "All" is of all tasks: what another task still handles counts as processed too, and is lost if that task fails.
        Where several tasks have records in hand, give the offsets of your own, or use `auto_ack=False` and
        `record.ack()`.

        With `auto_ack=False` "all" is what was acknowledged, gap-free. In a rebalance callback it is what is processed:
        a record in hand is left out. Cancelling leaves the commit on its way.

        A commit is bound to the ownership that each partition has when `commit` is called, and to no later one. A given
        offset may be any, also one that was not delivered: the group goes on from there. To name it says that all
        before it is processed, in this ownership or an earlier one.

        With two lanes (`enable_parallel_rebalance`) records before an offset may be pending. So a given offset must be
        one up to which a lane was delivered in this ownership. When a partition was just assigned again, its lanes are
        looked up first, and the commit waits for that.

        A `stop` that waits for what another task handles (`drain`) still takes that task's commits.

        Raises:
            CommitFailedError: some partitions belong to another member now (`not_owned`); the others are committed.
            RebalanceInProgressError, KafkaTimeoutError, ConnectionLostError: not done in `default_api_timeout_ms`;
                commit again.
            BrokerError: the coordinator refuses it, as where the topic is deleted.
            IllegalStateError: a partition is not assigned, or nothing is subscribed: after `unsubscribe` what is still
                owned is committed, until the group has it back.
            IllegalOperation: there is no group.
            ValueError, TypeError: not offsets, or no lane delivered up to there. Nothing is sent.
        """
        engine = self._running(lets_commit=True)
        await engine.handling.commit(self._commit(engine, offsets), offsets)

    async def _commit(self, engine: Engine, offsets: Offsets | None) -> None:
        group = engine.group.needed_for("commit")
        if offsets is None:
            assignment = engine.assignment
            if self._subscription.is_empty and not (assignment or assignment.failed_commit or self._is_in_callback):
                raise IllegalStateError("commit: Not subscribed to any topics; what was given up cannot be committed")
            await group.committer.commit(None, self.config.default_api_timeout_ms)
        else:
            until_ms = now_ms() + self.config.default_api_timeout_ms
            bound = engine.named_offsets.bind(offsets, self._why_not_assigned)
            await engine.named_offsets.decided(bound, until_ms)
            await group.committer.commit(engine.named_offsets.entries(bound), until_ms - now_ms())

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition, `None` where there is none; asks the coordinator.

        Raises:
            IllegalOperation: there is no group.
            AiogroupError: no answer in `default_api_timeout_ms`, or refused.
            TypeError, ValueError: not a partition.
        """
        check_partition(partition, "committed")
        self._running()
        until_ms = now_ms() + self.config.default_api_timeout_ms
        found = await self._grouped("committed").committer.committed.fetch([partition], until_ms)
        committed = found[partition]
        return None if committed is None else committed.offset

    async def position(self, partition: TopicPartition) -> int:
        """The next offset that could be delivered; waits while it is looked up.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: not known in `default_api_timeout_ms`.
        """
        engine = self._running()
        return await engine.offset_queries.position(self._owned(partition))

    def seek(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        lane: Literal["live", "catch-up"] | None = None,
        drop_pending: bool = False,
    ) -> None:
        """The next record of the partition is at `offset`; what is in hand of it is taken back, not processed.

        With two lanes (`enable_parallel_rebalance`) it moves the one that `offset` lies in, or `lane`; the other goes
        back to what it has not processed. Below where the live lane began everything from `offset` on is read again
        beside it. `drop_pending`, or a seek in `on_partitions_assigned`, leaves one lane, from `offset` on.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: `offset` is no number from 0 to 2^63 - 1, or `lane` does not go there. Where it is not known yet
                where the lanes begin, the next request for records raises it.
        """
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"seek: the offset is a whole number between 0 and {MAX_OFFSET}, not {offset!r}")
        if lane not in (None, "live", "catch-up"):
            raise ValueError(f"seek: lane={lane!r}; 'live' or 'catch-up'")
        if lane == "catch-up" and not self.config.enable_parallel_rebalance:
            raise ValueError("seek: lane='catch-up' needs enable_parallel_rebalance=True")
        self._move(self._owned(partition), offset, lane=lane, drop_pending=drop_pending)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """To the first offset of these partitions, all assigned ones by default. Raises as `end_offsets`."""
        return await self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """To the offset after the last record (the last stable one under `read_committed`). Raises as `end_offsets`."""
        return await self._seek_to(partitions, LATEST)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """To the committed offsets, fetched again. What is in hand of a partition without one is taken
        back. Raises as `committed`.
        """
        engine = self._running()
        owned = [self._owned(tp) for tp in partitions or engine.self_assignment.names]
        group = self._grouped("seek_to_committed")
        until_ms = now_ms() + self.config.default_api_timeout_ms
        numbers = [each.ownership for each in owned]
        found = await group.committer.committed.fetch([each.tp for each in owned], until_ms) if owned else {}
        engine.delivery.settle()
        for partition in engine.self_assignment.still(owned, numbers):
            committed = found[partition.tp]
            if committed is not None and engine.positions.is_of_former_topic(partition.tp, committed):
                continue
            move = partial(self._move, partition, keeps_buffer=committed is None)
            partition.lanes.return_to_durable(committed, move=move)
        return {tp: None if each is None else each.offset for tp, each in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition, from its leader. Raises as `end_offsets`."""
        return await self._offsets_at(partitions, EARLIEST, "beginning_offsets")

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition (the last stable one under `read_committed`).

        Raises:
            KafkaTimeoutError: a leader did not answer in `default_api_timeout_ms`.
            UnknownTopicOrPartitionError: no such partition in that time.
            TopicAuthorizationError: add the ACL.
            TypeError, ValueError: not a list of partitions.
        """
        return await self._offsets_at(partitions, LATEST, "end_offsets")

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp (ms) is not before the given one; `None` where there is none.

        Raises as `end_offsets`, and:
            ValueError: a timestamp is below 0, or more than 2^63 - 1.
        """
        if not isinstance(timestamps, Mapping):
            raise TypeError(
                f"offsets_for_times: a mapping of TopicPartition to timestamp is needed, not {timestamps!r}"
            )
        check_partitions(timestamps, "offsets_for_times")
        for tp, at in timestamps.items():
            if not isinstance(at, int) or isinstance(at, bool):
                raise TypeError(f"offsets_for_times: the timestamp of {tp} is {at!r}; whole milliseconds are needed")
            if not 0 <= at <= MAX_OFFSET:
                raise ValueError(
                    f"offsets_for_times: the timestamp of {tp} is {at}; it must lie between 0 and {MAX_OFFSET}"
                )
        found = await self._running().offset_queries.list_offsets(dict(timestamps))
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    # Lag.

    @overload
    async def lag(self, *, detail: Literal[False] = False) -> int: ...

    @overload
    async def lag(self, *, detail: Literal[True]) -> Lag: ...

    async def lag(self, *, detail: bool = False) -> int | Lag:
        """The lag of all assigned partitions as one number, asked of the brokers now; `lags()` asks nobody.

        It counts the records between the positions and the ends. One request to each broker, however many partitions it
        leads. With `detail` a `Lag`: by lane, and of each partition how old the answer is.

        Raises:
            IllegalStateError: nothing is assigned.
            AiogroupError: a leader did not answer in `default_api_timeout_ms`, or a position is not known yet.
        """
        engine = self._running()
        if not engine.assignment:
            raise IllegalStateError("nothing is assigned: there is no lag to measure")
        lag = await engine.offset_queries.lag()
        return lag if detail else lag.total

    def current_lag(self, partition: TopicPartition) -> int | None:
        """The lag by what is known locally, at once; `None` while the position or the end is not known (KIP-695).

        If the end is not known, it is asked for in the background, for a later call. `lags(detail=True)` also says how
        old the knowledge is.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._running().offset_queries.current_lag(self._owned(partition))

    @overload
    def lags(self, *, detail: Literal[False] = False) -> dict[TopicPartition, int | None]: ...

    @overload
    def lags(self, *, detail: Literal[True]) -> dict[TopicPartition, PartitionLag]: ...

    def lags(self, *, detail: bool = False) -> dict[TopicPartition, int | None] | dict[TopicPartition, PartitionLag]:
        """The lag of each assigned partition as it is known here, at once; `await lag()` asks the brokers for the sum.

        These are the numbers of `current_lag`: `None` while a position or an end is not known. With `detail` also how
        old the knowledge of each end is.
        """
        engine = self._running()
        partitions = list(engine.assignment)
        lags = {each.tp: engine.offset_queries.current_lag(each) for each in partitions}
        if not detail:
            return lags
        now, heard = now_ms(), {each.tp: engine.fetchers.heard_at_ms(each) for each in partitions}
        ages = {tp: None if at_ms is None else now - at_ms for tp, at_ms in heard.items()}
        return {tp: PartitionLag(lag, ages[tp]) for tp, lag in lags.items()}

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as the last fetch answer said, `None` before the first."""
        return self._owned(partition).log.end_offset

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The last stable offset as the last fetch answer said, `None` before the first."""
        return self._owned(partition).log.last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a fetch of the partition was last answered, also without news of it, in milliseconds since the epoch.

        `None` before the first answer.
        """
        answered_at_ms = self._running().fetchers.answered_at_ms(self._owned(partition))
        return None if answered_at_ms is None else wall_ms() - (now_ms() - answered_at_ms)

    # What is read.

    def subscribe(
        self,
        topics: Iterable[str] | None = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: AnyListener | None = None,
    ) -> None:
        """Read these topics, or all whose names begin with a match of the pattern (`re.match`), from now on.

        The change is made in the background. Without a `listener` the constructor's is used. A record in hand is not
        waited for: it comes again when its partition is read again, unless you call `commit()` before
        (docs/delivery.md). The same subscription with the same listener changes nothing: the topics are only looked up
        again, so that a new match is found at once.

        Raises:
            IllegalStateError: partitions were assigned with assign(), or called inside a rebalance callback.
            InvalidTopicError: Kafka would refuse a topic's name.
            ConfigError, TypeError: not topics, not a pattern, or not a listener.
        """
        self._check_outside_callback("subscribe")
        self._check_alive()
        is_another = self._subscription.subscribe(
            () if topics is None else topics, pattern, self._listener if listener is None else listener
        )
        if is_another:
            self._follow(Cause.SUBSCRIBE)
        elif self._engine is not None:
            self._engine.refresher.want()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; no group decides, and none of its members hears of it.

        Raises:
            IllegalStateError: topics are subscribed, or called inside a rebalance callback.
            TypeError, ValueError, InvalidTopicError: not a list of partitions.
        """
        self._check_outside_callback("assign")
        self._check_alive()
        if self.config.enable_parallel_rebalance:
            raise IllegalStateError(
                "assign() and enable_parallel_rebalance=True: commits of what no group assigned are not fenced; use "
                "subscribe(), or leave the mode off"
            )
        self._subscription.assign(partitions)
        self._follow(Cause.ASSIGN)

    def unsubscribe(self) -> None:
        """Read nothing; leaves the group in the background.

        Raises:
            IllegalStateError: called inside a rebalance callback.
        """
        self._check_outside_callback("unsubscribe")
        self._check_alive()
        self._subscription.clear()
        self._follow(Cause.UNSUBSCRIBE)

    def subscription(self) -> frozenset[str]:
        """The topics that are read, those that match the pattern now."""
        return self._subscription.names()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        if self._engine is None or self._subscription.is_empty:
            return self._subscription.assigned
        return self._engine.assignment.names

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver nothing of these partitions until `resume`, or until they are given up; what is buffered is kept.

        A rebalance gives all partitions up unless the assignor is cooperative. To keep some paused, pause them again in
        `on_partitions_assigned`.
        """
        for partition in [self._owned(tp) for tp in partitions]:
            partition.pause(Bar.PAUSED)
        self._running().delivery.interrupt()

    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver again what `pause` paused."""
        for partition in [self._owned(tp) for tp in partitions]:
            partition.pause(Bar.PAUSED, when=False)
        self._running().delivery.interrupt()

    def paused(self, *partitions: TopicPartition) -> Paused:
        """The paused ones of the assigned partitions, or of these. `async with consumer.paused():` pauses them.

        That block is for the time in which something that the application needs is down. It delivers nothing of these
        partitions, or of all if none is named, also of those that are assigned meanwhile. It keeps the membership, as
        if records were asked for: heartbeats, rebalances and callbacks go on, and `max_poll_interval_ms` does not run.
        It marks nothing as processed: a record in hand stays in hand. Its end, also by an error or a cancellation,
        delivers again what it paused; what `pause` paused stays paused. Blocks may be nested.

        A record that is in hand in the block is not waited for by a rebalance or by `stop`, as nobody processes it: if
        its partition is given up meanwhile, it comes again at the next owner. With `auto_ack=False`, where it is not
        known which task holds a record, that goes for all that is in hand of these partitions: name those of your own.

        Raises:
            IllegalStateError: a named partition is not assigned; or the block is entered inside a rebalance callback.
            ConsumerStoppedError: the consumer is stopped; also when the block is entered.
        """
        meant = self._running().self_assignment
        asked = [self._owned(tp).tp for tp in partitions] or meant.names
        paused = (tp for tp in asked if (each := meant.partition(tp)) is not None and each.is_paused)
        return Paused(paused, lambda: self._running().requests.paused(frozenset(partitions)))

    async def topics(self) -> frozenset[str]:
        """Every topic that this principal may see, asked of a broker now.

        Raises:
            ConnectionLostError, KafkaTimeoutError, ProtocolError: no broker answered in `request_timeout_ms`; ask
                again.
        """
        cluster = await self._running().refresher.all_topics()
        return frozenset(
            n for n, i in cluster.topics.items() if not (i.is_internal and self.config.exclude_internal_topics)
        )

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """The partition numbers of a topic, `None` while it is not known."""
        info = self._running().link.cluster.topics.get(topic)
        return None if info is None else frozenset(info.partitions)

    # The group.

    async def enforce_rebalance(self, why: str = "enforce_rebalance") -> None:
        """Ask the group for a new round (KIP-568); returns at once. During a rebalance it does nothing.

        `why` goes into the broker's log (KIP-800).

        Raises:
            IllegalOperation: there is no group.
        """
        coordinator = self._grouped("enforce_rebalance").coordinator
        if not coordinator.membership.is_rebalancing:
            coordinator.handle(f.RejoinWanted(f.Why(f.Reason.OTHER, why)))

    def child_consumer_is_alive(self) -> bool:
        """Whether a catch-up lane has work (KIP-333's childConsumerIsAlive); afterwards it is on standby."""
        return self._running().recovery.is_catching_up()

    def lanes(self) -> dict[TopicPartition, CatchUpProgress]:
        """How far the catch-up lanes are, by partition; empty without `enable_parallel_rebalance` (KIP-333)."""
        engine = self._running()
        engine.delivery.settle()
        found = {each.tp: each.lanes.progress() for each in engine.assignment}
        return {tp: progress for tp, progress in found.items() if progress is not None}

    def offsets_for_transaction(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a transaction must commit for the group so that `offsets`, the next to process, become durable.

        With two lanes a record's own offset is not the group's: it would pass what is pending. Give the result, with
        `group_metadata()`, to the producer's `send_offsets_to_transaction`. After an aborted transaction call
        `seek_to_committed`. Of no offsets, as of a lane without a record in this batch, it makes none.

        Raises:
            CommitFailedError: the topic was deleted and recreated, and the offset is of the old one.
            IllegalStateError: a partition is not assigned, or it came back and where it goes on is not known yet: its
                offsets are of an earlier ownership. Abort the transaction, and ask for records.
            IllegalOperation: there is no group.
            ValueError, TypeError: not offsets, or no lane delivered up to there.
        """
        engine, _ = self._running(), self._grouped("offsets_for_transaction")
        entries: dict[TopicPartition, CommitEntry] = {}
        asked_count, given = self._given_to_transaction
        if asked_count != engine.requests.asked_count:
            given = frozenset()
        if offsets != {}:
            owned = [self._owned(tp) for tp in read_offsets(offsets)]
            bound = engine.named_offsets.bind(offsets, self._why_not_assigned)
            if undecided := engine.named_offsets.undecided(bound):
                raise IllegalStateError(
                    f"offsets_for_transaction(): it is not known yet where {named([each.tp for each in undecided])} go "
                    "on, so these offsets are of an earlier ownership: abort the transaction, and ask for records; "
                    "theirs come again"
                )
            entries = engine.named_offsets.entries(bound)
            engine.assignment.refuse_former(entries)
            given |= {(each.tp, each.ownership) for each in owned}
        self._given_to_transaction = (engine.requests.asked_count, given)
        return {tp: OffsetAndMetadata(entry.offset, entry.metadata) for tp, entry in entries.items()}

    def group_metadata(self) -> GroupMetadata:
        """Who this member is now: what a transaction needs to commit for it (KIP-447).

        Raises:
            IllegalOperation: there is no group.
            IllegalStateError: ranges are pending, or it is not known yet whether some are, and
                `offsets_for_transaction` was not called for this batch, or its partitions were given up or lost since:
                a transaction that commits a record's own offset would pass over them (KIP-333).
        """
        group, engine = self._grouped("group_metadata"), self._running()
        if not self._is_given_to_transaction(engine):
            if undecided := engine.named_offsets.undecided_of_all():
                raise IllegalStateError(
                    f"group_metadata(): it is not known yet where {named(undecided)} go on, and whether ranges are "
                    "pending, which a record's own offset would pass over: abort the transaction, and ask for records"
                )
            if self.child_consumer_is_alive():
                raise IllegalStateError(
                    "group_metadata(): ranges are pending, which a record's own offset would pass over: commit what "
                    "offsets_for_transaction() makes of this batch's offsets"
                )
        who = group.coordinator.identity
        return GroupMetadata(who.group_id, who.generation, who.member_id, who.instance_id)

    def health(self) -> Health:
        """How the consumer is, from what is known locally: for /livez and /readyz."""
        ending = None
        if self._stopping is not None:
            ending = HealthStatus.STOPPED if self._stopping.done() else HealthStatus.STOPPING
        return health_of(self._engine, ending, self._since, is_starting=self._starting is not None)

    def metrics(self) -> dict[str, float | int | None]:
        """Figures, under Java's names in snake case where it has them; `None` is "not known", never 0."""
        self._check_not_stopped()
        return metrics_of(self._started(), self.figures())

    def inside(self) -> Inside | None:
        """A look inside, for pages such as `aiogroup.asgi`'s; `None` before the start and after the stop.

        What it shows may change from one release to the next.
        """
        is_over = self._stopping is not None and self._stopping.done()
        return None if self._engine is None or is_over else Inside(self._engine)

    def observe(self, observer: Observer) -> None:
        """Give each event from now on to this observer too, after those of the constructor; it does not see records.

        Raises:
            ConfigError: it has no `on_event(event)`, or one that is async.
        """
        for each in checked_observers((observer,)):
            before = self._watching
            self._observers.add(self._own(each))
            for watching in self._watching[len(before) :]:
                for engine in filter(None, (self._engine, self._starting)):
                    engine.measure(watching.meter)
                if self._engine is not None and self._stopping is None:
                    watching.on_start()

    def figures(self) -> FiguresInSteps:
        """All figures for exporters such as `aiogroup.prometheus`, read in steps: run it as a generator to its end.

        Between two steps the event loop may run. May also be called before the start and after `stop`.
        """
        return figures_of(self._engine, self.config, self._counts, self.health())

    # What several calls need.

    def _own(self, observer: Observer) -> Observer:
        """The observer itself, or the one that it has for this consumer alone."""
        of_consumer = getattr(type(observer), "of_consumer", None)  # of the class: a mock has every attribute
        if of_consumer is None:
            return observer
        own: ConsumerObserver = of_consumer(observer, self)
        self._watching = (*self._watching, own)
        return own

    def _started(self) -> Engine:
        if self._engine is None:
            self._check_not_stopped()
            raise IllegalStateError("the consumer is not started: await start(), or use 'async with'")
        return self._engine

    def _iterated(self) -> Engine | None:
        self._check_loop()
        self._check_not_stopped()
        return self._engine

    def _running(self, *, lets_commit: bool = False) -> Engine:
        """A stop that waits for what the application handles `lets_commit` that, too."""
        self._check_loop()
        engine = self._engine
        if engine is not None and lets_commit and engine.stopping.is_draining:
            return engine
        if engine is None or self._stopping is not None or engine.inbox.fatal is not None:
            self._check_alive()
            return self._started()
        return engine

    def _asked(self, partitions: tuple[TopicPartition, ...] = ()) -> Engine:
        """As `_running`, for requests for records."""
        if self._engine is not None and self._engine.stopping.is_stopped:
            self._engine.requests.ask_too_late(frozenset(partitions))
        return self._running()

    def _check_loop(self) -> None:
        try:
            here = running_loop()
        except RuntimeError:
            return  # no loop runs here: the call is one that waits for nothing
        if self._loop not in (None, here):
            raise IllegalStateError(
                f"this consumer was started in another event loop, {self._loop!r}, and is used in {here!r}: its "
                "sockets and tasks belong to the first. Make a consumer in each loop, or call it by "
                "asyncio.run_coroutine_threadsafe(consumer.getone(), loop)"
            )

    def _check_not_stopped(self) -> None:
        if self._stopping is not None and not self._is_in_callback:
            raise ConsumerStoppedError("the consumer is stopped: make a new one")

    @property
    def _is_in_callback(self) -> bool:
        engine = self._engine or self._starting
        return engine is not None and engine.callback_runs.is_in_callback

    def _check_outside_callback(self, call: str) -> None:
        if self._is_in_callback:
            raise IllegalStateError(f"{call}() cannot be called inside a rebalance callback; return from it first")

    def _check_alive(self) -> None:
        self._check_not_stopped()
        if self._engine is not None and self._engine.inbox.fatal is not None and not self._is_in_callback:
            self._engine.inbox.raise_fatal()

    def _grouped(self, call: str) -> Group:
        return self._running().group.needed_for(call)

    def _owned(self, tp: TopicPartition) -> Partition:
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"a TopicPartition is needed, not {tp!r}")
        partition = self._running().self_assignment.partition(tp)
        if partition is None:
            raise IllegalStateError(f"Partition {tp} is not assigned to this consumer; see assignment()")
        return partition

    def _named(self, partitions: tuple[TopicPartition, ...]) -> frozenset[TopicPartition]:
        """A rebalance may be about to bring what is not assigned: the request itself waits for its end."""
        if partitions:
            check_partitions(partitions, "partitions")
            if self._running().group.is_settled():
                for tp in partitions:
                    self._owned(tp)
        return frozenset(partitions)

    def _limit(self, max_records: int | None) -> int | None:
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError(f"max_records must be at least 1, not {max_records!r}")
        return max_records if max_records is not None else self.config.max_poll_records

    def _follow(self, cause: Cause) -> None:
        if self._engine is not None:
            self._engine.delivery.close_cursor()
            self._engine.following.follow(cause)

    def _move(
        self,
        partition: Partition,
        offset: int,
        leader_epoch: int = NO_EPOCH,
        *,
        lane: Literal["live", "catch-up"] | None = None,
        drop_pending: bool = False,
        keeps_buffer: bool = True,
    ) -> None:
        engine = self._running()
        is_first = Bar.NEW in partition.bars and self._is_in_callback
        again = partial(self._move_if_still, partition, offset, lane=lane, drop_pending=drop_pending or is_first)
        if engine.positions.is_recovering(partition, again):
            return
        move = partial(
            engine.delivery.seek,
            partition,
            leader_epoch=leader_epoch,
            leader=leader_of(engine.link.cluster, partition.tp),
            keeps_buffer=keeps_buffer,
        )
        why = "a seek in on_partitions_assigned" if is_first else "seek with drop_pending"
        partition.lanes.seek(offset, lane, move=move, drop_pending=drop_pending or is_first, why=why)

    def _move_if_still(self, partition: Partition, offset: int, **how: Any) -> None:  # noqa: ANN401 (of _move)
        """Carry out a seek that waited until the lanes were known.

        The positions task calls this and must not end by it: the application's next request raises the error.
        """
        inbox = self._started().inbox
        try:
            if self._running().self_assignment.is_still(partition):
                self._move(partition, offset, **how)
        except ValueError as error:
            inbox.put(error)

    async def _seek_to(self, partitions: tuple[TopicPartition, ...], mark: int) -> bool:
        engine = self._running()
        owned = [self._owned(tp) for tp in partitions or engine.self_assignment.names]
        numbers = [each.ownership for each in owned]
        found = await engine.offset_queries.list_offsets({each.tp: mark for each in owned})
        for partition in engine.self_assignment.still(owned, numbers):
            at = found[partition.tp]
            self._move(partition, at.offset, epoch_before(at) if mark == LATEST else NO_EPOCH)
        return True

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], mark: int, call: str
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(check_partitions(partitions, call), mark)
        found = await self._running().offset_queries.list_offsets(wanted)
        return {tp: each.offset for tp, each in found.items()}

    def _is_given_to_transaction(self, engine: Engine) -> bool:
        """`offsets_for_transaction` was called for this batch, and what it spoke of is still ours."""
        asked_count, given = self._given_to_transaction
        is_owned = engine.assignment.is_owned_since
        return asked_count == engine.requests.asked_count and all(is_owned(*each) for each in given)

    def _why_not_assigned(self, tp: TopicPartition) -> str:
        if self._subscription.is_empty:
            return "Not subscribed to any topics"
        if not self.assignment():
            return "No partitions assigned yet"
        return f"Partition {tp} is not assigned to this consumer; see assignment()"


def _check_timeout(timeout: object, call: str) -> None:
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool):
        raise TypeError(f"{call}: timeout_ms is a number of milliseconds, not {timeout!r}")
