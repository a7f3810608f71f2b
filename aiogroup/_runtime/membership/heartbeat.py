"""The heartbeat task: it keeps its own deadline, whatever the application, a callback or a rebalance is doing.

It runs in the main loop, or with `heartbeat_thread` in the loop of that thread (`heartbeat_thread.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import anyio

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.membership.facts import Failed, HeartbeatAnswered
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.liveness import HeartbeatClock
from aiogroup._core.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup._core.membership.settings import session_of
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.loop.clock import FOREVER_MS, Signal, are_done, now_ms, timeout_ms
from aiogroup._runtime.net.link import HEARTBEAT
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, AuthenticationFailedError, GroupAuthorizationError

__all__ = ["Heartbeat"]

LATE_MS: Final = 50
"""A heartbeat that is later than this was held up by a blocked loop: a free loop wakes its tasks sooner."""

DOUBTS_IN_A_SESSION: Final = 4
"""After this part of a session without an answer the coordinator may have moved, and packets to its former address may
be dropped: nothing closes the connection. The other brokers tell where it is while the session lasts.

If the coordinator answers after all, it was only slow: the next doubt comes after twice that time, until an answer is
quick again. Overloaded brokers must not get more questions, least of all over new connections.
"""


class Heartbeat:
    """Sends heartbeats. `on_count(until_ms)` is called with each new `counts_until_ms`."""

    def __init__(
        self,
        config: ConsumerConfig,
        changes: Changes[Signal],
        emit: Emit,
        coordinator: CoordinatorLine,
        on_count: Callable[[int], None] = lambda _until_ms: None,
    ) -> None:
        self._on_count = on_count
        self._config = config
        self._changes = changes
        self._emit = emit
        self._coordinator = coordinator
        self._identity: Identity | None = None
        self.clock = HeartbeatClock(config.heartbeat_interval_ms, config.session_timeout_ms, now_ms())
        self.acknowledged_at_ms: int | None = None
        self.counts_until_ms = FOREVER_MS
        """Until then we are a member, as far as we know: one session after the coordinator's last answer.

        It is replaced as a whole: the main loop reads it while the heartbeat thread sets it.
        """
        self._doubt_ms = self._quick_ms = config.session_timeout_ms // DOUBTS_IN_A_SESSION

    async def run(self) -> None:
        while True:
            membership = self._coordinator.membership
            now = now_ms()
            identity = membership.heartbeats_as
            if identity is None:
                self._identity = None
                self._count_until(FOREVER_MS)  # the group's partitions are given up: no delivery has to stop in time
                await self._changes[Waiter.MEMBER].wait()
            elif identity != self._identity:
                self._identity = identity
                self.clock.on_joined(now)
                self._restart_count(now)
                # Connect now: a loop that is blocked until the first heartbeat is due has no time for a handshake then.
                await self._coordinator.get_ready(HEARTBEAT, self.clock.due_at_ms - now)
            elif self.clock.is_session_over(now) and self._coordinator.node_id >= 0:
                if self.clock.is_answered:
                    self.clock.start_session_over(now)  # the loop was blocked: ask before giving anything up
                else:
                    self._give_up_coordinator()
            elif now >= self.clock.due_at_ms:
                await self._beat(identity)
            else:
                await self._changes[Waiter.MEMBER].wait(until_ms=self.clock.due_at_ms)

    def is_late(self) -> bool:
        """The loop was blocked when a heartbeat was due: a task that wakes up before this one lets it go first."""
        if now_ms() <= self.clock.due_at_ms + LATE_MS:
            return False
        identity = self._coordinator.membership.heartbeats_as
        return identity is not None and identity == self._identity

    def _count_until(self, until_ms: int) -> None:
        if until_ms != self.counts_until_ms:
            self.counts_until_ms = until_ms
            self._on_count(until_ms)

    def _restart_count(self, now: int) -> None:
        """The coordinator has just shown that it counts this member."""
        assert self._identity is not None
        is_over = now >= self.counts_until_ms
        _, session_ms = session_of(self._config, self._identity)
        self._count_until(now + session_ms)
        if is_over:
            self._changes.tell(Change.MEMBER)  # the outage that the session watchdog reported is over

    def _give_up_coordinator(self) -> None:
        """No answer came for a whole session (KIP-62): look for another coordinator, and keep the generation."""
        config = self._config
        self._emit(events.HeartbeatMissed(f"no answer for session_timeout_ms={config.session_timeout_ms}"))
        self._coordinator.lose(f"no heartbeat answered for {config.session_timeout_ms} ms")
        self.clock.start_session_over(now_ms())

    async def _beat(self, identity: Identity) -> None:
        sent_at_ms = now_ms()
        self.clock.on_sent(sent_at_ms)
        left_ms = max(1, self.clock.session_ends_at_ms - sent_at_ms)

        def request() -> HeartbeatRequest | None:
            if self._coordinator.membership.heartbeats_as != identity:
                return None
            self._emit(events.HeartbeatSent(identity.generation))
            return HeartbeatRequest(
                group_id=identity.group_id,
                generation_id=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
            )

        limit_ms = self._config.request_timeout_ms
        try:
            # The session deadline runs from the last answer. It also covers connecting and looking up the coordinator.
            async with timeout_ms(left_ms):
                if written := self._coordinator.write_at_once(HEARTBEAT, limit_ms, request):
                    await self._wait_and_doubt(written.answer)
                response = await self._coordinator.exchange(HEARTBEAT, limit_ms, request, written=written)
        except AiogroupError as error:
            if isinstance(error, GroupAuthorizationError | AuthenticationFailedError):
                await self._coordinator.report(Failed(error))
                return
            self._emit(events.HeartbeatMissed(str(error)))
            self.clock.on_failed(now_ms(), self._config.retry_backoff_ms)
            return
        except TimeoutError:  # the session ended; a request that timed out raised KafkaTimeoutError, caught above
            self._give_up_coordinator()
            return
        if response is not None:
            await self._take_answer(identity, response.error_code, sent_at_ms)

    async def _wait_and_doubt(self, answer: asyncio.Future[Any]) -> None:
        """Wait until there is an answer, or the connection is closed, since the coordinator was found elsewhere."""
        began_at_ms, doubts_count = now_ms(), 0
        while not await are_done((answer,), self._doubt_ms):
            doubts_count += 1
            looking = anyio.CancelScope()

            def end(_: object, looking: anyio.CancelScope = looking) -> None:
                looking.cancel()

            answer.add_done_callback(end)
            with looking:
                await self._coordinator.look_again(self._doubt_ms)
            answer.remove_done_callback(end)
        if answer.cancelled() or answer.exception() is not None:
            return
        if doubts_count:
            self._doubt_ms = min(2 * self._doubt_ms, self._config.session_timeout_ms)
        elif now_ms() - began_at_ms < self._quick_ms:
            self._doubt_ms = self._quick_ms

    async def _take_answer(self, identity: Identity, error_code: int, sent_at_ms: int) -> None:
        now = now_ms()
        remedy = remedy_for(Rpc.HEARTBEAT, error_code)
        if remedy in (Remedy.PROCEED, Remedy.REJOIN):
            self.clock.on_acknowledged(now)
            self.acknowledged_at_ms = now
            if identity == self._identity:
                self._restart_count(now)
            self._emit(events.HeartbeatAcknowledged(identity.generation, now - sent_at_ms))
        else:
            # A round that ended meanwhile refuses it. If the round ended without this member, its partitions are lost.
            was_overtaken = remedy is Remedy.NEXT_GENERATION
            self._emit(events.HeartbeatMissed(lookup(error_code).name, is_expected=was_overtaken))
            self.clock.on_failed(now, self._config.retry_backoff_ms)
        if remedy is Remedy.REDISCOVER:
            self._coordinator.lose(lookup(error_code).name)
        if remedy is not Remedy.PROCEED:
            await self._coordinator.report(HeartbeatAnswered(identity, error_code))
