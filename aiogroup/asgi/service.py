"""The public class `Service`: consumers that live as long as an ASGI application, and its probes."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import traceback
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, Never

import anyio

from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Observer, repr_of
from aiogroup._core.telemetry.health import Health, Since
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import Supervisor, start_task
from aiogroup._runtime.telemetry.log import Log
from aiogroup._runtime.telemetry.observers import Observers, checked_observers
from aiogroup.asgi.application import Access, Application, Receive, Scope, Send
from aiogroup.asgi.arguments import check_arguments
from aiogroup.asgi.life import Follow, Life, Policy, WhenDead, WhenFenced
from aiogroup.asgi.loop import Loop
from aiogroup.asgi.metrics import Metrics
from aiogroup.asgi.page.state import State, Work
from aiogroup.asgi.probes import Ready, Snapshot
from aiogroup.asgi.signals import hearing_sigterm
from aiogroup.asgi.supervised import NOT_STARTED, START_FAILED, SupervisedLoop
from aiogroup.errors import ConsumerStoppedError, IllegalStateError

__all__ = ["Service"]

LOOK_EVERY_MS: Final = 500
"""How exact the times of the probes are."""
SAMPLE_EVERY_MS: Final = 1_000
CANCELLED_MS: Final = 1_000
"""How long a body that was cancelled may take to end, after the time of the stop."""


class Service:
    """Runs consumers inside an ASGI process, starts them again when they fail, and answers probes.

        service = Service(audit=Loop(lambda: Consumer("orders", group_id="audit"), audit))
        app = FastAPI(lifespan=service.lifespan)
        app.mount("/aiogroup", service)  # /aiogroup/livez, /readyz, /metrics, /state, /

    `service["audit"]` is the loop: its current `consumer`, `health()`, `lags()`, `restarts_count`. Everything runs in
    the server's event loop; each worker process has consumers and probes of its own.

    Args:
        when_dead: when a loop fails, "restart" makes a new consumer after 1 s, doubled up to 60 s; the fifth failure
            within 10 minutes fails `/livez`. "exit" sends SIGTERM to this process, at the earliest 10 s after it began
            to run; where no server has taken SIGTERM it is "fail": the loop stays dead, and both probes fail.
        when_fenced: another process has the consumer's static name. "stay": it reads nothing, and `/livez` still
            succeeds, since a restart would take the name back. "exit" as above.
        stop_timeout_ms: how long the stop of all consumers, side by side, may take, in milliseconds. Keep it below the
            platform's grace period.
        drain_on_signal: begin the stop when SIGTERM comes, beside the open connections; otherwise it begins when the
            server ends the lifespan, after them.
        ready: what `/readyz` means. "assigned": from the first assignment on. "flowing": not while no record can flow
            for `unready_after_ms` milliseconds, either.
        access: `access(scope)` says whether a client may see names of topics and groups and the texts of errors, in
            `/state`, `?verbose` and the page; it may be async. Without it nobody may.
        page: serve the live page at `/`, for those with access.
        metrics: serve `/metrics` where prometheus-client is installed. It is open to all, as everywhere.
        observers: get the service's own events, such as `loop_failed`; a consumer's go to that consumer's observers.
        health_file: a file to touch twice a second while `/livez` would answer 200, for a probe by its age.
        loops: the loops, by the name that `service[name]`, the log and the probes give them.

    Raises:
        ConfigError: no loop, a loop without a name or with the name of an argument, or an argument that is none of
            those above.
    """

    def __init__(
        self,
        *unnamed: Never,
        when_dead: WhenDead = "restart",
        when_fenced: WhenFenced = "stay",
        stop_timeout_ms: int = 20_000,
        drain_on_signal: bool = False,
        ready: Ready = "assigned",
        unready_after_ms: int = 30_000,
        access: Access | None = None,
        page: bool = False,
        metrics: bool = True,
        observers: Iterable[Observer] = (),
        health_file: str | os.PathLike[str] | None = None,
        **loops: Loop,
    ) -> None:
        check_arguments(locals(), loops)
        self._given = loops
        self._observers = checked_observers(observers)
        self._policy = Policy(when_dead, when_fenced, stop_timeout_ms)
        self._ready: Ready = ready
        self._unready_after_ms = unready_after_ms
        self._drains_on_signal = drain_on_signal
        self._health_file = None if health_file is None else Path(health_file)
        self._state = State(self._snapshot, lambda: self._loops, self._begin, tuple(loops))
        self._metrics = Metrics(lambda: self._loops) if metrics and Metrics.can_be_served() else None
        self._application = Application(
            self._snapshot,
            self._details,
            self._state.document,
            access,
            page=page,
            metrics=None if self._metrics is None else self._metrics.text,
        )
        self._is_watched = access is not None
        self._lives: list[Life] = []
        self._loops = {name: SupervisedLoop() for name in loops}
        self._unstarted: Health | None = NOT_STARTED
        self._probed_since = Since()
        self._is_told_unstarted = False
        self._supervisor: Supervisor | None = None
        self._stops: set[asyncio.Future[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    # In the application.

    def lifespan(self, app: object) -> AbstractAsyncContextManager[None]:
        """For `FastAPI(lifespan=service.lifespan)`; Starlette and Litestar take it, too."""
        return self.running()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loops: `async with service.running():` in a lifespan of your own. It does not wait for a broker.

        What the bodies need opens before it, and so closes after the consumers have stopped. It may be entered again
        after its end, with new consumers.

        Raises:
            ConfigError: a consumer's setting is wrong.
            IllegalStateError: it is running already.
            OSError: the health file cannot be written.
        """
        if self._supervisor is not None:
            raise IllegalStateError("this service is running already: one lifespan at a time")
        if self._unstarted is not None:
            self._unstarted = START_FAILED  # unless the next lines succeed
        lives = {
            name: Life(name, loop, self._policy, self._follower(name), self._observers)
            for name, loop in self._given.items()
        }
        self._warn(lives)
        if self._health_file is not None:
            self._health_file.touch()
        self._lives = list(lives.values())
        for name, each in lives.items():
            self._loops[name].begin(each)
        supervisor = self._supervisor = Supervisor(self._on_task_failed)
        await supervisor.start()
        self._unstarted = None
        try:
            for name, each in lives.items():
                supervisor.spawn(f"loop {name}", each.run)
            supervisor.spawn("looks", self._keep_looking)
            if self._metrics is not None:
                self._metrics.begin()
            if self._is_watched:
                supervisor.spawn("samples", self._keep_sampling)
            with hearing_sigterm(self._begin_stop) if self._drains_on_signal else nullcontext():
                yield
        finally:
            # In a task of its own: whoever is cancelled here, even twice, leaves it running.
            self._ending = start_task("end of the service", partial(self._stop, supervisor))
            with anyio.CancelScope(shield=True):
                await asyncio.shield(self._ending)

    def __getitem__(self, name: str) -> SupervisedLoop:
        """The loop of this name.

        Raises:
            KeyError: there is none; the message names those that there are.
        """
        if name not in self._loops:
            raise KeyError(f"no loop is called {name!r}; there are {', '.join(self._loops)}")
        return self._loops[name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The probes, as an ASGI application: mount it anywhere, or serve it alone, with a lifespan of its own."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._application(scope, receive, send)

    # Its life.

    def _warn(self, lives: dict[str, Life]) -> None:
        """Tell what the settings of these consumers mean inside a server's process."""
        consumers = {name: each.consumer for name, each in lives.items()}
        members = {name: each for name, each in consumers.items() if each and each.config.group_id is not None}
        shared = tuple(name for name, each in members.items() if not each.config.heartbeat_thread)
        if shared:
            lives[shared[0]].emit(events.EventLoopShared(shared))
        for name, each in members.items():
            if each.config.instance_id is not None and multiprocessing.parent_process() is not None:
                lives[name].emit(events.StaticNameInWorker(name, each.config.instance_id))

    async def _keep_looking(self) -> None:
        """Note each change of state soon after it, so that the probes know since when; touch the health file."""
        while True:
            is_live = self._snapshot().is_live
            if self._health_file is not None and is_live:
                with suppress(OSError):  # its age tells
                    self._health_file.touch()
            await sleep_ms(LOOK_EVERY_MS)

    async def _keep_sampling(self) -> None:
        try:
            while True:
                await self._state.sample()
                await sleep_ms(SAMPLE_EVERY_MS)
        except Exception as error:  # noqa: BLE001 (what is only shown ends no consumer)
            self._tell_of_all("samples", error)

    def _follower(self, name: str) -> Follow | None:
        return self._state.watched[name].follow if self._is_watched else None

    def _begin(self, work: Work) -> None:
        if self._supervisor is not None:
            self._supervisor.begin("question", work).add_done_callback(self._on_answered)

    def _on_answered(self, answered: asyncio.Future[None]) -> None:
        error = None if answered.cancelled() else answered.exception()
        if error is not None and not isinstance(error, ConsumerStoppedError):
            self._tell_of_all("question", error)

    def _tell_of_all(self, task: str, error: BaseException) -> None:
        for each in self._lives:
            each.emit(events.TaskFailed(task, repr_of(error)))

    def _begin_stop(self) -> None:
        supervisor = self._supervisor
        if supervisor is not None and not self._stops:
            self._stops = {supervisor.begin("stop", each.stop) for each in self._lives}

    async def _stop(self, supervisor: Supervisor) -> None:
        try:
            self._begin_stop()
            await asyncio.wait(self._stops)
            if supervisor.failure is not None:  # no task was begun any more
                for each in self._lives:
                    await each.stop()
            if not await supervisor.close(CANCELLED_MS):
                for name, each in zip(self._given, self._lives, strict=True):
                    if not each.has_ended:
                        each.emit(events.BodyNotEnded(name, self._policy.stop_timeout_ms))
        finally:
            self._stops, self._supervisor = set(), None
            if self._metrics is not None:
                await self._metrics.end()

    def _on_task_failed(self, name: str, error: BaseException) -> None:
        """All tasks end with one that died, as when the application cancels every task: nothing starts them again."""
        for each in self._lives:
            each.on_task_failed(name, error)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        phase = "startup"
        try:
            async with self.running():
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
        except Exception:  # noqa: BLE001 (the server tells it)
            await send({"type": f"lifespan.{phase}.failed", "message": traceback.format_exc()})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    # How it is.

    def _snapshot(self) -> Snapshot:
        looks = {name: look for name, each in self._loops.items() if (look := each.look()) is not None}
        return Snapshot(looks, self._ready, self._unready_after_ms, self._probed_unstarted())

    def _probed_unstarted(self) -> Health | None:
        """How the service is if it has never run; the log says at the first probe that nobody started it."""
        if self._unstarted is NOT_STARTED and not self._is_told_unstarted:
            self._is_told_unstarted = True
            event = events.ServiceNotStarted(tuple(self._loops), NOT_STARTED.why)
            Observers(Log(None, ""), self._observers).emit(event)
        if self._unstarted is None:
            return None
        return dataclasses.replace(self._unstarted, since_ms=self._probed_since.ms("unstarted", now_ms()))

    def _details(self) -> dict[str, object]:
        """Each loop with what is known of it and its lags, also one that has ended as it may."""
        loops = {
            name: {**each.details(), "lags": {f"{tp.topic}-{tp.partition}": lag for tp, lag in each.lags().items()}}
            for name, each in self._loops.items()
        }
        return {"pid": os.getpid(), "loops": loops}
