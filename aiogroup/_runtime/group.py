"""The group that a consumer is in, or none, as the consumer's other parts see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import anyio

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.following import (
    AskForRound,
    AssignAllOf,
    BeginAutoCommit,
    BeginMembership,
    Cause,
    ChangeTopics,
    CommitAs,
    FollowingEffect,
    GroupEffect,
    MemberView,
    NoteTopics,
    follow,
    follow_alone,
    follow_metadata,
)
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.states import MemberState
from aiogroup._core.subscription import Subscription
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.delivery.requests import GroupForRequests
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.departure import Departure, Leaver
from aiogroup._runtime.following import Follower
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.stages import Stages
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.membership.liveness import Liveness
from aiogroup._runtime.membership.rebalance import Rebalance
from aiogroup._runtime.membership.self_assignment import CommitsLeaving
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConsumerStoppedError, IllegalOperation
from aiogroup.structs import TopicPartition

__all__ = ["Group", "GroupOrNone", "NoGroup"]

_PARKED: Final = MemberState.PARKED  # a module constant: looking it up on the enum each time would cost more


class GroupOrNone(GroupForRequests, CommitsLeaving, Follower, Leaver, Protocol):
    """The interface of `Group` and `NoGroup`; no caller needs to know which of the two it has.

    Requests, self-assignment, the following of a subscription and a stop each see only their own part of it.
    """

    def needed_for(self, call: str) -> Group:
        """The group, for a call that needs one.

        Raises:
            IllegalOperation: there is none.
        """
        ...

    def begin_to_connect(self) -> None:
        """Open a connection that the search for a coordinator will need."""
        ...

    async def wait_for_assignment(self, until_ms: int) -> None:
        """Wait for the first assignment or an error, at most until `until_ms`.

        Raises:
            AiogroupError: the group refused the member.
            ConsumerStoppedError: it was stopped meanwhile.
        """
        ...

    def abandon(self) -> None:
        """The consumer was garbage collected without a stop. May be called from any thread."""
        ...


class NoGroup:
    """A consumer without a group: it reads the partitions that the application assigns, and commits nothing."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def needed_for(self, call: str) -> Group:
        raise IllegalOperation(f"{call}() needs a group: pass group_id")

    def may_deliver(self, now: int) -> bool:
        return True

    def is_settled(self) -> bool:
        return True

    def on_request(self, now: int) -> None:
        pass

    def on_answer(self) -> None:
        pass

    def follow(self, cause: Cause) -> tuple[FollowingEffect, ...]:
        return follow_alone(self._subscription, cause)

    def follow_metadata(self, appeared: frozenset[str]) -> tuple[FollowingEffect, ...]:
        return (AssignAllOf(self._subscription.names(), appeared),)

    def perform(self, effect: GroupEffect) -> None:
        raise AssertionError(f"without a group nothing asks for {effect}")

    def topics_led(self) -> frozenset[str]:
        return frozenset()

    def commit_leaving(self, partitions: Iterable[Partition]) -> None:
        pass

    def begin_to_connect(self) -> None:
        pass

    async def wait_for_assignment(self, until_ms: int) -> None:
        pass

    async def come_to_rest(self, stages: Stages) -> None:
        pass

    def end_tasks(self) -> None:
        pass

    async def leave(self, stages: Stages, *, leave_group: bool | None) -> dict[TopicPartition, int]:
        return {}

    def abandon(self) -> None:
        pass


class Group:
    """A member of a group, and its tasks. With self-assigned partitions only the committer is used."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        changes: Changes[Signal],
        supervisor: Supervisor,
        inbox: Inbox,
        stopping: Stopping,
        subscription: Subscription,
        coordinator: Coordinator,
        commits: OwnCommits,
        liveness: Liveness,
        rebalance: Rebalance,
        poll_clock: PollClock,
    ) -> None:
        self.coordinator = coordinator
        self.committer = commits.committer
        self._commits = commits
        self._config = config
        self._link = link
        self._assignment = assignment
        self._changes = changes
        self._supervisor = supervisor
        self._inbox = inbox
        self._stopping = stopping
        self._subscription = subscription
        self._liveness = liveness
        self._rebalance = rebalance
        self._membership = coordinator.membership
        self._ownership = rebalance.ownership
        self._poll_clock = poll_clock
        self._departure = Departure(config, assignment, changes, subscription, coordinator, commits, rebalance)
        self._scopes: list[anyio.CancelScope] = []
        self._commits_by_itself = False

    def needed_for(self, call: str) -> Group:
        return self

    # For requests.

    def may_deliver(self, now: int) -> bool:
        """Whether records may be delivered: not while a rebalance is taking partitions from us."""
        # Ask the clock as well: if the loop was blocked, no task has had a chance to close the gate.
        if now >= self._liveness.answered_until_ms:
            return False
        if self._subscription.is_manual:
            return self._membership.state is MemberState.LEFT
        return self._membership.may_deliver and not self._ownership.is_closed

    def is_settled(self) -> bool:
        """Whether the assignment is final, as far as is known: no rebalance under way could still assign missing
        partitions.
        """
        if self._subscription.is_manual:
            return self._membership.state is MemberState.LEFT
        return not self._membership.is_rebalancing

    def on_request(self, now: int) -> None:
        self._poll_clock.on_request(now)
        if self._membership.state is _PARKED and not self._ownership.callbacks.is_running:
            self.coordinator.handle(f.RecordsWanted())

    def on_answer(self) -> None:
        self._poll_clock.on_answer(now_ms())

    # The subscription.

    def follow(self, cause: Cause) -> tuple[FollowingEffect, ...]:
        return follow(self._subscription, self._view(), cause, owns=bool(self._assignment))

    def follow_metadata(self, appeared: frozenset[str]) -> tuple[FollowingEffect, ...]:
        stale_why = self._membership.why_stale(self._link.cluster)
        return follow_metadata(self._subscription.names(), appeared, self._view(), stale_why)

    def _view(self) -> MemberView:
        return MemberView(self._membership.state, self._membership.topics, self._liveness.has_begun)

    def perform(self, effect: GroupEffect) -> None:
        match effect:
            case CommitAs():
                self.committer.commits.begin_as(is_member=effect.is_member)
            case BeginMembership():
                self._begin()
            case BeginAutoCommit():
                self._begin_auto_commit()
            case ChangeTopics():
                if effect.at_once:
                    self._ownership.skip_hand_over()
                self.coordinator.handle(f.SubscriptionChanged(effect.topics, effect.why))
                self._ownership.follow(effect.topics)
            case AskForRound():
                if effect.at_once:
                    self._ownership.skip_hand_over()
                self.coordinator.handle(f.RejoinWanted(effect.why))
            case NoteTopics():
                first_sight = self._rebalance.first_sight
                first_sight.note(self._membership.topics, self._link.cluster)
                first_sight.note_appeared(effect.appeared)

    def _begin(self) -> None:
        if self._liveness.has_begun or self._stopping.is_stopped:
            return
        self._liveness.begin(self._supervisor)
        self._scopes.append(self._supervisor.spawn("rebalance", self._rebalance.run))
        self._begin_auto_commit()

    def _begin_auto_commit(self) -> None:
        if self._config.enable_auto_commit and not self._commits_by_itself:
            self._commits_by_itself = True
            self._scopes.append(self._supervisor.spawn("committer", self._commits.run))

    def topics_led(self) -> frozenset[str]:
        return self._membership.topics_led if self._liveness.has_begun else frozenset()

    def commit_leaving(self, partitions: Iterable[Partition]) -> None:
        self._commits.commit_leaving(partitions)

    # Life.

    def begin_to_connect(self) -> None:
        self._supervisor.spawn("connection", self._link.get_ready)

    async def wait_for_assignment(self, until_ms: int) -> None:
        membership = self._membership
        while self._liveness.has_begun and self._subscription.names():
            self._inbox.raise_fatal()
            if self._stopping.is_stopped:
                raise ConsumerStoppedError("the consumer was stopped while it waited for an assignment")
            if membership.state in (MemberState.STABLE, MemberState.PARKED) or now_ms() >= until_ms:
                return
            await self._changes[Waiter.REQUESTS].wait(until_ms)

    async def come_to_rest(self, stages: Stages) -> None:
        await self._departure.come_to_rest(stages)

    def end_tasks(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    async def leave(self, stages: Stages, *, leave_group: bool | None) -> dict[TopicPartition, int]:
        return await self._departure.leave(stages, leave_group=leave_group)

    def abandon(self) -> None:
        self._liveness.abandon()
