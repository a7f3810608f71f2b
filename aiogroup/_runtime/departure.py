"""How a member ends: its rebalance and callback finish, then it commits, calls the application's callback, and leaves
the group.
"""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership import facts as f
from aiogroup._core.subscription import Subscription
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.stages import Stages
from aiogroup._runtime.membership.rebalance import Rebalance
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["Departure", "Leaver"]


class Leaver(Protocol):
    """The group, or no group, as a stop sees it."""

    async def come_to_rest(self, stages: Stages) -> None:
        """As `Departure.come_to_rest`."""

    def end_tasks(self) -> None:
        """End rebalances and automatic commits; heartbeats go on until the supervisor ends them."""

    async def leave(self, stages: Stages, *, leave_group: bool | None) -> dict[TopicPartition, int]:
        """As `Departure.leave`."""


class Departure:
    def __init__(
        self,
        config: ConsumerConfig,
        assignment: Assignment,
        changes: Changes[Signal],
        subscription: Subscription,
        coordinator: Coordinator,
        commits: OwnCommits,
        rebalance: Rebalance,
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._changes = changes
        self._subscription = subscription
        self._coordinator = coordinator
        self._commits = commits
        self._rebalance = rebalance

    async def come_to_rest(self, stages: Stages) -> None:
        """Wait until no rebalance is under way and no callback is running; no new rebalance begins."""
        await self._commits.let_commit(self._assignment)
        await stages.run("a join that was running", self._wait_for_join(), stages.left_ms() // 2)
        self._rebalance.end()
        await stages.run("a callback that was running", self._wait_for_callback(), stages.left_ms() // 2)

    async def leave(self, stages: Stages, *, leave_group: bool | None) -> dict[TopicPartition, int]:
        """Commit, call the callbacks and leave the group, when no rebalance runs any more. Returns the offsets that
        could not be committed.
        """
        self._commits.committer.stop()  # the rebalance that held them back was ended with its tasks
        if self._subscription.is_manual:
            await stages.run("commit", self._commit(stages))
            not_committed = self._left_over()
            await stages.run("commits on their way", self._wait_for_commits(stages))
            return not_committed
        ownership, membership = self._rebalance.ownership, self._coordinator.membership
        sender = membership.commits_as
        if sender is not None and sender.is_member and self._assignment:
            # The group waits for a member that does not leave: the stages before keep time for LeaveGroup.
            await stages.run("commit", self._commit(stages), stages.left_ms() // 2)
            callbacks = ownership.callbacks
            if callbacks.announced:  # empty between the end of a round and its assigned callback
                await stages.run_apart("revoked callback", callbacks.revoked(callbacks.announced), stages.left_ms())
            await stages.run("commit", self._commit(stages), stages.left_ms())
            # While the partitions are ours. LeaveGroup has another connection than commits, and then none is accepted.
            await stages.run("commits on their way", self._wait_for_commits(stages))
            not_committed = self._left_over()
            ownership.drop_all()
        else:
            not_committed = self._left_over()
            await stages.run_apart("lost callback", ownership.lose("the consumer is stopped"), stages.left_ms())
            await stages.run("commits on their way", self._wait_for_commits(stages))
        even_static = leave_group is True
        leave = None if leave_group is False else membership.leave_request("stop", even_static=even_static)
        self._coordinator.handle(f.LeaveWanted("stop"))
        if leave is not None:
            await stages.run("LeaveGroup", self._coordinator.leave(leave))
        return not_committed

    async def _wait_for_join(self) -> None:
        """Wait for a join that is under way: the partitions kept through it (cooperative) can be committed once it is
        decided. If it is not in time, the coordinator waits for others, and takes commits under the former generation.
        """
        membership = self._coordinator.membership
        while self._assignment and membership.awaits_round and not self._subscription.is_manual:
            await self._changes[Waiter.LEAVING].wait()

    async def _wait_for_callback(self) -> None:
        while self._rebalance.ownership.callbacks.is_running:
            await self._changes[Waiter.LEAVING].wait()

    async def _wait_for_commits(self, stages: Stages) -> None:
        if not await self._commits.committer.settled(stages.left_ms()):
            raise TimeoutError

    async def _commit(self, stages: Stages) -> None:
        if self._config.enable_auto_commit:
            entries = self._commits.processed(self._assignment)
            if entries:
                attempt = self._commits.attempt(entries, max(1, stages.until_ms - now_ms()))
                await self._commits.committer.carry_out(attempt)

    def _left_over(self) -> dict[TopicPartition, int]:
        if not self._config.enable_auto_commit:
            # The application commits by itself: report what failed.
            return self._commits.committer.commits.not_durable()
        return {tp: entry.offset for tp, entry in self._commits.processed(self._assignment).items()}
