"""How a consumer ends: in order, and never later than its time-out, whatever the brokers do."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiogroup.errors import AiogroupError
from aiogroup.membership import facts as f
from aiogroup.membership.states import MemberState
from aiogroup.runtime.engine import Engine, Group
from aiogroup.runtime.loop.clock import now_ms, timeout_ms
from aiogroup.structs import TopicPartition
from aiogroup.telemetry import events

__all__ = ["Shutdown", "StopReport"]

JOINS: Final = (MemberState.JOINING, MemberState.SYNCING)
LEAVE_RESERVE_MS: Final = 1_000
CLOSE_RESERVE_MS: Final = 250
"""Kept back for closing sockets and ending tasks."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """What `stop` could not do. Empty when everything was done: `is_clean`.

    `not_committed` holds processed offsets that are not durable (with auto-commit off: those that the application's own
    commits could not make durable), `in_hand` how many records of each partition the
    application held unprocessed: both come again. `problems` says why, and what no call raises any more: an error of
    the last callback, for example.
    """

    not_committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    in_hand: Mapping[TopicPartition, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.not_committed or self.in_hand or self.problems)


class Shutdown:
    """One stop. Each step takes what the steps before it left of the time-out, and says what it could not do."""

    def __init__(self, engine: Engine, timeout: int, *, drain: bool, leave_group: bool | None) -> None:
        self._engine = engine
        self._context = engine.context
        self._started_at_ms = now_ms()
        self._until_ms = self._started_at_ms + max(0, timeout - min(CLOSE_RESERVE_MS, timeout // 4))
        self._timeout = timeout
        self._drain = drain
        self._leave_group = leave_group
        self._problems: list[str] = []
        self._not_committed: dict[TopicPartition, int] = {}

    async def run(self) -> StopReport:
        engine, group = self._engine, self._engine.group
        engine.requests.stop()
        in_hand: dict[TopicPartition, int] = {}
        try:
            await self._step("hand-over", self._wait_for_hand_over(), self._timeout // 2)
            if group is not None:
                await self._step("a join that was running", self._wait_for_join(group), self._left_ms() // 2)
                group.rebalance.is_ending = True
                await self._step("a callback that was running", self._wait_for_callback(group), self._left_ms())
            engine.end_group_tasks()
            in_hand = self._context.delivery.in_hand()
            if group is not None:
                group.committer.is_stopping = True
                await self._leave_in_order(group)
        finally:
            await self._close()
        self._problems += [f"not raised any more: {error!r}" for error in self._context.inbox.take_rest()]
        report = StopReport(self._not_committed, in_hand, tuple(self._problems))
        self._context.tell(events.ConsumerStopped(report.is_clean, now_ms() - self._started_at_ms))
        return report

    async def _leave_in_order(self, group: Group) -> None:
        ownership, assignment = group.rebalance.ownership, self._context.assignment
        if self._engine.subscription.is_manual:
            await self._step("commit", self._commit(group))
            self._not_committed = self._left_over(group)
            await self._step("commits on their way", self._wait_for_commits(group))
            return
        membership = group.membership
        if membership.identity.is_member and membership.state not in JOINS and assignment:
            # The others wait for a member that does not say good-bye: whatever comes before leaves time for that.
            await self._step("commit", self._commit(group), self._left_ms() // 2)
            await self._step("revoked callback", ownership.callbacks.revoked(ownership.callbacks.told), self._left_ms())
            await self._step("commit", self._commit(group), self._left_ms())
            self._not_committed = self._left_over(group)
            ownership.drop_all()
        else:
            self._not_committed = self._left_over(group)
            await self._step("lost callback", ownership.lose("the consumer is stopped"), self._left_ms())
        # LeaveGroup goes another way than commits do, and who has left commits nothing any more.
        await self._step("commits on their way", self._wait_for_commits(group))
        even_static = self._leave_group is True
        leave = None if self._leave_group is False else membership.leave_request("stop", even_static=even_static)
        group.coordinator.handle(f.LeaveWanted("stop"))
        if leave is not None:
            await self._step("LeaveGroup", group.coordinator.leave(leave))

    async def _wait_for_hand_over(self) -> None:
        """The application's tasks may finish what they hold; the task that stops the consumer cannot."""
        while self._drain and self._engine.requests.is_held_elsewhere():
            await self._context.group_changed.wait(now_ms() + 50)

    async def _wait_for_join(self, group: Group) -> None:
        """What is kept through it can be committed when it is decided (cooperative)."""
        while self._context.assignment and group.membership.state in JOINS and not self._engine.subscription.is_manual:
            await self._context.group_changed.wait(now_ms() + 50)

    async def _wait_for_callback(self, group: Group) -> None:
        while group.rebalance.ownership.callbacks.is_running:
            await self._context.group_changed.wait(now_ms() + 50)

    async def _wait_for_commits(self, group: Group) -> None:
        if not await group.committer.settled(self._left_ms()):
            raise TimeoutError

    async def _commit(self, group: Group) -> None:
        if self._context.config.enable_auto_commit:
            entries = group.committer.processed(self._context.assignment)
            if entries:
                await group.committer.commit(entries, max(1, self._until_ms - now_ms()), automatic=True)

    def _left_ms(self) -> int:
        """What is left of the time-out for all but LeaveGroup."""
        return max(0, self._until_ms - min(LEAVE_RESERVE_MS, self._timeout // 4) - now_ms())

    def _left_over(self, group: Group) -> dict[TopicPartition, int]:
        if not self._context.config.enable_auto_commit:
            return group.committer.failed()  # what to commit is the application's own business, and so it tried
        return {tp: entry.offset for tp, entry in group.committer.processed(self._context.assignment).items()}

    async def _step(self, what: str, work: Awaitable[object], limit_ms: int | None = None) -> None:
        until_ms = self._until_ms if limit_ms is None else min(self._until_ms, now_ms() + limit_ms)
        try:
            async with timeout_ms(until_ms - now_ms()):
                await work
        except TimeoutError:
            self._problems.append(f"{what}: not done in time")
        except AiogroupError as error:
            self._problems.append(f"{what}: {error}")

    async def _close(self) -> None:
        left_ms = max(50, self._started_at_ms + self._timeout - now_ms())
        try:
            async with timeout_ms(left_ms):
                await self._engine.close()
        except TimeoutError:
            self._problems.append("closing: a task did not end in time")
