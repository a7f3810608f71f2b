"""The group's coordinator: who it is, and the lock under which the group's tasks speak to it.

The lock guards the membership and the *writing* of a request: check the state, write the bytes, release. It is never
held while an answer is awaited, and connections are made before it is taken.

`CoordinatorLine` is what heartbeats need; with `heartbeat_thread` there is a second one, in the thread.
`Coordinator` is the main loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import anyio

from aiogroup._core.changes import Change, Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.membership.facts import CoordinatorGone, Fact, NameNotCarried
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.member import Member, Membership
from aiogroup._core.membership.remedies import Remedy, Rpc, not_authorized_error, remedy_for
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.schema import R_co, Request
from aiogroup._core.protocol.versions import first_error_code
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.loop.clock import Signal, now_ms, timeout_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.net.connection import Connection, OnAnswer
from aiogroup._runtime.net.link import COMMIT, HEARTBEAT, JOIN, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    ConnectionLostError,
    KafkaTimeoutError,
    ProtocolError,
)

__all__ = ["Coordinator", "CoordinatorLine", "Written"]

UNKNOWN_NODE = -1
NO_COORDINATOR: Final = FoundCoordinator(
    key="", node_id=UNKNOWN_NODE, host="", port=0, error_code=0, error_message=None
)
FIRST_WITH_NAMES = 5
"""The first version of JoinGroup with `group_instance_id` (KIP-345)."""


class Written(NamedTuple):
    """A request that was written, and how long its answer is waited for."""

    node_id: int
    connection: Connection
    answer: asyncio.Future[Any]
    timeout: int


class CoordinatorLine:
    """Speaks to the coordinator for a member. `membership` is changed under the lock, or by code that awaits
    nothing. Without the right `needs` on the group nothing that is asked here can be done.
    """

    membership: Member
    has_news: Callable[[], bool] | None = None
    """While there is a heartbeat thread: whether it knows something that this loop has not heard yet."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        changes: Changes[Signal],
        emit: Emit,
        membership: Member,
        *,
        needs: str = "READ",
    ) -> None:
        self.membership = membership
        # To take a free lock does not let the loop run: meanwhile other requests would overtake a heartbeat.
        self.lock = anyio.Lock(fast_acquire=True)
        self.node_id = UNKNOWN_NODE
        self._unknown_since_ms: int | None = None  # while the coordinator is looked for
        self._left_open_at = UNKNOWN_NODE
        self._config = config
        self._link = link
        self._changes = changes
        self._emit = emit
        self._finding = asyncio.Lock()
        self._was_found = False
        self._group_id = membership.identity.group_id
        self._needs = needs

    @property
    def identity(self) -> Identity:
        return self.membership.identity

    async def report(self, fact: Fact) -> None:
        """Give the membership a fact; tasks that wait for the group check again."""
        async with self.lock:
            self.handle(fact)

    def handle(self, fact: Fact) -> None:
        """As `report`, for a caller that holds the lock, or that runs to completion without an await."""
        self.membership.handle(fact, now_ms())
        self._on_changed()

    def _on_changed(self) -> None:
        self._changes.tell(Change.MEMBER)

    async def find(self) -> int:
        """The coordinator's node id, looked up until it is found.

        Raises:
            AiogroupError: an error that no retry mends (not authorized, unsupported version, wrong credentials).
        """
        async with self._finding:
            retries = Retries(self._config)
            if self.node_id == UNKNOWN_NODE:
                self._unknown_since_ms = now_ms()
            while self.node_id == UNKNOWN_NODE:
                try:
                    await self._look_up()
                except AiogroupError as error:
                    if not error.retriable and not isinstance(error, ConnectionLostError | KafkaTimeoutError):
                        raise
                    await retries.back_off()
            return self.node_id

    def searched_ms(self, now: int) -> int:
        """For how long the coordinator has been looked for; 0 while it is known."""
        is_known = self.node_id != UNKNOWN_NODE or self._unknown_since_ms is None
        return 0 if is_known else now - (self._unknown_since_ms or now)

    def lose(self, why: str, *, is_expected: bool = False, by_one_connection: bool = False) -> None:
        """The coordinator moved or is silent: close its connections, so that nothing waits for it any longer.

        If only one connection broke, the others stay open until the coordinator is found elsewhere, or is silent: on
        one of them a JoinGroup may wait, which nothing says will not be answered.
        """
        node_id, self.node_id = self.node_id, UNKNOWN_NODE
        if node_id == UNKNOWN_NODE or self._link.is_closed:
            return  # a stop closes connections under the application's last requests: the coordinator is not lost
        self._emit(events.CoordinatorLost(node_id, why, is_expected))
        if by_one_connection:
            self._left_open_at = node_id
        else:
            self._link.disconnect(node_id, JOIN, HEARTBEAT, COMMIT)
        self._on_changed()

    async def get_ready(self, channel: str, timeout: int) -> None:
        """Open a connection before it is needed. An error is not raised here: the caller that needs the connection gets
        it.
        """
        with suppress(AiogroupError, TimeoutError):
            async with timeout_ms(timeout):
                await self._link.get_ready(await self.find(), channel)

    def write_at_once(
        self,
        channel: str,
        timeout: int,
        request: Callable[[], Request[R_co] | None],
        *,
        at_most: int | None = None,
        on_answer: OnAnswer[R_co] | None = None,
    ) -> Written | None:
        """Write a request as `exchange` does, if that needs no wait: else, or if there is nothing to send, `None`.

        `on_answer` gets the answer in the step that reads it. What it did not take, `exchange` takes as `written`.
        """
        node_id = self.node_id
        # The thread may have learnt that the membership is over.
        may_write = not self.lock.locked() and (self.has_news is None or not self.has_news())
        connection = self._link.ready(node_id, channel) if may_write else None
        if connection is None:
            return None
        try:
            self._check_name_is_carried(connection)
            message = request()
            if message is None:
                return None
            answer = connection.write(message, at_most=at_most, on_answer=on_answer)
        except Exception:  # noqa: BLE001 (`exchange` raises it)
            return None
        connection.take(answer, timeout)
        return Written(node_id, connection, answer, timeout)

    async def exchange(
        self,
        channel: str,
        timeout: int,
        request: Callable[[], Request[R_co] | None],
        *,
        at_most: int | None = None,
        written: Written | None = None,
    ) -> R_co | None:
        """Find the coordinator, make the request under the lock and write it; then wait for the answer.

        `request` looks at the membership and returns `None` when there is nothing to send any more; then the answer is
        `None` too. `timeout` covers all of it, including the look-up. If it is `written` already, only the answer is
        taken.

        Raises:
            AiogroupError: no answer; the coordinator is looked up again next time.
        """
        node_id, is_connected = (UNKNOWN_NODE, False) if written is None else (written.node_id, True)
        try:
            async with timeout_ms(timeout):
                if written is None:
                    node_id = await self.find()
                    connection = await self._link.connect(node_id, channel)
                    is_connected = True
                    if channel != HEARTBEAT:
                        await self._link.give_way()
                    async with self.lock:
                        self._check_name_is_carried(connection)
                        message = request()
                        if message is None:
                            return None
                        answer = connection.write(message, at_most=at_most)
                    written = Written(node_id, connection, answer, timeout)
                response: R_co = await written.connection.answer(written.answer, timeout)
        except TimeoutError as error:
            # The request may still be answered, and would hold up the requests written after it.
            self._link.disconnect(node_id, channel)
            if channel == JOIN and written is not None:
                # It may rightly wait for another member. A silent coordinator is lost when the next connection is made.
                raise KafkaTimeoutError(
                    f"no answer within {timeout} ms: group {self._group_id!r} waits for another member, whose "
                    "max_poll_interval_ms (rebalance_timeout_ms) is longer than ours, or its coordinator is silent"
                ) from error
            if timeout >= self._config.request_timeout_ms and self.node_id == node_id:
                self.lose(f"no answer within {timeout} ms")
            # An error of the connection's own time-out has a message of its own.
            done = "was not found" if node_id == UNKNOWN_NODE else "did not answer"
            why = str(error) or f"the coordinator of {self._group_id!r} {done} within {timeout} ms"
            raise KafkaTimeoutError(why) from error
        except (ConnectionLostError, ProtocolError) as error:
            if self.node_id == node_id:
                self.lose(str(error), by_one_connection=is_connected)
            if isinstance(error, ProtocolError):  # the connection is closed, so the caller must see it as lost
                raise ConnectionLostError(str(error)) from error
            raise
        self._link.note_throttle(node_id, response)
        return response

    def _check_name_is_carried(self, connection: Connection) -> None:
        """A broker before Kafka 2.3 knows no static members: then we are a dynamic member in every request
        (KIP-345).
        """
        name = self.membership.identity.instance_id
        if name is None or (version := connection.version_of(JoinGroupRequest)) >= FIRST_WITH_NAMES:
            return
        self._emit(events.StaticMembershipDowngraded(name, self.node_id, version))
        self.handle(NameNotCarried())

    async def leave(self, request: LeaveGroupRequest) -> None:
        """Report to the coordinator that a member is gone, so that it need not wait for the session to end.

        Raises:
            AiogroupError: no answer within `request_timeout_ms`, or a refusal; then the session ends by itself.
        """
        response = await self.exchange(HEARTBEAT, self._config.request_timeout_ms, lambda: request)
        code = 0 if response is None else first_error_code(response)
        if remedy_for(Rpc.LEAVE_GROUP, code) not in (Remedy.PROCEED, Remedy.DONE):
            row = lookup(code)
            raise BrokerError(
                code, row.name, f"leaving group {self._group_id!r}: {row.message}", retriable=row.retriable
            )

    async def look_again(self, timeout: int) -> None:
        """Ask who the coordinator is, and at which address, while one that does not answer is believed in: if it moved,
        its connections are closed, and whoever waits for an answer on them hears of it.
        """
        if self._finding.locked():
            return
        async with self._finding:
            with suppress(AiogroupError):
                await self._look_up(timeout)

    async def _look_up(self, timeout: int | None = None) -> None:
        request = FindCoordinatorRequest(coordinator_keys=(self._group_id,))
        response = await self._link.ask_any(request, timeout, near=not self._was_found)
        found = next(iter(response.coordinators), NO_COORDINATOR)
        match remedy_for(Rpc.FIND_COORDINATOR, found.error_code):
            case Remedy.PROCEED if found.node_id >= 0:
                pass
            case Remedy.PROCEED:
                raise BrokerError(
                    -1, "UNKNOWN_SERVER_ERROR", f"the answer names no coordinator of {self._group_id!r}", retriable=True
                )
            case Remedy.NOT_AUTHORIZED:
                raise not_authorized_error(self._group_id, self._needs)
            case remedy:
                row = lookup(found.error_code)
                raise BrokerError(
                    found.error_code, row.name, f"looking for the coordinator of {self._group_id!r}: {row.message}",
                    retriable=remedy is Remedy.RETRY,
                )  # fmt: skip
        self._link.know_address(found.node_id, found.host, found.port)
        if self.node_id == found.node_id:
            return
        if self.node_id != UNKNOWN_NODE:
            self.lose(f"node {found.node_id} is the coordinator now")
        if self._left_open_at not in (UNKNOWN_NODE, found.node_id):
            self._link.disconnect(self._left_open_at, JOIN, HEARTBEAT, COMMIT)
        self.node_id, self._left_open_at = found.node_id, UNKNOWN_NODE
        self._was_found = True
        self._emit(events.CoordinatorFound(found.node_id))
        self._on_changed()


class Coordinator(CoordinatorLine):
    """Speaks for the group's tasks of the main loop, and wakes the application.

    `on_changed()` is called after every change that the heartbeat thread must know of, and `leave_by` has it send
    LeaveGroup. Both are set while there is a thread.
    """

    membership: Membership

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        membership: Membership,
    ) -> None:
        super().__init__(config, link, changes, emit, membership)
        self.on_changed: Callable[[], None] = lambda: None
        self.leave_by: Callable[[LeaveGroupRequest], Awaitable[None]] | None = None
        self._delivery = delivery

    def _on_changed(self) -> None:
        if self.membership.is_rebalancing:
            self._delivery.close_cursor()
        super()._on_changed()
        self.on_changed()

    def lose(self, why: str, *, is_expected: bool = False, by_one_connection: bool = False) -> None:
        if self.node_id != UNKNOWN_NODE:
            self.membership.handle(CoordinatorGone(), now_ms())
        super().lose(why, is_expected=is_expected, by_one_connection=by_one_connection)

    async def leave(self, request: LeaveGroupRequest) -> None:
        await (super().leave(request) if self.leave_by is None else self.leave_by(request))
