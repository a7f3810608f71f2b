"""The rebalance task: it carries out the steps that the membership asks for, in order, and reports their results to it.

The way of a rebalance: the hand-over point (nothing is in hand) -> revoked callback -> commit -> JoinGroup -> assign ->
SyncGroup -> positions -> assigned callback -> fetching resumes. Heartbeats go on through all of it.

With the cooperative protocol (KIP-429) records flow through all of it too. JoinGroup claims the held partitions. Those
that SyncGroup does not assign again are given up in the same way (hand-over point, callback, commit), and another round
follows.
"""

from __future__ import annotations

from typing import Final, Protocol

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.assignments import AssignmentChange, reconcile
from aiogroup._core.membership.first_sight import FirstSight
from aiogroup._core.membership.states import MemberState
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Totals
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.fetching.positions import LOOK_UP, Positions
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.membership.ownership import COMMIT_BEFORE_JOIN_MS, Ownership, Still
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, TopicAuthorizationError

__all__ = ["GroupProtocol", "Rebalance"]

MATCH_BEFORE_JOIN_MS: Final = 10_000
"""How long a look for the topics of a pattern may hold a rebalance up."""


class GroupProtocol(Protocol):
    """The part of this task that differs between group protocols: requests, and effects that only one of them has."""

    async def perform(self, effect: f.ComputeAssignment | f.CheckWithheld | f.CheckUnread) -> None: ...
    async def exchange(self, request: f.Request) -> None:
        """Send the request and give the membership the answer as a fact, or that there is none."""
        ...

    def on_adopted(self, effect: f.Adopt) -> None:
        """The round is decided, and its partitions are about to be taken over."""
        ...


class Rebalance:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        changes: Changes[Signal],
        emit: Emit,
        totals: Totals,
        inbox: Inbox,
        current: CurrentRebalance,
        coordinator: Coordinator,
        commits: OwnCommits,
        positions: Positions,
        ownership: Ownership,
        protocol: GroupProtocol,
        first_sight: FirstSight,
        refresher: Refresher,
    ) -> None:
        self._config = config
        self._link = link
        self._assignment = assignment
        self._changes = changes
        self._emit = emit
        self._totals = totals
        self._inbox = inbox
        self._current = current
        self._coordinator = coordinator
        self._commits = commits
        self._positions = positions
        self._protocol = protocol
        self.ownership = ownership
        self.first_sight = first_sight
        self._refresher = refresher
        self.completed_count = 0
        self.completed_at_ms: int | None = None
        self._is_ending = False

    def end(self) -> None:
        """The step under way is finished, and no other round begins: a member that joins can commit nothing."""
        self._is_ending = True

    async def run(self) -> None:
        while not self._is_ending:
            async with self._coordinator.lock:
                step = self._coordinator.membership.poll(now_ms())
            for effect in step.effects:
                await self._perform(effect)
            for request in step.requests:
                await self._protocol.exchange(request)
            if not step.effects and not step.requests:
                await self._changes[Waiter.MEMBER].wait(step.wake_at_ms)

    async def _perform(self, effect: f.Effect) -> None:
        match effect:
            case f.HandOver():
                await self._hand_over(effect)
            case f.Adopt():
                await self._adopt(effect)
            case f.Fail():
                await self._fail(effect.error)
            case f.ComputeAssignment() | f.CheckWithheld() | f.CheckUnread():
                await self._protocol.perform(effect)

    # Giving up.

    async def _hand_over(self, effect: f.HandOver) -> None:
        membership, ownership, why = self._coordinator.membership, self.ownership, effect.why
        self._current.begin(why, is_first=not self.completed_count)
        self._emit(events.RebalanceStarted(why.text, membership.identity.generation, why.reason.value))
        since_ms = effect.since_ms
        if since_ms is None:  # a start has just looked its topics up
            since_ms = now_ms() - self._config.retry_backoff_ms

        def still() -> bool:
            return membership.identity.is_member and membership.state is MemberState.PREPARING

        leaving = self._assignment.names
        if effect.keeps:
            leaving = frozenset(tp for tp in leaving if tp.topic not in membership.topics)
        if still() and (leaving or not effect.keeps):
            await ownership.revoke(leaving, still)
        ownership.end_hand_over()
        if membership.state is not MemberState.PREPARING:
            return  # the poll interval passed, or the consumer stops
        if not membership.identity.is_member:
            await ownership.lose(why.text)
        await self._match_topics(since_ms)
        await self._look_for_commits()
        await self._settle_commits(keeps=effect.keeps)

    async def _match_topics(self, since_ms: int) -> None:
        """Join with all topics that match the pattern now. A member that found a new one only later would ask for one
        more round, and each member finds it by itself (ConsumerCoordinator.java does the same).
        """
        limit_ms = min(MATCH_BEFORE_JOIN_MS, self._config.effective_rebalance_timeout_ms // 3)
        await self._refresher.match_since(since_ms, now_ms() + limit_ms)

    async def _look_for_commits(self) -> None:
        """Find out of which topics the group has commits before this member joins with them for the first time."""
        config = self._config
        topics = self.first_sight.unknown(self._coordinator.membership.topics)
        if not topics:
            return
        limit_ms = min(config.request_timeout_ms, config.effective_rebalance_timeout_ms) // 3
        try:
            found = await self._commits.committer.committed.fetch(None, now_ms() + limit_ms)
            committed = {tp.topic for tp, each in found.items() if each is not None}
        except AiogroupError as error:  # JoinGroup says the same if it lasts; in doubt no record is passed over
            self._current.emit_failed(f"what the group has committed is not known: {error}")
            committed = set(topics)
        self.first_sight.note_commits(topics, committed)

    async def _settle_commits(self, *, keeps: bool) -> None:
        """Wait for the commits under way: the coordinator refuses those that come after the next generation has begun.

        Kept partitions can still be committed: commits that begin from here on wait until JoinGroup is written.
        """
        config, committer = self._config, self._commits.committer
        if keeps and config.enable_auto_commit:
            timeout = min(COMMIT_BEFORE_JOIN_MS, config.effective_rebalance_timeout_ms)
            await self._commits.commit_processed(self._assignment, timeout)
        if keeps:
            committer.hold_back()
        try:
            if not await committer.settled(config.request_timeout_ms):
                self._current.emit_failed("a commit did not settle before JoinGroup")
            if not self._is_ending:
                await self._coordinator.report(f.HandedOver())
        finally:
            committer.release()

    # Adopting.

    async def _adopt(self, effect: f.Adopt) -> None:
        await self._refresher.know({tp.topic for tp in effect.partitions})
        self._protocol.on_adopted(effect)
        generation = effect.generation

        def still() -> bool:
            return self._is_current(generation)

        if still():
            await self._take_over(reconcile(self._assignment.names, effect.partitions), still)
        is_current = still()
        await self._coordinator.report(f.Adopted(generation))
        if is_current:
            self._emit_completed(effect)
        else:
            self._current.emit_failed(f"generation {generation} ended before its partitions were taken over")

    def _emit_completed(self, effect: f.Adopt) -> None:
        self.completed_count += 1
        self.completed_at_ms = now_ms()
        why, duration_ms = self._current.why, self.completed_at_ms - self._current.began_at_ms
        self._emit(
            events.RebalanceCompleted(
                why.text, effect.generation, effect.partitions, duration_ms, effect.is_leader, why.reason.value
            )
        )
        self._totals.tell()

    async def _take_over(self, change: AssignmentChange, still: Still) -> None:
        first_sight, membership = self.first_sight, self._coordinator.membership
        # The metadata may have come in by another way than the refresher.
        first_sight.note(membership.topics, self._link.cluster)
        added = self._assignment.make({tp: first_sight.policy_of(tp) for tp in sorted(change.added)})
        if not change.revoked:
            self.ownership.take_over(added)
        await self._find_positions(added, still)
        for partition in added:
            if partition.was_reset and first_sight.was_new(partition.reset.policy):
                self._emit(events.NewPartitionFromEarliest(partition.tp.topic, partition.tp.partition))
        if not change.revoked:
            await self.ownership.announce(added, still)
        elif await self.ownership.exchange(change.revoked, added, still):
            # Others can get these partitions once the group knows that they were given up: in another round (KIP-429).
            why = f.Why(f.Reason.COOPERATIVE, f"gave up {len(change.revoked)} partitions for others")
            await self._coordinator.report(f.RejoinWanted(why))
        if still():
            await self._commits.commit_held(added, self._config.request_timeout_ms // 3)
        if still():
            for partition in added:
                partition.lift(Bar.NEW)
            self.ownership.follow(membership.topics)

    def _is_current(self, generation: int) -> bool:
        membership = self._coordinator.membership
        return membership.state is MemberState.ADOPTING and membership.identity.generation == generation

    async def _find_positions(self, added: list[Partition], still: Still) -> None:
        """Retry until the positions are known, or the generation ends. An error never counts as "nothing committed"."""
        while still():
            wanted = [each for each in added if each.state in (PositionState.COMMITTED, PositionState.RESET)]
            if not wanted:
                return
            try:
                await self._positions.resolve(wanted, now_ms() + self._config.request_timeout_ms // 3)
            except TopicAuthorizationError as error:
                # The positions task asks on, and the application hears of it, as if Fetch had been refused.
                self._emit(events.FetchFailed(-1, None, None, f"{LOOK_UP}: {error}"))
                self._inbox.put(error)
                return
            except AiogroupError as error:
                if not any(each.state is PositionState.COMMITTED for each in wanted):
                    # Only leaders did not answer. The positions task asks on, and the rebalance need not wait for it.
                    self._emit(events.FetchFailed(-1, None, None, f"{LOOK_UP}: {error}"))
                    return
                self._current.emit_failed(f"positions: {error}")
                if not error.retriable:
                    await self._coordinator.report(f.Failed(error))
                    return

    # Failure.

    async def _fail(self, error: AiogroupError) -> None:
        self._emit(events.MemberFailed(str(error), type(error).__name__))
        self._inbox.fail(error)
        await self.ownership.lose(str(error))
