"""The life of one loop of a service: a consumer, the next one when it has ended, and the end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Literal

import anyio

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Emit, Observer, name_and_text, repr_of
from aiogroup._core.telemetry.health import HealthStatus
from aiogroup._core.telemetry.record_observer import drop_what_is_over
from aiogroup._core.values import dataclass
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, now_ms
from aiogroup._runtime.telemetry.log import Log
from aiogroup._runtime.telemetry.observers import Observers
from aiogroup.asgi.loop import Loop, NotAsyncError
from aiogroup.asgi.probes import UNASSIGNED
from aiogroup.asgi.restarts import Restarts, doubled_ms
from aiogroup.asgi.signals import is_sigterm_taken, send_sigterm
from aiogroup.asgi.stacks import stack_of
from aiogroup.consumer import Consumer
from aiogroup.errors import (
    AiogroupError,
    ConnectionLostError,
    ConsumerStoppedError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    ProtocolError,
    RecordError,
)
from aiogroup.structs import TopicPartition

__all__ = ["End", "Life", "Policy", "WhenDead", "WhenFenced", "emit_of"]

WhenDead = Literal["restart", "exit", "fail"]
WhenFenced = Literal["stay", "exit"]

NO_BROKER: Final = (ConnectionLostError, KafkaTimeoutError, ProtocolError)
"""What `Consumer.start` raises where no bootstrap server has answered: it may be called again."""
Follow = Callable[[Consumer], Observer]
"""Called with each consumer before it starts; returns an observer that gets the service's own events about it."""
START_MOST_MS: Final = 4_000
"""The longest wait between two attempts to start: a service is ready within 5 s of its brokers, however long they were
away.
"""
TELL_AGAIN_MS: Final = 60_000
IN_HAND_COUNT: Final = 5
"""Of how many partitions at most a failure tells the record in hand."""
EXIT_NOT_BEFORE_MS: Final = 10_000
"""A server's parent process replaces a worker at once, and each new member rebalances its group."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a service does when a consumer has ended."""

    when_dead: WhenDead
    when_fenced: WhenFenced
    stop_timeout_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """How a consumer failed: FENCED or FAILED. `needs_new_process`: no other consumer follows in this process."""

    status: HealthStatus
    why: str
    needs_new_process: bool = False


class _BodyEndedError(AiogroupError):
    """The body of a loop returned, and nobody had called `stop()`."""


class Life:
    """Runs the loop `name` from the start of a service to its end. Made in the event loop that runs it.

    `end` is how the last consumer ended, until the next one begins.

    Raises:
        ConfigError: a setting is wrong, or the function made no consumer.
    """

    def __init__(
        self, name: str, loop: Loop, policy: Policy, follow: Follow | None = None, observers: tuple[Observer, ...] = ()
    ) -> None:
        self.last = loop.make()
        """The consumer of now, and between two the one before."""
        self.consumer: Consumer | None = self.last
        self.end: End | None = None
        self.is_stopping = False
        self.has_ended = False
        self.restarts_count = 0
        self.restarts = Restarts()
        self.name = name
        self._loop = loop
        self._policy = policy
        self._follow = follow
        self._observers = observers
        self._failed_at: dict[TopicPartition, int] = {}
        """The first record in hand of each partition when a consumer failed."""
        self._waited_ms = 0
        self.no_broker_why = ""
        """Why the last attempt to start failed, if no broker answered it."""
        self.emit = emit_of(self.last, self._followers(self.last))
        self._changed = Signal()
        self._began_at_ms = now_ms()

    @property
    def has_ended_as_it_may(self) -> bool:
        return self.has_ended and self._loop.may_end and self.end is None and not self.is_stopping

    async def run(self) -> None:
        """Run the loop, and start it again where it fails, until `stop` or its own end."""
        try:
            while (consumer := self.consumer) is not None:
                failure = await self._ended(consumer)
                if failure is None:
                    await consumer.stop(self._policy.stop_timeout_ms)
                    return
                restart_in_ms = self._fail(consumer, failure)
                await _stop_failed(consumer, failure, self._policy.stop_timeout_ms)
                self.consumer = None
                if restart_in_ms is not None:
                    await self._make_next(restart_in_ms)
                elif not self.is_stopping:
                    await self._stay_ended()
        finally:
            self.has_ended = True
            self._changed.pulse()

    async def stop(self) -> None:
        """Stop the consumer and wait for the body's end, at most for `stop_timeout_ms` in all."""
        until_ms = now_ms() + self._policy.stop_timeout_ms
        self.is_stopping = True
        self._changed.pulse()
        if self.consumer is not None:
            await self.consumer.stop(self._policy.stop_timeout_ms)
        while not self.has_ended and now_ms() < until_ms:
            await self._changed.wait(until_ms)

    def on_task_failed(self, name: str, error: BaseException) -> None:
        """A task of the service died, and all of them with it."""
        why = f"the task {name!r} of the service ended: {repr_of(error)}"
        self.end = End(HealthStatus.FAILED, why, needs_new_process=True)
        self.emit(events.TaskFailed(name, repr_of(error)))

    # One consumer.

    async def _ended(self, consumer: Consumer) -> BaseException | None:
        """Run the consumer to its end, which is reported here; why it failed, or `None` if it ended as it should."""
        try:
            if not await self._start(consumer):
                return None
            drop_what_is_over()  # the body of the consumer before ran in this context, too
            await self._loop.run_body(consumer)
            return self._why_ended(consumer)
        except ConsumerStoppedError as error:  # as `getone` raises it where `async for` ends
            return None if self._is_stopped(consumer) else error
        except asyncio.CancelledError as error:
            if anyio.current_effective_deadline() == -math.inf:
                raise  # the service has cancelled all of its tasks
            failure = RuntimeError(_uncancelled())
            failure.__cause__ = error
            return failure
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, it ended the body)
            return error

    async def _start(self, consumer: Consumer) -> bool:
        """Start the consumer, again and again until a broker answers; False if the service stops first."""
        attempts_count, told_at_ms = 0, -TELL_AGAIN_MS
        while not self.is_stopping:
            try:
                await consumer.start()
                self.no_broker_why = ""
                self._put_off_what_failed(consumer)
                self._look_at_assignment(consumer)
                return True
            except NO_BROKER as error:
                if consumer.health().status is not HealthStatus.STARTING:
                    raise  # a broker answered, and the consumer ended: a new one is needed
                attempts_count += 1
                self.no_broker_why = str(error)
                if now_ms() - told_at_ms >= TELL_AGAIN_MS:
                    told_at_ms = now_ms()
                    self.emit(events.NoBrokerYet(self.name, str(error), attempts_count))
            await self._wait(now_ms() + doubled_ms(attempts_count, START_MOST_MS))
        return False

    def _put_off_what_failed(self, consumer: Consumer) -> None:
        """What failed comes behind all else, for at most as long as the restart was waited for: otherwise one record
        would fail each consumer before it reads the other partitions.
        """
        inside = consumer.inside()
        if self._failed_at and inside is not None:
            inside.put_off(self._failed_at, self._waited_ms)

    def _look_at_assignment(self, consumer: Consumer) -> None:
        health = consumer.health()
        is_empty = health.status not in UNASSIGNED and not health.partitions_count and not health.missing_topics
        if is_empty and consumer.config.group_id is not None:
            self.emit(events.NoPartitionAssigned(self.name))

    def _why_ended(self, consumer: Consumer) -> Exception | None:
        """The failure that the body's return counts as, or `None` if the body was allowed to return."""
        if self._loop.may_end or self._is_stopped(consumer):
            return None
        return _BodyEndedError(
            f"the body of {self.name!r} returned although nobody had called stop(); if it may, say Loop(may_end=True)"
        )

    def _is_stopped(self, consumer: Consumer) -> bool:
        """Whether the service stops, or the application has stopped this consumer."""
        return self.is_stopping or consumer.health().status in (HealthStatus.STOPPING, HealthStatus.STOPPED)

    # Between two, and after the last.

    def _fail(self, consumer: Consumer, failure: BaseException) -> int | None:
        """Note and report how this consumer ended. Returns in how many ms another one begins, or `None`."""
        is_fenced = isinstance(failure, FencedInstanceIdError) or consumer.health().status is HealthStatus.FENCED
        status = HealthStatus.FENCED if is_fenced else HealthStatus.FAILED
        self.end = End(status, name_and_text(failure))
        helps = not is_fenced and not isinstance(failure, NotAsyncError)
        goes_on = self._policy.when_dead == "restart" and helps and not self.is_stopping
        restart_in_ms = self.restarts.wait_ms(now_ms()) if goes_on else None
        in_hand = _in_hand(consumer)
        self._failed_at |= in_hand
        if isinstance(failure, RecordError) and isinstance(offset := getattr(failure, "offset", None), int):
            self._failed_at[failure.tp] = offset  # it was never in hand
        told = (f"{tp.topic}-{tp.partition}@{offset}" for tp, offset in in_hand.items())
        self._tell(status, failure, restart_in_ms, tuple(islice(told, IN_HAND_COUNT)))
        return restart_in_ms

    async def _make_next(self, restart_in_ms: int) -> None:
        """Make another consumer after a while, unless the service stops first."""
        while await self._wait(now_ms() + restart_in_ms):
            self._waited_ms = restart_in_ms
            try:
                self.consumer = self.last = self._loop.make()
                self.emit = emit_of(self.consumer, self._followers(self.consumer))
            except Exception as error:  # noqa: BLE001 (as if the consumer had been made, and had failed)
                self.end = End(HealthStatus.FAILED, name_and_text(error))
                restart_in_ms = self.restarts.wait_ms(now_ms())
                self._tell(HealthStatus.FAILED, error, restart_in_ms)
            else:
                self.end = None
                self.restarts_count += 1
                return

    def _followers(self, consumer: Consumer) -> tuple[Observer, ...]:
        return self._observers if self._follow is None else (self._follow(consumer), *self._observers)

    async def _stay_ended(self) -> None:
        """No other consumer follows in this process: end it if so wanted, and wait until the service stops."""
        assert self.end is not None
        if self.end.status is HealthStatus.FENCED:
            await self._stay_fenced()
        elif self._policy.when_dead != "exit" or not await self._exit():
            self.end = End(self.end.status, self.end.why, needs_new_process=True)
        await self._wait(FOREVER_MS)

    async def _stay_fenced(self) -> None:
        """Read nothing, and tell it each minute: a restart would take the name back, and so on for ever."""
        if self._policy.when_fenced == "exit":
            await self._exit()
        fenced_at_ms = now_ms()
        while await self._wait(now_ms() + TELL_AGAIN_MS):
            self.emit(events.FencedStill(self.name, now_ms() - fenced_at_ms))

    async def _exit(self) -> bool:
        """End this process by its server; False if none has taken SIGTERM, as in tests."""
        if not is_sigterm_taken():
            return False
        if await self._wait(self._began_at_ms + EXIT_NOT_BEFORE_MS):
            send_sigterm()
        return True

    async def _wait(self, until_ms: int) -> bool:
        """Wait until this instant; False at once when the service stops."""
        while not self.is_stopping and now_ms() < until_ms:
            await self._changed.wait(None if until_ms == FOREVER_MS else until_ms)
        return not self.is_stopping

    def _tell(
        self,
        status: HealthStatus,
        failure: BaseException,
        restart_in_ms: int | None,
        in_hand: tuple[str, ...] = (),
    ) -> None:
        if status is HealthStatus.FENCED:
            why = "fenced"
        elif isinstance(failure, (_BodyEndedError, NotAsyncError)):
            why = "body_ended"
        else:
            why = "consumer_failed" if isinstance(failure, AiogroupError) else "body_raised"
        lines = stack_of(failure)
        self.emit(events.LoopFailed(self.name, why, repr_of(failure), lines, restart_in_ms, in_hand))


async def _stop_failed(consumer: Consumer, failure: BaseException, timeout_ms: int) -> None:
    """Stop it under the error, which says why records are in hand: nothing warns of them."""
    try:
        raise failure  # noqa: TRY301 (for `stop` to see)
    except BaseException:  # noqa: BLE001 (it is told)
        await consumer.stop(timeout_ms)


def _uncancelled() -> str:
    """Whose cancellation ended a body in a service that goes on; the loop's task is free of it then."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return "the body awaited something that was cancelled"
    while task.uncancel():
        pass
    return "the body's task was cancelled, but the service goes on"


def _in_hand(consumer: Consumer) -> dict[TopicPartition, int]:
    """The first record in hand of each partition: one may have made the body fail."""
    inside = consumer.inside()
    held = () if inside is None else ((each.tp, each.held_from) for each in inside.partitions())
    return {tp: offset for tp, offset in held if offset is not None}


def emit_of(consumer: Consumer, observers: Iterable[Observer] = ()) -> Emit:
    """Writes events to the log with the consumer's group and client id, and gives them to these observers."""
    return Observers(Log(consumer.config.group_id, consumer.config.client_id), observers).emit
