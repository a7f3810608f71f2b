"""One loop of a running service: its consumer of now, how that is, and what happens when it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import traceback
from typing import Final, Literal

from aiogroup.asgi import events
from aiogroup.asgi.loop import Loop
from aiogroup.asgi.probes import UNASSIGNED, Look
from aiogroup.asgi.restarts import Restarts, doubled_ms
from aiogroup.asgi.signals import is_sigterm_taken, send_sigterm
from aiogroup.consumer import Consumer
from aiogroup.errors import (
    AiogroupError,
    ConnectionLostError,
    ConsumerStoppedError,
    FencedInstanceIdError,
    KafkaTimeoutError,
    ProtocolError,
)
from aiogroup.runtime.loop.clock import FOREVER_MS, Signal, now_ms
from aiogroup.structs import TopicPartition
from aiogroup.telemetry.event import Event
from aiogroup.telemetry.events import TaskFailed
from aiogroup.telemetry.health import Health, HealthStatus, Since
from aiogroup.telemetry.log import Log
from aiogroup.telemetry.observers import Observers
from aiogroup.values import dataclass

__all__ = ["Policy", "SupervisedLoop", "WhenDead", "WhenFenced"]

WhenDead = Literal["restart", "exit", "fail"]
WhenFenced = Literal["stay", "exit"]

NO_BROKER: Final = (ConnectionLostError, KafkaTimeoutError, ProtocolError)
"""What `Consumer.start` raises where no bootstrap server has answered: it may be called again."""
START_MOST_MS: Final = 30_000
TELL_AGAIN_MS: Final = 60_000
EXIT_NOT_BEFORE_MS: Final = 10_000
"""A server's parent process replaces a worker at once, and each new member rebalances its group."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a service does when a consumer has ended."""

    when_dead: WhenDead
    when_fenced: WhenFenced
    stop_timeout_ms: int


class _BodyEndedError(AiogroupError):
    """The body of a loop returned, and nobody had called `stop()`."""


class SupervisedLoop:
    """What `service[name]` is: the loop's consumer, and how it is.

    `consumer` is the one of now; `None` between one that has ended and the next. `restarts_count` counts the consumers
    that took the place of another one.
    """

    def __init__(self, name: str, loop: Loop, policy: Policy) -> None:
        self.consumer: Consumer | None = None
        self.restarts_count = 0
        self._name = name
        self._loop = loop
        self._policy = policy
        self._restarts = Restarts()
        self._end: tuple[HealthStatus, str] | None = None  # how the consumer ended, and why; until the next one
        self._is_stopping = False
        self._has_ended = False
        self._may_restart_help = True
        self._has_been_assigned = False
        self._changed = Signal()
        self._since = Since()
        self._flowing_since = Since()
        self._began_at_ms = 0
        self._log: Observers | None = None

    # How it is.

    def health(self) -> Health:
        """How the consumer is; between two consumers, how the last one ended. Local, without a remote call."""
        health = self._health_of_consumer()
        if self._is_stopping:
            status = HealthStatus.STOPPED if self._has_ended else HealthStatus.STOPPING
            health = dataclasses.replace(health, status=status, why="the service stops")
        elif self._end is not None:
            health = dataclasses.replace(health, status=self._end[0], why=self._end[1])
        if self._log is None:  # it has not begun: there may be no event loop, and so no clock
            return health
        return dataclasses.replace(health, since_ms=self._since.ms(health.status, now_ms()))

    def lags(self) -> dict[TopicPartition, int | None]:
        """The lag of each assigned partition, from local knowledge: as `Consumer.lags()`; empty without a consumer."""
        consumer = self.consumer
        if consumer is None or self.health().status in UNASSIGNED or not consumer.assignment():
            return {}
        return consumer.lags()

    def details(self) -> dict[str, object]:
        """All that is known of it, for those who may see names of topics and groups. Ages are in milliseconds."""
        health = self.health()
        return {
            "state": health.status,
            "why": health.why,
            "since_ms": health.since_ms,
            "since_request_ms": health.since_request_ms,
            "since_heartbeat_ms": health.since_heartbeat_ms,
            "partitions_count": health.partitions_count,
            "missing_topics": health.missing_topics,
            "restarts_count": self.restarts_count,
            "lags": {f"{tp.topic}-{tp.partition}": lag for tp, lag in self.lags().items()},
        }

    def look(self) -> Look | None:
        """How it is, for the probes; `None` for a loop that may end and has. Called each half second, too."""
        if self._has_ended and self._loop.may_end and self._end is None and not self._is_stopping:
            return None
        health = self.health()
        if not self._has_been_assigned and health.status not in UNASSIGNED:
            self._has_been_assigned = True
            if not health.partitions_count and not health.missing_topics:
                self._emit(events.NoPartitionAssigned(self._name))
        is_many = self._log is not None and self._restarts.are_many(now_ms())
        not_flowing_ms = self._flowing_since.ms(health.is_ready, now_ms()) if self._log is not None else 0
        return Look(health, 0 if health.is_ready else not_flowing_ms, is_many or not self._may_restart_help)

    def _health_of_consumer(self) -> Health:
        if self.consumer is None:
            return Health(
                HealthStatus.STOPPED if self._has_ended else HealthStatus.STARTING, "not started", 0, None, None
            )
        return self.consumer.health()

    # Its life.

    def make(self) -> Consumer:
        """Make the first consumer, in the running loop.

        Raises:
            ConfigError: a setting is wrong, or the function made no consumer.
        """
        consumer = self.consumer = self._loop.make()
        self._log = Observers(Log(consumer.config.group_id, consumer.config.client_id), ())
        self._began_at_ms = now_ms()
        return consumer

    async def run(self) -> None:
        """Run the loop, and start it again where it fails, until `stop` or its own end."""
        try:
            while True:
                failure = await self._run_once()
                if failure is None or not await self._go_on_after(failure):
                    return
        finally:
            self._has_ended = True
            self._changed.pulse()

    async def stop(self) -> None:
        """Stop the consumer and wait for the body's end, at most for `stop_timeout_ms` in all."""
        until_ms = now_ms() + self._policy.stop_timeout_ms
        self._is_stopping = True
        self._changed.pulse()
        if self.consumer is not None:
            await self.consumer.stop(self._policy.stop_timeout_ms)
        while not self._has_ended and now_ms() < until_ms:
            await self._changed.wait(until_ms)

    def on_task_failed(self, name: str, error: BaseException) -> None:
        """A task of the service died, and all of them with it."""
        self._end = (HealthStatus.FAILED, f"the task {name!r} of the service ended: {error!r}")
        self._may_restart_help = False
        self._emit(TaskFailed(name, repr(error)))

    async def _run_once(self) -> Exception | None:
        """Run one consumer; what ended it, or `None` if it ended as it should. It is stopped then."""
        consumer, failure = self.consumer, None
        assert consumer is not None
        try:
            if await self._start(consumer):
                await self._loop.body(consumer)
                failure = self._why_ended(consumer)
        except ConsumerStoppedError as error:  # as `getone` raises it where `async for` ends
            failure = None if self._is_stopped(consumer) else error
        except Exception as error:  # noqa: BLE001 (whatever it is, it ended the body)
            failure = error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            failure = RuntimeError("the body awaited something that was cancelled")
            failure.__cause__ = error
        if failure is not None:
            self._end = self._end_of(consumer, failure)
        await consumer.stop(self._policy.stop_timeout_ms)
        self.consumer = None if failure is not None else consumer
        return failure

    async def _start(self, consumer: Consumer) -> bool:
        """Start the consumer, again and again until a broker answers; False if the service stops first."""
        attempts_count, told_at_ms = 0, -TELL_AGAIN_MS
        while not self._is_stopping:
            try:
                await consumer.start()
                return True
            except NO_BROKER as error:
                if consumer.health().status is not HealthStatus.STARTING:
                    raise  # a broker answered, and the consumer ended: a new one is needed
                attempts_count += 1
                if now_ms() - told_at_ms >= TELL_AGAIN_MS:
                    told_at_ms = now_ms()
                    self._emit(events.NoBrokerYet(self._name, str(error), attempts_count))
            await self._wait(now_ms() + doubled_ms(attempts_count, START_MOST_MS))
        return False

    def _why_ended(self, consumer: Consumer) -> Exception | None:
        """The failure that the body's return is, or `None` if it was meant."""
        if self._loop.may_end or self._is_stopped(consumer):
            return None
        return _BodyEndedError(
            f"the body of {self._name!r} returned although nobody had called stop(); if it may, say Loop(may_end=True)"
        )

    def _is_stopped(self, consumer: Consumer) -> bool:
        """Whether the service stops, or the application has stopped this consumer."""
        return self._is_stopping or consumer.health().status in (HealthStatus.STOPPING, HealthStatus.STOPPED)

    def _end_of(self, consumer: Consumer, failure: Exception) -> tuple[HealthStatus, str]:
        is_fenced = isinstance(failure, FencedInstanceIdError) or consumer.health().status is HealthStatus.FENCED
        return HealthStatus.FENCED if is_fenced else HealthStatus.FAILED, f"{type(failure).__name__}: {failure}"

    async def _go_on_after(self, failure: Exception) -> bool:
        """Wait until the next consumer is to begin, and make it; False if there will be none."""
        assert self._end is not None
        if self._is_stopping:
            self._tell(failure, None)
            return False
        if self._end[0] is HealthStatus.FENCED:
            self._tell(failure, None)
            await self._stay_fenced()
            return False
        while self._policy.when_dead == "restart":
            wait_ms = self._restarts.wait_ms(now_ms())
            self._tell(failure, wait_ms)
            if not await self._wait(now_ms() + wait_ms):
                return False
            try:
                self.consumer = self._loop.make()
            except Exception as error:  # noqa: BLE001 (as if the consumer had been made, and had failed)
                failure = error
                continue
            self._end = None
            self._has_been_assigned = False
            self.restarts_count += 1
            return True
        self._tell(failure, None)
        if self._policy.when_dead == "fail" or not await self._exit():
            self._may_restart_help = False
        await self._wait(FOREVER_MS)
        return False

    async def _stay_fenced(self) -> None:
        """Read nothing, and tell it each minute: a restart would take the name back, and so on for ever."""
        if self._policy.when_fenced == "exit":
            await self._exit()
        fenced_at_ms = now_ms()
        while await self._wait(now_ms() + TELL_AGAIN_MS):
            self._emit(events.FencedStill(self._name, now_ms() - fenced_at_ms))

    async def _exit(self) -> bool:
        """End this process by its server; False if none has taken SIGTERM, as in tests."""
        if not is_sigterm_taken():
            return False
        if await self._wait(self._began_at_ms + EXIT_NOT_BEFORE_MS):
            send_sigterm()
        return True

    async def _wait(self, until_ms: int) -> bool:
        """Wait until this instant; False at once when the service stops."""
        while not self._is_stopping and now_ms() < until_ms:
            await self._changed.wait(None if until_ms == FOREVER_MS else until_ms)
        return not self._is_stopping

    def _tell(self, failure: Exception, restart_in_ms: int | None) -> None:
        assert self._end is not None
        why = "fenced" if self._end[0] is HealthStatus.FENCED else "body_raised"
        if isinstance(failure, _BodyEndedError):
            why = "body_ended"
        elif why != "fenced" and isinstance(failure, AiogroupError):
            why = "consumer_failed"
        lines = "".join(traceback.format_exception(failure))
        self._emit(events.LoopFailed(self._name, why, repr(failure), lines, restart_in_ms))

    def _emit(self, event: Event) -> None:
        if self._log is not None:
            self._log.emit(event)
