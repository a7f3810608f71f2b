"""Takes partitions over and gives them up: the gate, the hand-over point, the callbacks, the last commit.

At the hand-over point the application holds no record that it could still be processing. A callback runs between two
requests for records, so nothing at all is delivered until it has run. Without a listener, and when the application
acknowledges record by record, only records of the partitions that leave must be out of its hands.

`stop` waits for the same moments as the rebalance task, ends that task, and then hands over itself. A cancelled task
that is about to run still runs to its next wait. So `checkpoint_if_cancelled` comes before each step that must not be
done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from anyio.lowlevel import checkpoint_if_cancelled

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import DurationsBy
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.membership.assignment_followers import AssignmentFollowers
from aiogroup._runtime.membership.callbacks import Callbacks
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["COMMIT_BEFORE_JOIN_MS", "Ownership", "Still"]

COMMIT_BEFORE_JOIN_MS: Final = 10_000
"""How long a commit may hold a rebalance up. Records whose offsets it does not save are repeated, never lost."""

Still = Callable[[], bool]
"""Whether to go on: the generation has not ended, and the member is in the state in which this step began."""


class Ownership:
    def __init__(
        self,
        config: ConsumerConfig,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        current: CurrentRebalance,
        coordinator: Coordinator,
        commits: OwnCommits,
        callbacks: Callbacks,
        assignment_followers: AssignmentFollowers,
    ) -> None:
        self.callbacks = callbacks
        self.is_closed = False
        """No record is handed out, because a callback waits for the hand-over point, or runs."""
        self.is_waiting = False
        """The hand-over point is waited for: whatever the application does next may be that point."""
        self._skips_hand_over = False
        self.waits = DurationsBy()
        """How long rebalances have waited for what the application held, by their reason."""
        self._config = config
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._current = current
        self._coordinator = coordinator
        self._commits = commits
        self._assignment_followers = assignment_followers
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._dropped: frozenset[TopicPartition] = frozenset()

    # Coming.

    def take_over(self, added: Collection[Partition]) -> None:
        """Own these partitions; none of their records is delivered until the assigned callback has returned."""
        for partition in added:
            partition.bar(Bar.NEW)
        self._assignment.put(added)
        self._assignment_followers.tell()

    async def announce(self, added: Collection[Partition], still: Still) -> None:
        """Run the assigned callback with the added partitions, also when there are none."""
        with self._gate():
            await self._announce(added, still)

    async def exchange(self, revoked: frozenset[TopicPartition], added: Collection[Partition], still: Still) -> bool:
        """Give partitions up and take others over. As in Java, no record is delivered between the two callbacks.

        Returns:
            True when it was done, False when the generation ended before.
        """
        with self._gate():
            if not await self._revoke(revoked, still) or not still():
                return False  # the callback may have taken longer than the poll interval
            self.take_over(added)
            await self._announce(added, still)
        return still()

    async def _announce(self, added: Collection[Partition], still: Still) -> None:
        await self._wait_for_hand_over(frozenset(), still)
        if still():
            await self.callbacks.assigned([each.tp for each in added])

    # Going.

    def follow(self, topics: Collection[str]) -> None:
        """The subscription changed: no more records of topics that it does not name are delivered."""
        for partition in self._assignment:
            partition.bar(Bar.LEAVING, when=partition.tp.topic not in topics or partition.tp in self._revoking)
        self._delivery.close_cursor()

    async def revoke(self, tps: Collection[TopicPartition], still: Still) -> bool:
        """Give partitions up in order: run the callback at the hand-over point, then commit, then remove them.

        If the hand-over point does not come in time, they are lost as if the coordinator had ended the wait.

        Returns:
            True when it was done, False when the generation ended before: then they are lost.
        """
        with self._gate():
            return await self._revoke(tps, still)

    async def _revoke(self, tps: Collection[TopicPartition], still: Still) -> bool:
        assignment = self._assignment
        leaving = [assignment[tp] for tp in tps if tp in assignment]
        self._revoking = frozenset(tps)
        for partition in leaving:
            partition.bar(Bar.LEAVING)
        try:
            is_in_time = await self._wait_for_hand_over(self._revoking, still)
            set_aside = assignment.blocks.set_aside & frozenset(tps)  # now: the block may end before this is done
            if not still():
                return False
            if is_in_time:
                await self._commits.let_commit(leaving)
                await self.callbacks.revoked(tps)
            until_ms = now_ms() + min(COMMIT_BEFORE_JOIN_MS, self._config.effective_rebalance_timeout_ms)
            if self._config.enable_auto_commit:
                await self._commits.commit_processed(leaving, until_ms - now_ms())
            # What the application has begun to commit in this ownership can be committed in no later one.
            await self._commits.committer.settled(until_ms - now_ms())
            await checkpoint_if_cancelled()
            if not is_in_time:
                await self._lose_late(frozenset(tps), leaving)
                return True
        finally:
            self._revoking = frozenset()
        assignment.note_lost(self._delivery.in_hand().keys() & set_aside)
        processed = self._commits.processed([each for each in leaving if each.has_processed])
        uncommitted = tuple(sorted(processed))
        if uncommitted and not self._config.enable_auto_commit:
            self._emit(events.UncommittedAtRevoke(uncommitted))
        self._remove(tps)
        self._emit(events.PartitionsRevoked(tuple(sorted(tps))))
        return True

    async def _lose_late(self, tps: frozenset[TopicPartition], leaving: Collection[Partition]) -> None:
        """Records of these partitions are still in hand: they are not committed, and whoever comes next repeats them.

        The lost callback tells the listener, as it may commit nothing: the revoked one would find records in hand.
        """
        known = self.callbacks.unrevoked & tps
        self._delivery.settle()
        self._assignment.note_lost(each.tp for each in leaving if each.has_uncommitted)
        self._remove(tps)
        limit_ms = self._config.effective_poll_interval_ms
        why = f"a record was in hand for max_poll_interval_ms={limit_ms} after {self._current.why.text!r}"
        self._emit(events.PartitionsLost(tuple(sorted(tps)), why))
        if known:
            await self.callbacks.lost(known)

    async def lose(self, why: str) -> None:
        """Another member may own the partitions already: remove them, then run the lost callback."""
        known = self.callbacks.announced | self._dropped
        tps = self.drop_all() | self._dropped
        self._dropped = frozenset()
        if tps:
            self._emit(events.PartitionsLost(tuple(sorted(tps)), why))
        if known:
            await self.callbacks.lost(known)

    def skip_hand_over(self) -> None:
        """The round that is asked for now does not wait for the hand-over point: the application's own subscribe asks
        for it.
        """
        self._skips_hand_over = True

    def end_hand_over(self) -> None:
        """The round has what it waited for, or did not wait. The next one waits again."""
        self._skips_hand_over = False

    def drop_all(self) -> frozenset[TopicPartition]:
        """Remove all partitions at once. If records were delivered and not committed, the next `commit()` fails."""
        assignment = self._assignment
        tps = assignment.names
        self._delivery.settle()
        assignment.note_lost(each.tp for each in assignment if each.has_uncommitted)
        self._remove(tps)
        return tps

    def drop_all_and_defer_callback(self) -> None:
        """Remove all partitions at once; the lost callback runs at the next request for records, or in `stop`."""
        self._dropped |= self.callbacks.unrevoked
        self.drop_all()

    def _remove(self, tps: Collection[TopicPartition]) -> None:
        self.callbacks.forget(tps)
        removed = self._assignment.remove(tps)
        self._delivery.forget(removed)
        self._assignment_followers.tell()

    # The hand-over point.

    @property
    def _calls_between_requests(self) -> bool:
        return self.callbacks.has_listener and self._config.auto_ack

    @contextmanager
    def _gate(self) -> Iterator[None]:
        self._delivery.close_cursor()
        self.is_closed = self._calls_between_requests
        try:
            yield
        finally:
            self.is_closed = False
            self._changes.tell(Change.CALLBACK)

    async def _wait_for_hand_over(self, leaving: frozenset[TopicPartition], still: Still) -> bool:
        """Wait until no record of `leaving` is in hand; of any partition, when a callback is to run.

        The wait also ends with the generation, and when the application itself asks for the change. While the
        coordinator waits for this member, the coordinator ends the wait: it knows the longest time-out in the group.
        Where it does not, as this member itself asked for the round, the wait for what leaves ends after the poll
        interval: a request that waits for other records keeps the poll clock from ending it.

        Returns:
            False when that time passed.
        """
        delivery, config = self._delivery, self._config
        wanted = None if self._calls_between_requests else leaving
        since_ms, timeout = now_ms(), config.effective_rebalance_timeout_ms
        warnings = [since_ms + timeout // 2, since_ms + timeout * 4 // 5]
        self.is_waiting = True
        try:
            while still() and not self._skips_hand_over and delivery.is_in_hand(wanted):
                now = now_ms()
                if warnings and now >= warnings[0]:
                    warnings.pop(0)
                    why, waited_ms = self._current.why.text, now - since_ms
                    self._emit(events.RebalanceWaitingForApplication(why, waited_ms, timeout))
                ends_at_ms = max(since_ms + config.effective_poll_interval_ms, self._called_until_ms)
                if leaving and now >= ends_at_ms:
                    return False
                wakes = [*warnings[:1], ends_at_ms] if leaving else warnings[:1]
                await self._changes[Waiter.LEAVING].wait(min(wakes, default=None))
        finally:
            self.is_waiting = False
            self.waits.note(self._current.why.reason.value, now_ms() - since_ms)
        await checkpoint_if_cancelled()
        return True

    @property
    def _called_until_ms(self) -> int:
        """Until then the coordinator's last word counts, that it waits for this member."""
        called_at_ms = self._coordinator.membership.called_at_ms
        return 0 if called_at_ms is None else called_at_ms + self._config.session_timeout_ms
