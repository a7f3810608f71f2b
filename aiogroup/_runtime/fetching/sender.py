"""Carries out what a broker's fetch asks for: connects, sends, sleeps.

Answers are taken, and the next requests written, in callbacks of the event loop: at the head each record costs one of
each. A task exists only to connect, which includes to wait while the broker throttles us, and to learn why an answer
did not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import anyio

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.asking.broker_fetch import BrokerFetch, Denied, NotAuthorized, OutOfRange, Room, Want
from aiogroup._core.protocol.messages.fetch import FetchResponse
from aiogroup._core.telemetry.counts import FETCH_FAILED, Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.fetching.lane_rules import LaneRules
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Alarm, Signal, now_ms, running_loop
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.connection import Connection
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    TopicAuthorizationError,
)

__all__ = ["Sender"]


M_co = TypeVar("M_co", bound=BrokerFetch, covariant=True)


class Sender(Generic[M_co]):
    """Sends the requests of one machine on one channel, one after another, from `start` to `end`.

    `on_denied` is called when the broker denies that it leads a partition, `planned_at_ms` says when the plan changes
    although nothing happens.
    """

    def __init__(
        self,
        machine: M_co,
        channel: str,
        config: ConsumerConfig,
        link: Link,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        failures: Failures,
        supervisor: Supervisor,
        inbox: Inbox,
        refresher: Refresher,
        rules: LaneRules,
        on_denied: Callable[[int, Denied], None],
        planned_at_ms: Callable[[], int | None],
    ) -> None:
        self.machine = machine
        self._node_id = machine.node_id
        self._channel = channel
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._failures = failures
        self._supervisor = supervisor
        self._inbox = inbox
        self._link = link
        self._refresher = refresher
        self._rules = rules
        self._on_denied = on_denied
        self._planned_at_ms = planned_at_ms
        self._timeout_ms = config.request_timeout_ms
        self._call_soon = running_loop().call_soon
        self._alarm = Alarm(self.step)
        self._connection: Connection | None = None
        self._answer: asyncio.Future[FetchResponse] | None = None
        """One future for all requests that follow one another on a connection. The answers go to `_on_answer`, so it
        ends only with an error.
        """
        self._task: anyio.CancelScope | None = None
        self._is_called = self._is_ended = False

    def start(self) -> None:
        """Connect before the first request is due: while the positions are looked up."""
        self._spawn(self._get_ready)

    def end(self) -> None:
        """Send nothing more; the answer that is under way is not waited for."""
        self._is_ended = True
        self._alarm.cancel()
        self._let_go()
        if self._task is not None:
            self._task.cancel()
        was_under_way = self.machine.is_under_way
        self.machine.end()
        if was_under_way:
            self._delivery.look_again(Change.ANSWERED)
            self._tell()

    def wake(self) -> None:
        """A request may be due that was not; but the sender that has just given back memory comes after the others."""
        if not (self._is_called or self.machine.is_under_way):
            self.step()

    def step(self, connection: Connection | None = None) -> None:
        """Go on: take the next part of an answer, or send the request that is due, on `connection` if it is given."""
        machine, self._is_called = self.machine, False
        if self._is_ended or self._task is not None:
            return
        try:
            if machine.has_more:
                machine.take_more(self._link.cluster, now_ms())
                self._on_taken()
                return
            if machine.news:
                self._tell()
                self._go_on_soon()
                return
            now = now_ms()
            if not machine.is_due(self._link.cluster, now):
                self._rest(now)
                return
            if connection is None:
                connection = self._link.ready(self._node_id, self._channel)
            if connection is None:
                self._spawn(self._reach)
                return
            if connection is not self._connection:
                self._let_go()
            request, at_most = machine.begin(now, self._delivery.supply.drained_count)
            try:
                answer = connection.write(request, at_most=at_most, on_answer=self._on_answer, answer=self._answer)
            except AiogroupError as error:
                self._lose(error)
                return
            if answer is self._answer:
                connection.wait_on(answer, now, self._timeout_ms)
                return
            self._connection, self._answer = connection, answer
            connection.take(answer, self._timeout_ms)
            answer.add_done_callback(self._on_lost)
        except Exception as error:  # noqa: BLE001 (raised in a task, which ends the consumer)
            self._spawn(_fail, error)

    def _on_answer(self, response: FetchResponse, answer: asyncio.Future[FetchResponse]) -> bool:
        """Take the answer in the step of the loop that reads it from the socket."""
        if response.throttle_time_ms:
            self._link.note_throttle(self._node_id, response)
        self.machine.answered(response, self._link.cluster, now_ms())
        self._on_taken()
        return True

    def _on_taken(self) -> None:
        """A part of an answer was taken. The next request is written at once if it will be answered at once; otherwise
        the tasks that wait for the records run first.
        """
        machine = self.machine
        for lane in machine.opened:
            self._rules.on_answer(lane)
        if self._failures.failing:
            self._failures.end_partitions(frozenset(each.tp for each in machine.opened))
            if machine.is_answered and self._channel == self._rules.channel:
                self._failures.end(FETCH_FAILED, self._node_id)
        machine.opened.clear()
        if not machine.has_more:
            self._delivery.look_again(Change.ANSWERED)  # once, so that a waiting request sees all its partitions
        if machine.is_more_there and not (machine.has_more or machine.news):
            self.step()
        else:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        self._is_called = True
        self._call_soon(self.step)

    def _rest(self, now: int) -> None:
        """No request is due."""
        machine, supply = self.machine, self._delivery.supply
        if machine.is_under_way:
            return
        self._let_go()
        if machine.waits_for is Room.MEMORY:
            supply.want_room()
        elif machine.waits_for is Room.BUFFER:
            supply.want_drained()
        at_ms = machine.wake_at_ms if machine.wake_at_ms > now else self._planned_at_ms()
        if at_ms is not None:
            self._alarm.ring_by(at_ms)

    def _let_go(self) -> None:
        """No request is to follow on the connection."""
        answer, self._answer, self._connection = self._answer, None, None
        if answer is not None:
            answer.cancel()

    # Tasks.

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        name = f"{self._rules.channel}er {self._node_id}{self._channel.removeprefix(self._rules.channel)}"
        if self._supervisor.is_running:
            self._task = self._supervisor.spawn(name, work, *args)

    async def _get_ready(self) -> None:
        await self._link.get_ready(self._node_id, self._channel)
        self._task = None
        self.step()

    async def _reach(self) -> None:
        try:
            connection = await self._link.reach(self._node_id, self._channel, self._timeout_ms)
        except AiogroupError as error:
            self._task = None
            self._lose(error)
        else:
            self._task = None
            self.step(connection)

    def _on_lost(self, answer: asyncio.Future[FetchResponse]) -> None:
        connection = self._connection
        if answer is self._answer and connection is not None:
            self._answer = self._connection = None
            self._spawn(self._find_out, connection, answer)

    async def _find_out(self, connection: Connection, answer: asyncio.Future[FetchResponse]) -> None:
        """The answer has an error: of the connection, or of the code that took what it brought."""
        try:
            await connection.answer(answer, self._timeout_ms)
        except AiogroupError as error:
            self._task = None
            self._lose(error)

    def _lose(self, error: AiogroupError) -> None:
        if isinstance(error, AuthenticationFailedError | ConsumerStoppedError):
            raise error
        self.machine.lost(str(error), now_ms())
        self._delivery.look_again(Change.ANSWERED)
        self._go_on_soon()

    # News.

    def _tell(self) -> None:
        news, self.machine.news = self.machine.news, []
        for each in news:
            match each:
                case Want.METADATA:
                    self._refresher.want()
                case Want.BROKERS:
                    self._changes.tell(Change.FETCHABLE)
                case OutOfRange(lane, offset):
                    self._rules.on_out_of_range(lane, offset)
                case NotAuthorized(topic):
                    self._inbox.put(TopicAuthorizationError([topic]))
                case Denied():
                    self._on_denied(self._node_id, each)
                case _:
                    self._emit(each)


async def _fail(error: Exception) -> None:
    raise error
