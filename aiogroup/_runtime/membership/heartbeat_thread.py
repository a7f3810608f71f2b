"""Heartbeats from a thread with a loop and a connection of its own, for applications that block theirs.

Theory of operation
-------------------
The thread runs the heartbeat task and the poll watchdog, which else run in the main loop, over a `CoordinatorLine` of
its own. The member itself stays in the main loop; the thread has a `ThreadMember` in its place. Two things cross the
border:

- From the main loop to the thread: a `MemberSnapshot` after each change of identity, state, coordinator or brokers. It
  is one immutable value with one reference, so the thread never reads half of an old one and half of a new one. The
  instant at which the application was last seen (`PollClock.running_since_ms`) is one value too, read without a lock.
- From the thread to the main loop: facts, all of which are kept until the main loop takes them, and events, of which
  the newest are kept. The main loop applies them before anything that the application does next, and drops facts about
  an older identity.

The thread decides some things alone, because it cannot wait for a main loop that may be blocked for long:

- A rebalance (REBALANCE_IN_PROGRESS): heartbeats go on, and the coordinator takes each for a sign of life. The member
  rejoins when the main loop runs again, if that is before the group's rebalance time-out.
- The member is unknown or fenced, or its generation is over: heartbeats end at once.
- The poll interval passed: heartbeats end and LeaveGroup is sent (a static member goes silent), as in Java. The main
  loop parks the member when it runs again; the lost callback runs with the next request for records.
- The coordinator moved, or does not answer: the thread looks for it over its own connections, beginning with the
  brokers that the main loop last knew.

The thread cannot join for the member. A main loop that is blocked for a session between JoinGroup and its answer costs
the membership: nobody reads the answer, which says under which generation the heartbeats must go out.

The thread lives as long as the task that runs `run`. It also ends when the consumer is forgotten, and when its main
loop was closed without that task being cancelled, which it notices at the next fact or event. It is a daemon, so a
process that ends does not wait for it. A consumer does not survive a fork, with or without this thread: make it in the
child.
Instants of both loops are compared, as both read the system's monotonic clock (asyncio's loop and uvloop's do). The
thread needs the interpreter now and then: a call that blocks without releasing the GIL stops it too.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from aiogroup._core.changes import Change, Changes
from aiogroup._core.membership.facts import Fact
from aiogroup._core.membership.liveness import PollClock, PollDeadlines
from aiogroup._core.membership.thread_member import MemberSnapshot, ThreadMember
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit, Event
from aiogroup._runtime.coordinator import UNKNOWN_NODE, Coordinator, CoordinatorLine
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, mono_ms, timeout_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import start_thread
from aiogroup._runtime.membership.heartbeat import Heartbeat
from aiogroup._runtime.membership.poll_watchdog import PollWatchdog
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConsumerStoppedError

__all__ = ["HeartbeatThread", "News"]

EVENTS_KEPT: Final = 1_000
"""Two for each heartbeat: 25 minutes at the default interval."""
END_MS: Final = 1_000
"""How long the main loop waits for the thread to end, which cancels its tasks and closes its sockets."""


@dataclass(slots=True)
class _News:
    since_ms: int = field(default_factory=mono_ms)
    events: deque[Event] = field(default_factory=deque)
    dropped_count: int = 0
    losses: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """By the id of the coordinator that was lost: why, and whether only by one connection."""
    facts: list[Fact] = field(default_factory=list)


class News:
    """What the main loop has not heard yet: each fact and each loss once, and the newest events.

    Both threads may use it. `wake()` is called when the first item comes after `take` has emptied it.
    """

    def __init__(self, wake: Callable[[], None], most_events: int = EVENTS_KEPT) -> None:
        self._wake = wake
        self._most_events = most_events
        self._lock = threading.Lock()
        self._waiting: _News | None = None

    def take(self) -> _News:
        with self._lock:
            waiting, self._waiting = self._waiting, None
            return waiting or _News()

    def is_waiting(self) -> bool:
        return self._waiting is not None

    @property
    def waiting_since_ms(self) -> int | None:
        """Since when the main loop has not taken the news."""
        waiting = self._waiting
        return None if waiting is None else waiting.since_ms

    def add_event(self, event: Event) -> None:
        self._add(lambda waiting: waiting.events.append(event))

    def add_loss(self, node_id: int, why: str, *, by_one_connection: bool = False) -> None:
        """The coordinator was lost. The main loop ignores this unless it still believes in that node."""

        def put(waiting: _News) -> None:
            _, is_only_one = waiting.losses.get(node_id, ("", True))
            if is_only_one:
                waiting.losses[node_id] = why, by_one_connection

        self._add(put)

    def add_fact(self, fact: Fact) -> None:
        self._add(lambda waiting: waiting.facts.append(fact) if fact not in waiting.facts else None)

    def _add(self, put: Callable[[_News], object]) -> None:
        with self._lock:
            is_first = self._waiting is None
            waiting = self._waiting = self._waiting or _News()
            put(waiting)
            if len(waiting.events) > self._most_events:
                waiting.events.popleft()
                waiting.dropped_count += 1
        if is_first:
            self._wake()


class _ThreadLine(CoordinatorLine):
    """Follows the main loop to the coordinator that it finds, and reports when that coordinator is lost."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        changes: Changes[Signal],
        emit: Emit,
        member: ThreadMember,
        news: News,
    ) -> None:
        super().__init__(config, link, changes, emit, member)
        self._news = news
        self._followed: MemberSnapshot | None = None

    def follow(self, snapshot: MemberSnapshot) -> None:
        before, self._followed = self._followed, snapshot
        if before is None or before.brokers is not snapshot.brokers:
            self._link.know({**self._link.cluster.brokers, **snapshot.brokers})
        if snapshot.node_id != UNKNOWN_NODE and (before is None or before.node_id != snapshot.node_id):
            if self.node_id != snapshot.node_id:
                super().lose("the main loop found another")
            self.node_id = snapshot.node_id
        self._on_changed()

    def lose(self, why: str, *, is_expected: bool = False, by_one_connection: bool = False) -> None:
        if self.node_id != UNKNOWN_NODE:
            self._news.add_loss(self.node_id, why, by_one_connection=by_one_connection)
        super().lose(why, is_expected=is_expected, by_one_connection=by_one_connection)


class _StallClock:
    """The poll clock, which stands still while a request waits for records. But a main loop that does not take the
    thread's news is blocked, so nothing can reach that request: for that time this clock runs.
    """

    def __init__(self, poll_clock: PollClock, news: News) -> None:
        self._poll_clock = poll_clock
        self._news = news

    @property
    def running_since_ms(self) -> int | None:
        clock = self._poll_clock
        since_ms = clock.running_since_ms
        return self._news.waiting_since_ms if since_ms is None and clock.holds_partitions else since_ms

    @property
    def deadlines(self) -> PollDeadlines | None:
        return self._poll_clock.deadlines_of(self.running_since_ms)


class HeartbeatThread:
    """Has the methods of `Heartbeat`, for the main loop; `on_fact` is called with each fact that the thread learns."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        changes: Changes[Signal],
        emit: Emit,
        coordinator: Coordinator,
        poll_clock: PollClock,
        on_fact: Callable[[Fact], None],
        on_count: Callable[[int], None],
    ) -> None:
        self._config = config
        self._link = link
        self._changes = changes
        self._emit = emit
        self._on_count = on_count
        self._coordinator = coordinator
        self._poll_clock = poll_clock
        self._on_fact = on_fact
        self._main_loop = asyncio.get_running_loop()
        self._news = News(self._wake_main_loop)
        self._snapshot = self._snapshot_of(0)
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._ended = asyncio.Event()
        self._leaving: set[Future[None]] = set()
        # The thread's own.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._must_end = asyncio.Event()
        self._supervisor = Supervisor(lambda _name, _error: self._must_end.set())
        self._heartbeat: Heartbeat | None = None
        self._line: _ThreadLine | None = None

    @property
    def acknowledged_at_ms(self) -> int | None:
        return None if self._heartbeat is None else self._heartbeat.acknowledged_at_ms

    @property
    def counts_until_ms(self) -> int:
        return FOREVER_MS if self._heartbeat is None else self._heartbeat.counts_until_ms

    # In the main loop.

    async def run(self) -> None:
        """Start the thread, and end it when cancelled. Raises the error of which the thread died."""
        coordinator = self._coordinator
        self._loop = asyncio.new_event_loop()
        self.publish()
        thread = start_thread("aiogroup heartbeat", self._loop, self._live, self._on_ended)
        coordinator.on_changed, coordinator.leave_by = self.publish, self.leave
        coordinator.has_news = self._news.is_waiting
        self._link.on_brokers = self.publish
        try:
            await self._failed.wait()
        finally:
            coordinator.on_changed, coordinator.leave_by = lambda: None, None
            coordinator.has_news = None
            self._link.on_brokers = lambda: None
            self.end()
            with anyio.CancelScope(shield=True), suppress(TimeoutError):
                async with timeout_ms(END_MS):
                    await self._ended.wait()
                thread.join()  # `_on_ended` was its last call
            for done in self._leaving:
                _settle(done, ConsumerStoppedError("the heartbeat thread ended before the coordinator answered"))
        if self._failure is not None:
            raise self._failure

    def publish(self) -> None:
        """Let the thread see the member as it is now."""
        snapshot = self._snapshot_of(self._snapshot.era)
        if snapshot.identity != self._snapshot.identity:
            snapshot = replace(snapshot, era=snapshot.era + 1)
        if snapshot != self._snapshot and self._loop is not None:
            self._snapshot = snapshot
            with suppress(RuntimeError):  # the thread's loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._follow)

    def _snapshot_of(self, era: int) -> MemberSnapshot:
        coordinator, member, brokers = (
            self._coordinator,
            self._coordinator.membership,
            self._link.cluster.brokers,
        )
        who = member.heartbeats_as
        return MemberSnapshot(
            who or member.identity, who is not None, member.farewell, coordinator.node_id, brokers, era
        )

    async def leave(self, request: LeaveGroupRequest) -> None:
        """As `Coordinator.leave`, over the thread's connection."""
        assert self._loop is not None
        done: Future[None] = Future()
        self._leaving.add(done)
        try:
            self._loop.call_soon_threadsafe(self._begin_to_leave, request, done)
        except RuntimeError as error:
            raise ConsumerStoppedError("the heartbeat thread has ended") from error
        else:
            await asyncio.wrap_future(done)
        finally:
            self._leaving.discard(done)

    def _hear(self) -> None:
        try:
            news = self._news.take()
            if news.dropped_count:
                self._emit(events.HeartbeatEventsDropped(news.dropped_count))
            for event in news.events:
                self._emit(event)
            for node_id, (why, by_one_connection) in news.losses.items():
                if self._coordinator.node_id == node_id:
                    self._coordinator.lose(why, by_one_connection=by_one_connection)
            for fact in news.facts:
                self._on_fact(fact)
            self._changes.tell(Change.MEMBER)  # an answer may have ended an outage
        except Exception as error:  # noqa: BLE001 (a callback of the loop: `run` raises it)
            self._fail(error)

    def _fail(self, error: BaseException | None) -> None:
        self._failure = self._failure or error
        self._failed.set()

    def _take_end(self, error: BaseException | None) -> None:
        self._hear()
        self._fail(error)
        self._ended.set()

    # From any thread.

    def end(self) -> None:
        """Make the thread end; `run` returns then."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread has ended already
                self._loop.call_soon_threadsafe(self._must_end.set)

    # In the thread.

    async def _live(self) -> None:
        config = self._config
        link, changes, emit = Link(config), Changes(Signal), self._emit_later
        member = ThreadMember(lambda: self._snapshot, self._news.add_fact)
        self._line = _ThreadLine(config, link, changes, emit, member, self._news)
        self._heartbeat = Heartbeat(config, changes, emit, self._line, self._on_count)
        stall_clock = _StallClock(self._poll_clock, self._news)
        watchdog = PollWatchdog(config, changes, emit, self._line, stall_clock, lambda: None)
        supervisor = self._supervisor
        await supervisor.start()
        try:
            self._line.follow(self._snapshot)
            supervisor.spawn("heartbeat", self._heartbeat.run)
            supervisor.spawn("poll watchdog", watchdog.run)
            await self._must_end.wait()
        finally:
            await supervisor.close()
            await link.wait_closed(link.close())
        if supervisor.failure is not None:
            raise supervisor.failure

    def _follow(self) -> None:
        if self._line is not None:
            self._line.follow(self._snapshot)

    def _begin_to_leave(self, request: LeaveGroupRequest, done: Future[None]) -> None:
        async def leave() -> None:
            assert self._line is not None
            await self._line.leave(request)

        answered = self._supervisor.begin("LeaveGroup", leave)
        answered.add_done_callback(lambda each: _settle(done, each.exception()))

    def _emit_later(self, event: Event) -> None:
        if not isinstance(event, events.CoordinatorFound | events.CoordinatorLost):  # the main loop emits its own
            self._news.add_event(event)

    def _wake_main_loop(self) -> None:
        try:
            self._main_loop.call_soon_threadsafe(self._hear)
        except RuntimeError:  # the main loop was closed, and nobody ended this thread before
            self._must_end.set()

    def _on_ended(self, error: BaseException | None) -> None:
        with suppress(RuntimeError):
            self._main_loop.call_soon_threadsafe(self._take_end, error)


def _settle(done: Future[None], error: BaseException | None) -> None:
    with suppress(InvalidStateError):
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
