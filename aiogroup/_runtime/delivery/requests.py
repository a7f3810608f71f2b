"""The application's requests for records: one at a time, fair to the event loop, and losing nothing when cancelled.

Records are taken in a synchronous step directly before the request returns, so a request that is cancelled while it
waits has taken none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol, TypeVar

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.delivery.needs import Needs
from aiogroup._core.delivery.poison import PoisonBook
from aiogroup._core.delivery.redelivery import Redeliveries
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.blocks import Block
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.delivery.holders import EVERYTHING, Holders
from aiogroup._runtime.delivery.readers import Readers, is_request
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.delivery.turn import Turn
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms, wall_ms
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    ConcurrentConsumptionError,
    ConsumerStoppedError,
    IllegalStateError,
    RecordDeserializationError,
    TimestampError,
    named,
)
from aiogroup.records import PartitionMetadata, Record, Records
from aiogroup.structs import TopicPartition

__all__ = ["GroupForRequests", "Requests"]

T = TypeVar("T")
FEW_COUNT: Final = 16
"""The next request of `async for` does not let the loop run if at most this many records were given since it ran, and
the turn is not over.
"""
BATCH_COUNT: Final = 100_000
"""The most records of a batch without `max_poll_records`; the buffers are bounded too."""
_NONE_NAMED: Final = frozenset[TopicPartition]()


class GroupForRequests(Protocol):
    """The part of the group, or of no group, that every request uses."""

    def may_deliver(self, now: int) -> bool:
        """Whether records may be delivered: not while a rebalance is taking partitions from us, and not if no heartbeat
        was answered for a session.
        """
        ...

    def is_settled(self) -> bool:
        """Whether no rebalance is under way that could still assign missing partitions."""
        ...

    def on_request(self, now: int) -> None:
        """The application asks for records, which proves that it is alive."""
        ...

    def on_answer(self) -> None:
        """The request ended, with records or without."""
        ...


class Requests:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        inbox: Inbox,
        group: GroupForRequests,
        subscription: Subscription,
        callback_runs: CallbackRuns,
        stopping: Stopping,
    ) -> None:
        self.asked_count = 0
        self.last_asked_at_ms: int | None = None
        self.record_ages_ms: dict[str, int] = {}
        """How old the newest record of the last hand-out was, by lane; of `async for` when it asked for the next."""
        self.turn = Turn(link.give_way)
        self.holders = Holders(delivery, auto_ack=config.auto_ack)
        self._config = config
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._inbox = inbox
        self._group = group
        self._subscription = subscription
        self._callback_runs = callback_runs
        self._stopping = stopping
        self._poison = PoisonBook(assignment)
        self._needs = Needs(assignment)
        self._redeliveries = Redeliveries(config, assignment)
        self._asking_of: list[frozenset[TopicPartition]] = []  # what each request under way named; empty: all
        delivery.cursor.wait = self.next

    @is_request
    async def next(self) -> Record[Any, Any]:
        """The next record for `async for` when the cursor is empty; opens the cursor for the records after it.

        Raises:
            StopAsyncIteration: the consumer was stopped.
        """
        if self._stopping.is_stopped:
            self._end_iteration()
        who = self._begin(_NONE_NAMED)
        try:
            turn = self.turn
            turn.given_count += self._delivery.cursor.index
            if turn.given_count > FEW_COUNT or not turn.has_time():
                await turn.end()
            record = await self._wait(self._delivery.open_cursor, None)
            if record is not None:
                self._note_given(who, (record.tp,))
        finally:
            self._end(_NONE_NAMED)
        if record is None:
            raise StopAsyncIteration
        return record

    async def next_merged(
        self,
        take: Callable[[], Record[Any, Any] | None],
        decode_ahead: Callable[[], bool],
        wake_at_ms: Callable[[], int | None],
        *,
        enough_count: int,
    ) -> Record[Any, Any]:
        """The next record of a merge, for which `enough_count` buffered records per partition are enough."""
        if self._stopping.is_stopped:
            self._end_iteration()
        self._redeliveries.put_nothing_off()
        who = self._begin(_NONE_NAMED, enough_count=enough_count)
        try:
            await self.turn.end()
            record = await self._wait(take, None, decode_ahead, wake_at_ms)
            if record is not None:
                self._note_given(who, EVERYTHING)
        finally:
            self._end(_NONE_NAMED)
        if record is None:
            raise StopAsyncIteration
        return record

    def _end_iteration(self) -> NoReturn:
        self._check_outside_callback()
        self.ask_too_late()
        raise StopAsyncIteration

    async def one(self, only: frozenset[TopicPartition]) -> Record[Any, Any]:
        def take() -> Record[Any, Any] | None:
            if only:
                self._check_named(only)
            taken = self._delivery.take(1, only)
            if only:
                self._needs.look(only, is_met=bool(taken))
            for (record,) in taken.values():
                return record
            return None

        who = self._begin(only)
        try:
            if not self.turn.has_room(1):
                await self.turn.end()
            record = await self._wait(take, None)
            self.turn.given_count += 1
            if record is not None:
                self._note_given(who, (record.tp,))
        finally:
            self._end(only)
        if record is None:
            raise ConsumerStoppedError("the consumer was stopped while it waited for a record")
        return record

    async def batch(
        self, timeout: int | None, max_count: int | None, only: frozenset[TopicPartition]
    ) -> Records[Any, Any]:
        """The available records, after waiting at most `timeout` milliseconds for the first."""
        count = max_count if max_count is not None else BATCH_COUNT

        def decode_ahead() -> bool:
            return self._delivery.decode_ahead(count, only)

        def take() -> Records[Any, Any] | None:
            if only:
                self._check_named(only)
            taken = self._delivery.take(count, only)
            if only:
                self._needs.look(only, is_met=bool(taken))
            return Records(taken, self._take_metadata()) if taken else None

        who = self._begin(only)
        try:
            until_ms = None if timeout is None else now_ms() + timeout
            if not self.turn.has_room(count):
                await self.turn.end()
            records = await self._wait(take, until_ms, decode_ahead)
            if records is not None:
                self.turn.given_count += records.count
                self._note_given(who, records)
        finally:
            self._end(only)
        return (
            records if records is not None else Records({}, {} if self._stopping.is_stopped else self._take_metadata())
        )

    def _check_named(self, only: frozenset[TopicPartition]) -> None:
        """Raise if no named partition is ours and no rebalance is under way that could assign one: waiting would be in
        vain.
        """
        if not any(tp in self._assignment for tp in only) and self._group.is_settled():
            raise IllegalStateError(f"not assigned to this consumer: {named(only)}; see assignment()")

    def iterate(self) -> None:
        """A new `async for` begins: the record that an earlier one left in hand is delivered again.

        Raises:
            ConcurrentConsumptionError: another task, which still runs, holds that record.
        """
        self.holders.check()
        delivery = self._delivery
        record = delivery.take_back_iterated()
        if record is not None and delivery.taken_back_from is not None:
            count = self._redeliveries.note(delivery.taken_back_from, record, now_ms())
            if count == 10 ** (len(str(count)) - 1):  # the 1st, 10th, 100th time
                self._emit(events.RecordRedelivered(record.topic, record.partition, record.offset, count))

    def skip(self, only: frozenset[TopicPartition]) -> None:
        """Mark the records in hand as processed, and pass over the poison record: the one that the last request raised,
        or those of the named partitions.

        Without names, records of which another task that still runs is the holder are left to it.
        """
        delivery = self._delivery
        others = set() if only else self.holders.others(only)
        if not others:
            delivery.process_all(only)
        elif own := delivery.in_hand().keys() - others:
            delivery.process_all(own)
        self._poison.pass_over(only, delivery)

    def put_off(self, offsets: Mapping[TopicPartition, int], most_ms: int) -> None:
        """As `Redeliveries.put_off`."""
        self._redeliveries.put_off(offsets, most_ms)

    @contextmanager
    def paused(self, only: frozenset[TopicPartition]) -> Iterator[None]:
        """The application hands itself nothing of these partitions, or of all if none is named: it waits for something
        else, which counts as a request under way. Partitions that come meanwhile are paused too.

        What the running task holds of them is set aside: a rebalance, a callback and a stop do not wait for it. With
        `auto_ack=False` it is not known which task holds a record, and all that is in hand of them is.
        """
        self._check_outside_callback("paused() cannot be waited in")
        assignment, group = self._assignment, self._group
        others = self.holders.others(only)
        mine = (tp for tp in self._delivery.in_hand() if (not only or tp in only) and tp not in others)
        block = Block(only, frozenset(mine))
        self.last_asked_at_ms = now = now_ms()
        group.on_request(now)
        try:
            assignment.blocks.begin(block)
            self._follow_blocks()
            yield
        finally:
            assignment.blocks.end(block)
            self._follow_blocks()
            self.last_asked_at_ms = now_ms()
            group.on_answer()

    def _follow_blocks(self) -> None:
        self._assignment.suspend()
        self._delivery.interrupt()

    def ask_too_late(self, only: frozenset[TopicPartition] = frozenset()) -> None:
        """A request after `stop` gets no records, but marks those in hand as processed: `stop` may be waiting for
        that.
        """
        if not self._callback_runs.is_in_callback and not self.holders.others(only, inherits=False):
            self._delivery.process_all(only)

    def wrap_group(self, wrap: Callable[[GroupForRequests, int], GroupForRequests]) -> None:
        """Let something hear of every request from now on; `wrap` also gets how many are under way."""
        self._group = wrap(self._group, len(self._asking_of))

    def stop(self) -> None:
        self._stopping.stop()
        self._delivery.interrupt()

    def _begin(self, only: frozenset[TopicPartition], *, enough_count: int = 0) -> Readers:
        """Begin a request: the records in hand are processed, and the poll watchdog notes the time. `_end` must follow.

        A request that names partitions affects only those, so that each partition may have a worker of its own.
        """
        config = self._config
        self._check_outside_callback()
        if self._subscription.is_empty:
            self._raise_not_subscribed()
        others = self._asking_of
        if others and config.auto_ack and any(not only or not other or only & other for other in others):
            raise ConcurrentConsumptionError(
                "another request for records is waiting: await one before the next, or use auto_ack=False and "
                "record.ack() for several workers"
            )
        who = self.holders.ask(only)
        self.asked_count += 1
        if enough_count != self._assignment.tally.enough_count:
            self._assignment.limit(enough_count)  # the buffer of each partition, by the kind of the last request
        if config.enable_auto_commit:
            # A loss was reported when it happened, and these commits are not the application's.
            self._assignment.failed_commit.clear()
        self._poison.begin()
        self.last_asked_at_ms = now = now_ms()
        self._needs.begin(only, now)
        if not self._stopping.is_stopped:  # after stop nothing more counts as processed
            self._delivery.process_all(only)
            self._note_ages()
        self._asking_of.append(only)
        self._group.on_request(now)
        return who

    def _end(self, only: frozenset[TopicPartition]) -> None:
        """The request ended: with records, without, by an error or cancelled."""
        self._asking_of.remove(only)
        if only:
            self._needs.end(only, now_ms())
        self._group.on_answer()

    def end_merge(self) -> None:
        self._delivery.close_cursor()
        self._assignment.limit(0)

    def _raise_not_subscribed(self) -> None:
        """A request that is already waiting goes on: another task may be between unsubscribe() and subscribe()."""
        self._inbox.raise_next()
        raise IllegalStateError(
            "Not subscribed to any topics and no partitions assigned: subscribe() or assign() before asking for records"
        )

    def _check_outside_callback(self, what: str = "records cannot be asked for") -> None:
        if self._callback_runs.is_in_callback:
            raise IllegalStateError(f"{what} inside a rebalance callback; return from it first")

    def _note_given(self, who: Readers, places: Iterable[object]) -> None:
        """They were given records of these partitions, in the same step that ends the request."""
        self._callback_runs.given_count += 1
        self._note_ages()
        self.holders.give(who, places)

    def _note_ages(self) -> None:
        """Note how old the newest record is that was handed out since the last call. Once for a slice, not a record."""
        for lane, tally in self._delivery.tallies.items():
            if (timestamp := tally.newest_timestamp) is not None:
                tally.newest_timestamp = None
                if timestamp >= 0:
                    self.record_ages_ms[lane] = max(0, wall_ms() - timestamp)

    async def _wait(
        self,
        take: Callable[[], T | None],
        until_ms: int | None,
        decode_ahead: Callable[[], bool] | None = None,
        wake_at_ms: Callable[[], int | None] | None = None,
    ) -> T | None:
        """Call `take` until it gives something; `None` when the time ended or the consumer was stopped.

        Before that call `decode_ahead` until it returns False, once per turn of the loop, so that `take` is short.
        `wake_at_ms` says when to try again although nothing changed.
        """
        supply = self._delivery.supply
        while True:
            if self._stopping.is_stopped:
                return None
            self._inbox.raise_next()
            now = now_ms()
            wake, again_at_ms = until_ms, None
            if not self._redeliveries.is_idle:
                again_at_ms = self._redeliveries.look(now)
            if self._group.may_deliver(now):
                if decode_ahead is not None and decode_ahead():
                    await asyncio.sleep(0)
                    continue
                taken = self._taken(take)
                if supply.has_freed and supply.take_freed():
                    self._changes.tell(Change.FETCHABLE)
                if supply.to_inflate:
                    self._changes.tell(Change.INFLATABLE)
                if taken is not None:
                    return taken
                if again_at_ms is not None and self._redeliveries.release_last():
                    continue
                wake = wake_at_ms() if until_ms is None and wake_at_ms is not None else until_ms
            if until_ms is not None and now >= until_ms:
                return None
            if again_at_ms is not None:
                wake = again_at_ms if wake is None else min(wake, again_at_ms)
            await self._changes[Waiter.REQUESTS].wait(wake)
            self.turn.begin()

    def _taken(self, take: Callable[[], T | None]) -> T | None:
        try:
            return take()
        except (RecordDeserializationError, TimestampError) as error:
            if self._poison.note(error):
                self._emit(events.PoisonRecord(error.topic, error.partition, error.offset, str(error)))
                self._changes.tell(Change.FETCHABLE)  # the others must not wait for the memory of this partition
            raise

    def _take_metadata(self) -> dict[TopicPartition, PartitionMetadata]:
        return self._delivery.take_opened(read_committed=self._config.read_committed)
