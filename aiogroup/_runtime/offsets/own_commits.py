"""Commits that the application did not call for: auto-commit, where reading begins, what jobs have done. What fails is
emitted as an event, not raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from typing import Final

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.membership.states import MemberState
from aiogroup._core.offsets.commit_attempt import CommitAttempt
from aiogroup._core.offsets.commit_plan import CommitEntry, entries_of
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import COMMIT_FAILED, Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.offsets.committer import Committer
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, CommitFailedError, ConsumerStoppedError
from aiogroup.structs import TopicPartition

__all__ = ["REFRESH_MS", "OwnCommits"]

REFRESH_MS: Final = 30_000
"""How often offsets that expire are committed again: half of the shortest time for which a broker can keep them."""

TURNS_FOR_COMMIT: Final = 20
"""How many turns of the loop the application is given between its last acknowledgement and its commit: the end of a
task reaches the one that waits for several tasks in two or three, and this happens in layers.
"""
PATIENCE_MS: Final = 5_000
"""The shortest wait for the answer to an auto-commit: giving up closes the connection that all commits share."""


class OwnCommits:
    def __init__(
        self,
        config: ConsumerConfig,
        assignment: Assignment,
        delivery: Delivery,
        emit: Emit,
        failures: Failures,
        supervisor: Supervisor,
        committer: Committer,
    ) -> None:
        self.committer = committer
        self.why_held = ""
        """Why the last commit of held partitions' positions failed; empty when it did not, or cannot succeed."""
        self._config = config
        self._assignment = assignment
        self._delivery = delivery
        self._emit = emit
        self._failures = failures
        self._supervisor = supervisor

    @property
    def is_adopting(self) -> bool:
        """Whether a rebalance is taking partitions over: then it commits their positions itself, after the assigned
        callback, which may seek.
        """
        commits = self.committer.commits
        return commits.is_member and commits.membership.state is MemberState.ADOPTING

    async def run(self) -> None:
        """Commit processed offsets every `auto_commit_interval_ms`.

        The broker keeps the offsets of a group as long as the group has members. Without members they expire
        `offsets.retention.minutes` after their commit, so they are committed again even if no record came.
        """
        config, commits = self._config, self.committer.commits
        interval_ms = config.auto_commit_interval_ms
        patience_ms = min(max(interval_ms, PATIENCE_MS), config.request_timeout_ms)
        due_at_ms, refresh_at_ms = now_ms() + interval_ms, now_ms() + REFRESH_MS
        while True:
            await sleep_ms(max(0, due_at_ms - now_ms()))
            due_at_ms = now_ms() + interval_ms
            is_refresh = not commits.is_member and now_ms() >= refresh_at_ms
            if not (commits.is_member and commits.must_wait):  # a rebalance has just committed, and commits at its end
                is_done = await self.commit_processed(self._assignment, patience_ms, again=is_refresh)
                if is_refresh and is_done:
                    refresh_at_ms = now_ms() + REFRESH_MS

    def processed(self, partitions: Iterable[Partition], *, again: bool = False) -> dict[TopicPartition, CommitEntry]:
        """The entries that auto-commit would send now; with `again` also those that are committed already."""
        self._delivery.settle()
        return entries_of(partitions, again=again)

    async def commit_processed(self, partitions: Iterable[Partition], timeout: int, *, again: bool = False) -> bool:
        """Commit processed offsets; True when all are durable."""
        entries = self.processed(partitions, again=again)
        if not entries:
            return True
        attempt = self.attempt(entries, timeout)
        return await self._told(attempt, self.committer.carry_out(attempt))

    async def commit_folded(self, partitions: Iterable[Partition], timeout: int) -> None:
        """Commit what jobs have done, also without auto-commit: the group's lag is what its commits say."""
        self._delivery.settle()
        folded = {each.tp: each.lanes.folded() for each in partitions}
        entries = {tp: entry for tp, entry in folded.items() if entry is not None}
        if entries and not self.committer.commits.must_wait:
            attempt = self.attempt(entries, timeout)
            await self._told(attempt, self.committer.carry_out(attempt))

    def commit_leaving(self, partitions: Iterable[Partition]) -> None:
        """Auto-commit partitions that are about to be given up at once; the commit goes out in the background."""
        entries = self.processed(partitions) if self._config.enable_auto_commit else {}
        if entries and self._supervisor.is_running:
            attempt = self.attempt(entries, self._config.request_timeout_ms)
            self._supervisor.spawn("commit", self._carry_on, attempt)

    async def _carry_on(self, attempt: CommitAttempt) -> None:
        await self._told(attempt, self.committer.carry_on(attempt))

    def attempt(self, entries: dict[TopicPartition, CommitEntry], timeout: int) -> CommitAttempt:
        return CommitAttempt(self.committer.commits, entries, now_ms(), timeout, automatic=True)

    async def _told(self, attempt: CommitAttempt, committing: Awaitable[None]) -> bool:
        try:
            await committing
        except AiogroupError as error:
            self._emit(events.CommitFailed(attempt.commit.not_durable(), str(error)))
            return False
        self._failures.end(COMMIT_FAILED)
        return True

    async def commit_held(self, partitions: Collection[Partition], timeout: int) -> bool:
        """Commit the positions of held partitions, then let their records be delivered.

        If a position is reset again while it is being committed, the partition stays held until the new position is
        durable too. Returns False when some stay held since their commit failed and may succeed later.
        """
        owned = self._assignment.get
        while held := {
            each: each.target.changes_count for each in partitions if Bar.HELD in each.bars and owned(each.tp) is each
        }:
            left = await self._commit_first(held, timeout)
            for partition, changes_count in held.items():
                if partition.target.changes_count == changes_count and partition.tp not in left:
                    partition.lift(Bar.HELD)
            if left:
                return False
        self.why_held = ""
        return True

    async def _commit_first(self, held: Iterable[Partition], timeout: int) -> Collection[TopicPartition]:
        """Commit where partitions begin, before the first delivery. Returns those for which that may succeed later.

        A position that the policy gave is committed because after a crash the policy could give another one. Pending
        ranges that are left to jobs (KIP-333) are committed because jobs see only what is committed. Without
        auto-commit this does not move the group's offset.
        """
        is_automatic, commits = self._config.enable_auto_commit, self.committer.commits
        if is_automatic:
            entries = self.processed(held)
        else:
            begun = {each.tp: each.lanes.begun() for each in held}
            entries = {tp: entry for tp, entry in begun.items() if entry is not None}
        if not entries:
            return ()
        attempt = CommitAttempt(commits, entries, now_ms(), timeout, automatic=is_automatic)
        try:
            await self.committer.carry_out(attempt)
        except AiogroupError as error:
            failed = attempt.commit.not_durable()
            may_pass = error.retriable or isinstance(error, CommitFailedError | ConsumerStoppedError)
            left = set(failed) - attempt.commit.refused if may_pass else set()
            then = "tried again before the first delivery" if left else "trying again cannot help: delivery goes on"
            self._emit(events.CommitFailed(failed, f"{error} (where reading begins; {then})"))
            self.why_held = str(error) if left else ""
            return left
        self._failures.end(COMMIT_FAILED)
        return ()

    async def let_commit(self, partitions: Iterable[Partition]) -> None:
        """Let the application commit what it has just acknowledged, before the partitions are given up.

        Its last acknowledgement ends the wait of a rebalance or a stop. Often the task that commits comes to its turn a
        little later, as it waits for the tasks that acknowledge.
        """
        config = self._config
        for _ in range(0 if config.auto_ack or config.enable_auto_commit else TURNS_FOR_COMMIT):
            if not self.processed(partitions):
                return
            await asyncio.sleep(0)
