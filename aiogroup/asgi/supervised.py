"""One loop of a service as the application and the probes see it: its current consumer, and that consumer's health."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.figures import FiguresInSteps
from aiogroup._core.telemetry.health import Health, HealthStatus, Since
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.asgi.life import Life
from aiogroup.asgi.probes import UNASSIGNED, Look
from aiogroup.consumer import Consumer
from aiogroup.errors import IllegalStateError
from aiogroup.structs import TopicPartition

__all__ = ["NOT_STARTED", "START_FAILED", "SupervisedLoop"]

NOT_STARTED: Final = Health(
    HealthStatus.STARTING,
    "the service was not started: write FastAPI(lifespan=service.lifespan). If that is there, nothing runs that "
    "lifespan: it is a mounted application's, or the server's is off, or TestClient(app) is used without `with`",
    0,
    None,
    None,
)
MILDER: Final = frozenset({HealthStatus.PAUSED, HealthStatus.CATCHING_UP, HealthStatus.DEGRADED, HealthStatus.READY})
"""What the application says with `degraded` is more than these say."""
START_FAILED: Final = Health(HealthStatus.STARTING, "the start of the service failed", 0, None, None)
NO_CONSUMER: Final = Health(HealthStatus.STARTING, "there is no consumer", 0, None, None)


class SupervisedLoop:
    """What `service[name]` is, the same object for as long as there is the service.

    Before the service begins it has no life, and so neither a consumer nor a clock; after its end it has the last one.
    """

    def __init__(self) -> None:
        self._life: Life | None = None
        self._since = Since()
        self._flowing_since = Since()
        self._assigned_in: int | None = None  # by its number: the consumer that was seen with an assignment
        self._down: dict[str, tuple[int, int]] = {}  # what `degraded` names: in how many blocks, and since when

    def begin(self, life: Life) -> None:
        """Show this life from now on: the service begins, perhaps in another event loop, whose clock is another one."""
        self._life = life
        self._since, self._flowing_since, self._assigned_in = Since(), Since(), None

    @property
    def consumer(self) -> Consumer[Any, Any] | None:
        """The current consumer; `None` before the start, and between one that has ended and the next."""
        return None if self._life is None else self._life.consumer

    @property
    def latest(self) -> Consumer[Any, Any] | None:
        """The current consumer, and between two the last one; `None` before the start."""
        return None if self._life is None else self._life.last

    @property
    def restarts_count(self) -> int:
        """How many times the consumer was replaced by a new one."""
        return 0 if self._life is None else self._life.restarts_count

    def health(self) -> Health:
        """How the consumer is; between two consumers, how the last one ended. Local, without a remote call.

        `since_ms` is exact to half a second.
        """
        if self._life is None:
            return NOT_STARTED
        health = self._health_in(self._life)
        return dataclasses.replace(health, since_ms=self._since.ms(health.status, now_ms()))

    @contextmanager
    def degraded(self, what: str) -> Iterator[None]:
        """Say that something the loop needs is down: `with service["billing"].degraded("database"):`.

        A plain `with`, also in async code. Until its end the state is `degraded`, and `what` stands in
        `/readyz?verbose`, `/state` and the page; both probes succeed, as a restart would not help. The event
        `loop_degraded` is emitted when the first block with this name begins, `loop_recovered` when the last one ends.
        Records are handed out as ever: see `Consumer.paused`.

        Raises:
            ValueError: `what` is empty, or no text.
            IllegalStateError: no event loop runs here, as in a thread.
        """
        if not isinstance(what, str) or not what:
            raise ValueError(f"degraded() takes the name of what is down, as 'database', not {what!r}")
        try:
            now = now_ms()
        except RuntimeError:
            raise IllegalStateError(
                "degraded() belongs to the event loop, and none runs here: enter it there, where the thread is awaited"
            ) from None
        count, since_ms = self._down.get(what, (0, now))
        self._down[what] = count + 1, since_ms
        if not count:
            self._emit(lambda name: events.LoopDegraded(name, what))
        try:
            yield
        finally:
            count, _ = self._down[what]
            self._down[what] = count - 1, since_ms
            if count == 1:
                del self._down[what]
                self._emit(lambda name: events.LoopRecovered(name, what, now_ms() - since_ms))

    def _emit(self, event_of: Callable[[str], Event]) -> None:
        if self._life is not None:
            self._life.emit(event_of(self._life.name))

    def lags(self) -> dict[TopicPartition, int | None]:
        """The lag of each assigned partition, from local knowledge: as `Consumer.lags()`.

        It is empty without a consumer that has an assignment.
        """
        consumer = self.consumer
        if consumer is None or self.health().status in UNASSIGNED:
            return {}
        return consumer.lags()

    def figures(self) -> FiguresInSteps | None:
        """As `Consumer.figures()`, in the state of `health()`; between two consumers those of the last one."""
        return None if self._life is None else self._figures_in(self._life)

    def details(self) -> dict[str, object]:
        """What is known of it as a whole, for those who may see names of topics and groups. Ages are in milliseconds.

        No partition is looked at.
        """
        health = self.health()
        return {
            "state": health.status,
            "why": health.why,
            "since_ms": health.since_ms,
            "since_request_ms": health.since_request_ms,
            "since_heartbeat_ms": health.since_heartbeat_ms,
            "partitions_count": health.partitions_count,
            "missing_topics": health.missing_topics,
            "degraded": tuple(self._down),
            "restarts_count": self.restarts_count,
        }

    def look(self) -> Look | None:
        """How it is, for the probes; `None` for a loop that has ended as it may."""
        life, health = self._life, self.health()
        if life is None:
            return Look(health)
        if life.has_ended_as_it_may:
            return None
        now = now_ms()
        if health.status not in UNASSIGNED and health.status is not HealthStatus.UNREACHABLE:
            self._assigned_in = life.restarts_count
        was_assigned = self._assigned_in == life.restarts_count
        not_flowing_ms = self._flowing_since.ms(health.is_ready, now)
        needs_new_process = life.end is not None and (life.end.needs_new_process or life.restarts.are_many(now))
        waits_ms = 0 if health.is_ready else not_flowing_ms
        return Look(health, waits_ms, needs_new_process, has_ended=life.end is not None, was_assigned=was_assigned)

    def _figures_in(self, life: Life) -> FiguresInSteps:
        figures = yield from life.last.figures()
        return dataclasses.replace(figures, status=self._health_in(life).status)

    def _health_in(self, life: Life) -> Health:
        health = NO_CONSUMER if life.consumer is None else life.consumer.health()
        if life.is_stopping:
            status = HealthStatus.STOPPED if life.has_ended else HealthStatus.STOPPING
            return dataclasses.replace(health, status=status, why="the service stops")
        if life.end is not None:
            return dataclasses.replace(health, status=life.end.status, why=life.end.why)
        if life.no_broker_why and health.status is HealthStatus.STARTING:
            return dataclasses.replace(health, why=f"no broker has answered yet: {life.no_broker_why}")
        if self._down and health.status in MILDER:
            is_whole = health.is_wholly_degraded or health.status is HealthStatus.PAUSED
            why = f"degraded by the application: {', '.join(self._down)}; {health.why}"
            return dataclasses.replace(health, status=HealthStatus.DEGRADED, why=why, is_wholly_degraded=is_whole)
        return health
