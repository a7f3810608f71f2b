"""Sends offsets to the coordinator: writes, waits and sleeps for each commit until its `CommitAttempt` is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.membership.facts import CommitAnswered
from aiogroup._core.offsets.commit_attempt import (
    ABANDONED,
    REFRESHED,
    UNWRITTEN,
    Answered,
    CommitAttempt,
    Commits,
    CommitState,
    CoordinatorMoved,
    Failed,
    MadeDurable,
    Step,
)
from aiogroup._core.offsets.commit_errors import lost_error
from aiogroup._core.offsets.commit_plan import CommitEntry, entries_of
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitResponse
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import Durations
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import Coordinator, Written
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.net.link import COMMIT, Link
from aiogroup._runtime.offsets.committed import CommittedOffsets
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, CommitFailedError
from aiogroup.structs import TopicPartition

__all__ = ["Committer", "Entries"]

Entries = Mapping[TopicPartition, CommitEntry]


class Committer:
    """Commits as a member, under its generation, with `is_member`; without (manual `assign`) under no generation.

    Of two commits of a partition the offset of the later call stays; the earlier one is done when the later one is. A
    caller that is cancelled leaves its commit to settle. `failures` has how long the commits took that ended with an
    error.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        supervisor: Supervisor,
        coordinator: Coordinator,
        speaks_of_what_is_in_hand: Callable[[], bool],
        *,
        is_member: bool,
    ) -> None:
        self._speaks_of_what_is_in_hand = speaks_of_what_is_in_hand
        backoff_ms = config.backoff_ms
        self.commits = Commits(assignment, coordinator.membership, link, backoff_ms, is_member=is_member)
        self.failures = Durations()
        self.committed = CommittedOffsets(config, link, coordinator)
        self._config = config
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._supervisor = supervisor
        self._coordinator = coordinator

    async def commit(self, entries: Entries | None, timeout: int) -> None:
        """Commit what the application names, or without `entries` all that was delivered or acknowledged.

        A rebalance callback speaks only of what is processed already: it may run while a record is in hand, after
        `subscribe` or in a `stop`, and its handler may still fail.

        Only members keep the offsets of their group from expiring, so without a membership durable offsets are
        committed again.

        Raises:
            CommitFailedError: some partitions are not owned any more; the others were committed. Without `entries` also
                when partitions were lost before the call with records that were not committed.
            RebalanceInProgressError, KafkaTimeoutError, ConnectionLostError: `timeout` milliseconds passed.
            FencedInstanceIdError, GroupAuthorizationError, TopicAuthorizationError, BrokerError: refused.
        """
        failed: set[TopicPartition] = set()
        if entries is None:
            failed = self._assignment.failed_commit
            self._delivery.settle()
            entries = entries_of(
                self._assignment,
                delivered=self._config.auto_ack and self._speaks_of_what_is_in_hand(),
                unmoved=True,
                again=not self.commits.is_member,
            )
        lost = frozenset(failed)
        if entries:
            try:
                await self.carry_out(CommitAttempt(self.commits, entries, now_ms(), timeout))
            except CommitFailedError as error:
                failed -= error.not_owned
                raise
        if lost:
            failed -= lost
            raise lost_error(lost, {tp: entry.offset for tp, entry in entries.items()})

    async def carry_out(self, attempt: CommitAttempt) -> None:
        """Write the commit in this step of the loop, and take an answer that ends it in the step that reads it.
        Everything else is left to a task: to connect, to wait, to sleep, to try again.
        """
        supervisor = self._supervisor
        result: asyncio.Future[None] = supervisor.promise()
        written, now = None, attempt.began_at_ms
        if supervisor.is_running and attempt.may_go_at_once(now):
            written = self._coordinator.write_at_once(
                COMMIT,
                min(attempt.until_ms - now, self._config.request_timeout_ms),
                attempt.request,
                at_most=attempt.at_most,
                on_answer=partial(self._take, attempt, result),
            )
        if written is not None:
            written.answer.add_done_callback(partial(self._go_on, attempt, result, written))
        else:
            attempt.handle(UNWRITTEN, now_ms())
            self._keep(attempt, result)
        try:
            await result
        except BaseException:
            if not attempt.is_automatic:
                self.commits.failed |= attempt.commit.pending
            raise

    async def settled(self, timeout: int) -> bool:
        """Wait until no commit is under way, at most `timeout` milliseconds; True when none is.

        False at once when the tasks were cancelled from outside, as then no task is left to finish a commit.
        """
        until_ms = now_ms() + timeout
        while self.commits.is_busy and now_ms() < until_ms and self._supervisor.is_running:
            await self._changes[Waiter.COMMITS].wait(until_ms)
        return not self.commits.is_busy

    def hold_back(self) -> None:
        """Commits that are not written yet wait: the member is about to join and keeps partitions (cooperative)."""
        self.commits.hold_back()

    def release(self) -> None:
        """They go on, unless the group decides a round now."""
        self.commits.release()
        self._changes.tell(Change.COMMITS_RELEASED)

    def stop(self) -> None:
        """The consumer stops, and its tasks have ended: nothing holds commits back any more."""
        self.commits.stop()
        self.release()

    # One commit. What it waits for is said by its attempt.

    def _take(
        self,
        attempt: CommitAttempt,
        result: asyncio.Future[None],
        response: OffsetCommitResponse,
        _answer: asyncio.Future[OffsetCommitResponse],
    ) -> bool:
        """Take an answer in the step that reads it. If the broker throttles us, it is left to the task that sleeps."""
        if response.throttle_time_ms:
            return False
        self._delivery.settle()
        now = now_ms()
        attempt.handle(Answered(response), now)
        if attempt.state is CommitState.DONE:
            if attempt.error is not None:
                self.failures.note(now - attempt.began_at_ms)
            if result.done():
                pass
            elif attempt.error is not None:
                result.set_exception(attempt.error)
            else:
                result.set_result(None)  # first of all: the caller runs before the tasks that are woken next
            self._perform(attempt.poll(now))
        self._changes.tell(Change.COMMIT_ENDED)
        return False

    def _go_on(
        self,
        attempt: CommitAttempt,
        result: asyncio.Future[None],
        written: Written,
        answer: asyncio.Future[OffsetCommitResponse],
    ) -> None:
        if not answer.cancelled():
            answer.exception()  # seen: whoever waits for it may be gone
        if attempt.state is not CommitState.DONE:
            self._keep(attempt, result, written)

    def _keep(self, attempt: CommitAttempt, result: asyncio.Future[None], written: Written | None = None) -> None:
        """Carry the commit on in a task of its own; cancelling whoever waits for the result leaves it running."""
        supervisor = self._supervisor
        supervisor.keep(result, "commit", partial(self.carry_on, attempt, written))
        if not supervisor.is_running:  # all tasks have ended, so nobody carries it on
            attempt.handle(ABANDONED, now_ms())
            self._changes.tell(Change.COMMIT_ENDED)

    async def carry_on(self, attempt: CommitAttempt, written: Written | None = None) -> None:
        """Carry a commit on to its end. Raises its error."""
        try:
            while (step := attempt.poll(now_ms())).state is not CommitState.DONE:
                self._perform(step)
                match step.state:
                    case CommitState.WAITING_ROUND:
                        self._changes.tell(Change.COMMIT_ENDED)  # the rebalance waits for this one no longer
                        await self._changes[Waiter.ROUND].wait(step.wake_at_ms)
                    case CommitState.WAITING_TURN:
                        await self._changes[Waiter.COMMITS].wait(step.wake_at_ms)
                    case CommitState.STALE:
                        await self._link.look_again(attempt.stale_topics, step.wake_at_ms - now_ms())
                        attempt.handle(REFRESHED, now_ms())
                    case CommitState.RESTING:
                        await sleep_ms(step.wake_at_ms - now_ms())
                    case CommitState.SENT:
                        await self._exchange(attempt, written)
                    case CommitState.DUE:
                        await self._exchange(attempt)
        finally:
            attempt.handle(ABANDONED, now_ms())
            self._changes.tell(Change.COMMIT_ENDED)
        self._perform(step)
        if attempt.error is not None:
            self.failures.note(now_ms() - attempt.began_at_ms)
            raise attempt.error

    async def _exchange(self, attempt: CommitAttempt, written: Written | None = None) -> None:
        limit_ms = min(attempt.until_ms - now_ms(), self._config.request_timeout_ms)
        timeout = limit_ms if written is None else written.timeout
        try:
            response = await self._coordinator.exchange(
                COMMIT, timeout, attempt.request, at_most=attempt.at_most, written=written
            )
        except AiogroupError as error:
            attempt.handle(Failed(error), now_ms())
        else:
            if response is not None:
                self._delivery.settle()
                attempt.handle(Answered(response), now_ms())
        self._changes.tell(Change.COMMIT_ENDED)  # an earlier commit may wait for this one

    def _perform(self, step: Step) -> None:
        for effect in step.effects:
            match effect:
                case MadeDurable(count, latency_ms):
                    self._emit(events.OffsetsCommitted(count, latency_ms))
                    # Records that a rebalance or a stop waits for may be processed now.
                    self._changes.tell(Change.COMMITTED)
                case CoordinatorMoved(why):
                    self._coordinator.lose(why)
                case CommitAnswered():
                    self._coordinator.handle(effect)
