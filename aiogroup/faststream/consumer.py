"""aiogroup's consumer, with everything that FastStream's subscribers use of aiokafka's, private attributes too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Unpack

import anyio

from aiogroup._core.telemetry.event import Observer
from aiogroup._runtime.delivery.readers import is_request
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.shutdown import StopReport
from aiogroup.consumer import Consumer
from aiogroup.errors import AiogroupError, ConfigError, ConsumerStoppedError
from aiogroup.faststream.messages import RawMessage, UnderWay
from aiogroup.records import Record
from aiogroup.settings import ConsumerSettings
from aiogroup.structs import TopicPartition

__all__ = ["StreamConsumer"]

POSITIONS_MS: Final = 2_000
"""How long a start waits at most until it is known where to begin: a partition may have no leader."""


class _Coordinator:
    """What FastStream reads of aiokafka's coordinator for its log."""

    def __init__(self, who: Callable[[], str]) -> None:
        self._who = who

    @property
    def member_id(self) -> str:
        return self._who()


class StreamConsumer(Consumer[Any, Any]):
    """A `Consumer` that a subscriber of FastStream reads; as `Consumer` in handlers it has all of its methods.

    With `enable_auto_commit`, as FastStream's policy ACK_FIRST sets it, a record is processed when its handler has
    ended, even with an exception, but not when it was cancelled. Without it, FastStream commits.

    Args:
        attach: called when it starts; makes its subscriber's handlers report their ends. Returns False if it has none.
        stop_within_ms: how long `stop` may take now.
    """

    def __init__(
        self,
        *topics: str,
        attach: Callable[[StreamConsumer], bool],
        stop_within_ms: Callable[[], int],
        observers: Iterable[Observer] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        if "auto_ack" in settings:
            raise ConfigError("auto_ack: FastStream's ack_policy decides when a record is processed; leave it out")
        self._marks = settings.get("enable_auto_commit", True)
        settings["auto_ack"] = not self._marks
        super().__init__(*topics, observers=observers, **settings)
        self._attach = attach
        self._stop_within_ms = stop_within_ms
        self._is_handled = False
        self._is_ending = False
        self._under_way = UnderWay()
        self._open: dict[int, RawMessage] = {}  # given to no handler, by identity: two may be equal

    async def start(self) -> None:
        """As `Consumer.start`. The subscriber has its consumer by now, and not yet when the consumer is made."""
        self._is_handled = self._attach(self)
        await super().start()
        await self._find_positions()

    async def _find_positions(self) -> None:
        """What is published once the broker has started is read, also by a consumer that begins at the end."""
        until_ms = now_ms() + POSITIONS_MS
        engine = self._started()
        for partition in tuple(engine.assignment):
            with suppress(AiogroupError):  # the requests for records raise what stays
                await engine.offset_queries.position(partition, until_ms)

    # What FastStream reads beyond aiokafka's public names; `_subscription.topics` is `Consumer`'s own.

    @property
    def _group_id(self) -> str | None:
        return self.config.group_id

    @property
    def _coordinator(self) -> _Coordinator:
        return _Coordinator(self._member_id)

    def _member_id(self) -> str:
        engine = self._engine or self._starting
        try:
            return "" if engine is None else engine.group.needed_for("member_id").coordinator.identity.member_id
        except AiogroupError:  # without a group there is no member
            return ""

    # Records.

    def __aiter__(self) -> AsyncIterator[RawMessage]:  # type: ignore[override]
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[RawMessage]:
        async for record in super().__aiter__():
            self._end_asked()
            yield self._given(record)

    @is_request
    async def getone(self, *partitions: TopicPartition) -> RawMessage:  # type: ignore[override]
        if self._is_ending:
            raise ConsumerStoppedError("the consumer is being stopped: nothing more is handed out")
        self._end_asked()
        return self._given(await super().getone(*partitions))

    @is_request
    async def getmany(  # type: ignore[override]
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[RawMessage]]:
        self._end_asked()
        found = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return {tp: [self._given(each) for each in records] for tp, records in found.items()}

    def _given(self, record: Record[Any, Any]) -> RawMessage:
        message = RawMessage(record, self, self._under_way, self._forget if self._marks else None)
        if self._marks and not self._is_handled:
            self._open[id(message)] = message
        return message

    def _forget(self, message: RawMessage) -> None:
        self._open.pop(id(message), None)

    def _end_asked(self) -> None:
        """Without a handler, as with `get_one()` and `async for`, asking for the next record ends the one before."""
        for each in tuple(self._open.values()):
            each.end()

    # The end.

    async def stop(
        self, timeout_ms: int | None = None, *, drain: bool = True, leave_group: bool | None = None
    ) -> StopReport:
        """As `Consumer.stop`; without a time-out it takes what the broker's `graceful_timeout` leaves.

        Handlers that are under way may end and acknowledge, for half of the time: where FastStream has a consumer for
        each worker it stops the consumers first. A handler that raises StopConsume has FastStream cancel the task that
        stops the consumer: the cancellation waits until the consumer has ended.
        """
        within_ms = self._stop_within_ms() if timeout_ms is None else timeout_ms
        began_at_ms = now_ms()
        self._is_ending = True
        cancelled: asyncio.CancelledError | None = None
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as error:
                cancelled = error
        with anyio.CancelScope(shield=True):
            if drain:
                await self._under_way.wait(began_at_ms + within_ms // 2)
            left_ms = max(0, within_ms - (now_ms() - began_at_ms))
            report = await super().stop(left_ms, drain=drain, leave_group=leave_group)
        if cancelled is not None:
            raise cancelled
        return report
