"""Sends offsets to the coordinator: commits bound to an ownership, in the order of their calls; auto-commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from aiogroup._core.changes import Change, Waiter
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.membership.facts import CommitAnswered
from aiogroup._core.membership.states import MemberState
from aiogroup._core.offsets.commit_errors import lost_error, not_owned_error
from aiogroup._core.offsets.commit_order import Commit, CommitOrder
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed, entries_of
from aiogroup._core.offsets.commit_request import (
    AboutMembership,
    Again,
    Durable,
    Refused,
    codes_of,
    commit_request,
    refusal_of,
    verdict_of,
)
from aiogroup._core.offsets.committed_request import BY_NAME
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import COMMIT_FAILED, Durations
from aiogroup._runtime.context import Context
from aiogroup._runtime.coordinator import Coordinator, Written
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.net.connection import OnAnswer
from aiogroup._runtime.net.link import COMMIT
from aiogroup._runtime.offsets.committed import CommittedOffsets
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    CommitFailedError,
    ConnectionLostError,
    ConsumerStoppedError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    named,
)
from aiogroup.structs import TopicPartition

__all__ = ["REFRESH_MS", "Committer"]

T = TypeVar("T")
REFRESH_MS: Final = 30_000
"""How often offsets that expire are committed again: half of the shortest time for which a broker can keep them."""

TURNS_FOR_COMMIT: Final = 20
"""How many turns of the loop the application is given between its last acknowledgement and its commit: the end of a
task reaches the one that waits for several tasks in two or three, and this happens in layers.
"""
PATIENCE_MS: Final = 5_000
"""The shortest wait for the answer to an auto-commit: giving up closes the connection that all commits share."""

Entries = Mapping[TopicPartition, CommitEntry]


class Committer:
    """Commits as a member, under its generation, with `is_member`; without (manual `assign`) under no generation."""

    def __init__(self, context: Context, coordinator: Coordinator, *, is_member: bool) -> None:
        self.is_member = is_member
        self.is_stopping = False
        """Partitions that are given up from now on are given up because the consumer stops."""
        self.why_held = ""
        """Why the last commit of held partitions' positions failed; empty when it did not, or cannot succeed."""
        self.failures = Durations()
        """How long the commits took that ended with an error."""
        self.committed = CommittedOffsets(context, coordinator)
        self._context = context
        self._coordinator = coordinator
        self._order = CommitOrder()
        # What failed commits left pending (automatic ones aside), less what became durable later.
        self._failed: dict[TopicPartition, CommitEntry] = {}
        self._busy_count = 0  # commits that may still be written under the present generation
        self._waiting_count = 0  # commits that wait for a round
        self._is_held_back = False

    @property
    def is_adopting(self) -> bool:
        """Whether a rebalance is taking partitions over: then it commits their positions itself, after the assigned
        callback, which may seek.
        """
        return self.is_member and self._coordinator.membership.state is MemberState.ADOPTING

    async def run(self) -> None:
        """Commit processed offsets every `auto_commit_interval_ms`.

        The broker keeps the offsets of a group as long as the group has members. Without members they expire
        `offsets.retention.minutes` after their commit, so they are committed again even if no record came.
        """
        config = self._context.config
        interval_ms = config.auto_commit_interval_ms
        patience_ms = min(max(interval_ms, PATIENCE_MS), config.request_timeout_ms)
        due_at_ms, refresh_at_ms = now_ms() + interval_ms, now_ms() + REFRESH_MS
        while True:
            await sleep_ms(max(0, due_at_ms - now_ms()))
            due_at_ms = now_ms() + interval_ms
            is_refresh = not self.is_member and now_ms() >= refresh_at_ms
            if not (self.is_member and self._must_wait()):  # a rebalance has just committed, and commits at its end
                is_done = await self.commit_processed(self._context.assignment, patience_ms, again=is_refresh)
                if is_refresh and is_done:
                    refresh_at_ms = now_ms() + REFRESH_MS

    def processed(self, partitions: Iterable[Partition], *, again: bool = False) -> dict[TopicPartition, CommitEntry]:
        """The entries that auto-commit would send now; with `again` also those that are committed already."""
        self._context.delivery.settle()
        return entries_of(partitions, again=again)

    async def commit_held(self, partitions: Collection[Partition], timeout: int) -> bool:
        """Commit the positions of held partitions, then let their records be delivered.

        If a position is reset again while it is being committed, the partition stays held until the new position is
        durable too. Returns False when some stay held since their commit failed and may succeed later.
        """
        owned = self._context.assignment.get
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
        auto-commit this does not move the group's offset. An error is emitted as an event, not raised.
        """
        is_automatic = self._context.config.enable_auto_commit
        if is_automatic:
            entries = self.processed(held)
        else:
            begun = {each.tp: each.lanes.begun() for each in held}
            entries = {tp: entry for tp, entry in begun.items() if entry is not None}
        if not entries:
            return ()
        commit = self._begin(entries, automatic=is_automatic)
        try:
            await self.finish(commit, timeout, automatic=is_automatic)
        except AiogroupError as error:
            failed = commit.not_durable()
            may_pass = error.retriable or isinstance(error, CommitFailedError | ConsumerStoppedError)
            left = set(failed) - commit.refused if may_pass else set()
            then = "tried again before the first delivery" if left else "trying again cannot help: delivery goes on"
            self._context.emit(events.CommitFailed(failed, f"{error} (where reading begins; {then})"))
            self.why_held = str(error) if left else ""
            return left
        self._context.failures.end(COMMIT_FAILED)
        return ()

    async def commit_processed(self, partitions: Iterable[Partition], timeout: int, *, again: bool = False) -> bool:
        """Commit processed offsets; True when all are durable. An error is emitted as an event, not raised."""
        entries = self.processed(partitions, again=again)
        return not entries or await self._committed_or_told(entries, timeout)

    async def commit_folded(self, partitions: Iterable[Partition], timeout: int) -> None:
        """Commit what jobs have done, also without auto-commit: the group's lag is what its commits say. An error is
        emitted as an event, not raised.
        """
        self._context.delivery.settle()
        folded = {each.tp: each.lanes.folded() for each in partitions}
        entries = {tp: entry for tp, entry in folded.items() if entry is not None}
        if entries and not self._must_wait():
            await self._committed_or_told(entries, timeout)

    async def _committed_or_told(self, entries: Entries, timeout: int) -> bool:
        commit = self._begin(entries, automatic=True)
        return await self._emitting_failure(commit, self._carry_out(commit, timeout))

    async def _emitting_failure(self, commit: Commit, committing: Awaitable[None]) -> bool:
        try:
            await committing
        except AiogroupError as error:
            self._context.emit(events.CommitFailed(commit.not_durable(), str(error)))
            return False
        self._context.failures.end(COMMIT_FAILED)
        return True

    def commit_leaving(self, partitions: Iterable[Partition]) -> None:
        """Auto-commit partitions that are about to be given up at once; the commit goes out in the background."""
        context = self._context
        entries = self.processed(partitions) if context.config.enable_auto_commit else {}
        if not entries or not context.supervisor.is_running:
            return
        commit, retries = self._begin(entries, automatic=True), self._retries(context.config.request_timeout_ms)

        async def carry_out() -> None:
            await self._emitting_failure(commit, self._commit_counted(commit, retries))

        context.supervisor.spawn("commit", carry_out)

    async def let_commit(self, partitions: Iterable[Partition]) -> None:
        """Let the application commit what it has just acknowledged, before the partitions are given up.

        Its last acknowledgement ends the wait of a rebalance or a stop. Often the task that commits comes to its turn a
        little later, as it waits for the tasks that acknowledge.
        """
        config = self._context.config
        for _ in range(0 if config.auto_ack or config.enable_auto_commit else TURNS_FOR_COMMIT):
            if not self.processed(partitions):
                return
            await asyncio.sleep(0)

    async def settled(self, timeout: int) -> bool:
        """Wait until no commit is under way, at most `timeout` milliseconds; True when none is.

        False at once when the tasks were cancelled from outside, as then no task is left to finish a commit.
        """
        until_ms = now_ms() + timeout
        while self._is_busy and now_ms() < until_ms and self._context.supervisor.is_running:
            await self._context.changes[Waiter.COMMITS].wait(until_ms)
        return not self._is_busy

    @property
    def _is_busy(self) -> bool:
        """A commit that waited for a round is under way as soon as it need not wait, and wakes up one turn later."""
        return bool(self._busy_count or (self._waiting_count and not self._must_wait()))

    def hold_back(self) -> None:
        """Commits that are not written yet wait: the member is about to join and keeps partitions (cooperative)."""
        self._is_held_back = True

    def release(self) -> None:
        """They go on, unless the group decides a round now."""
        self._is_held_back = False
        self._context.changes.tell(Change.COMMITS_RELEASED)

    async def commit_all(self, timeout: int) -> None:
        """As `commit`, of what `commit()` without offsets says: all that was delivered or acknowledged is processed.

        A rebalance callback speaks only of what is processed already: it may run while a record is in hand, after
        `subscribe` or in a `stop`, and its handler may still fail.

        Only members keep the offsets of their group from expiring, so without a membership durable offsets are
        committed again.

        Raises:
            CommitFailedError: also when partitions were lost before the call with records that were not committed.
        """
        context, failed = self._context, self._context.assignment.failed_commit
        context.delivery.settle()
        is_all_done = context.config.auto_ack and context.speaks_of_what_is_in_hand
        entries = entries_of(context.assignment, delivered=is_all_done, unmoved=True, again=not self.is_member)
        lost = frozenset(failed)
        if entries:
            try:
                await self.commit(entries, timeout)
            except CommitFailedError as error:
                failed -= error.not_owned
                raise
        if lost:
            failed -= lost
            raise lost_error(lost, {tp: entry.offset for tp, entry in entries.items()})

    async def commit(self, entries: Entries, timeout: int, *, automatic: bool = False) -> None:
        """Commit; a caller that is cancelled leaves it to settle.

        Of two commits of a partition the offset of the later call stays; the earlier one is done when the later one is.
        An `automatic` commit that is covered by a commit under way is put before it, as if it had been called earlier.

        Raises:
            CommitFailedError: some partitions are not owned any more; the others were committed.
            RebalanceInProgressError, KafkaTimeoutError, ConnectionLostError: `timeout` milliseconds passed.
            FencedInstanceIdError, GroupAuthorizationError, TopicAuthorizationError, BrokerError: refused.
        """
        await self.finish(self._begin(entries, automatic=automatic), timeout, automatic=automatic)

    async def finish(self, commit: Commit, timeout: int, *, automatic: bool) -> None:
        """Bring a commit that was begun to its end. Raises as `commit`."""
        try:
            await self._carry_out(commit, timeout)
        except BaseException:
            if not automatic:
                self._failed |= commit.pending
            raise

    def failed(self) -> dict[TopicPartition, int]:
        """Offsets that the application's own commits could not make durable, of partitions that are still owned."""
        owned = self._context.assignment
        return {tp: each.offset for tp, each in self._failed.items() if owned.is_owned_since(tp, each.ownership)}

    def _begin(self, entries: Entries, *, automatic: bool) -> Commit:
        self._busy_count += 1
        commit = self._order.begin(entries, automatic=automatic)
        commit.is_member = self.is_member
        self._context.assignment.name_topics(commit)
        return commit

    def _keep(self, result: asyncio.Future[T], commit: Commit, work: Callable[[], Awaitable[T]]) -> None:
        """Carry the commit out in a task of its own; cancelling whoever waits for the result leaves it running."""
        supervisor = self._context.supervisor
        supervisor.keep(result, "commit", work)
        if not supervisor.is_running:  # all tasks have ended, so `_commit_counted` never runs
            self._end(commit)

    def _retries(self, timeout: int) -> Retries:
        return Retries(self._context.config, now_ms() + timeout)

    def _carry_out(self, commit: Commit, timeout: int) -> asyncio.Future[None]:
        """Write the commit in this step of the loop, and take an answer that makes all of it durable in the step that
        reads it. Everything else is left to a task: to connect, to wait for a round, to try again, to raise an error.
        """
        supervisor = self._context.supervisor
        result: asyncio.Future[None] = supervisor.promise()
        retries = self._retries(timeout)

        def take(response: OffsetCommitResponse, _answer: asyncio.Future[OffsetCommitResponse]) -> bool:
            if not self._is_plain(response, commit):
                return False
            count = len(commit.pending)
            for tp, entry in tuple(commit.pending.items()):
                self._note_durable(commit, tp, entry)
            if count:
                self._context.emit(events.OffsetsCommitted(count, now_ms() - retries.began_at_ms))
            if not result.done():
                result.set_result(None)  # now: the caller runs before the tasks that are woken next
            self._end(commit)
            self._tell_of_durable()
            return False

        def go_on(answer: asyncio.Future[OffsetCommitResponse] | None = None) -> None:
            if answer is not None and not answer.cancelled():
                answer.exception()  # seen: whoever waits for it may be gone
            if not commit.is_over:
                self._keep(result, commit, lambda: self._commit_counted(commit, retries, written))

        # A rebalance that is due may give partitions up before the next turn: the application has just unsubscribed.
        is_calm = not (commit.is_member and self._coordinator.membership.is_rebalancing)
        may_write = supervisor.is_running and timeout > 0 and is_calm
        written = self._write_at_once(commit, timeout, take) if may_write else None
        if written is None:
            go_on()
        else:
            written.answer.add_done_callback(go_on)
        return result

    def _write_at_once(self, commit: Commit, timeout: int, on_answer: OnAnswer[OffsetCommitResponse]) -> Written | None:
        return self._coordinator.write_at_once(
            COMMIT,
            min(timeout, self._context.config.request_timeout_ms),
            partial(self._request, commit),
            at_most=_at_most(commit),
            on_answer=on_answer,
        )

    async def _commit_counted(self, commit: Commit, retries: Retries, written: Written | None = None) -> None:
        try:
            await self._commit(commit, retries, written)
        except AiogroupError:
            self.failures.note(now_ms() - retries.began_at_ms)
            raise
        finally:
            self._end(commit)

    def _end(self, commit: Commit) -> None:
        self._order.end(commit)
        self._rest()

    def _rest(self) -> None:
        self._busy_count -= 1
        self._context.changes.tell(Change.COMMIT_ENDED)

    async def _commit(self, commit: Commit, retries: Retries, written: Written | None) -> None:
        pending = commit.pending
        committed: dict[TopicPartition, int] = {}
        refused: AiogroupError | None = None
        last: AiogroupError | None = None
        while pending:
            if written is None:
                last = await self._come_due(commit, retries, last)
                if not pending:
                    break
            sent_at_ms = now_ms() if written is None else retries.began_at_ms
            try:
                response = await self._send(commit, retries.until_ms - sent_at_ms, written)
            except (ConnectionLostError, KafkaTimeoutError) as error:
                response, last = None, error
            written = None
            if response is not None:
                done, refusal, last = await self._take_answer(response, commit)
                refused = refused or refusal
                committed |= done
                if done:
                    self._context.emit(events.OffsetsCommitted(len(done), now_ms() - sent_at_ms))
            self._context.changes.tell(Change.COMMIT_ENDED)  # an earlier commit may wait for this one
            if pending and last is not None:
                await self._look_again(commit, retries.until_ms)
                await retries.back_off()
        if refused is not None:
            raise refused
        if commit.not_owned:
            raise self._coordinator.membership.failure or not_owned_error(
                commit.not_owned, committed, recreated=commit.recreated, is_stopping=self.is_stopping
            )

    # The parts of one commit.

    async def _come_due(self, commit: Commit, retries: Retries, last: AiogroupError | None) -> AiogroupError | None:
        """Wait until a part of the commit may be sent, or nothing of it is pending. Returns why it waited, or `last`.

        Raises:
            AiogroupError: the time is over.
        """
        while True:
            self._drop_not_owned(commit)
            if not commit.pending:
                return last
            if retries.until_ms <= now_ms():
                raise self._timed_out(commit.pending) if last is None else retries.last_error("the commit", last)
            if commit.is_member and self._must_wait():
                last = RebalanceInProgressError("the group is rebalancing; ask for records, then commit again")
                await self._wait_for_round(retries.until_ms)
            elif not self._order.due(commit):
                await self._context.changes[Waiter.COMMITS].wait(retries.until_ms)
            else:
                return last

    async def _look_again(self, commit: Commit, until_ms: int) -> None:
        stale, commit.stale = {tp.topic for tp in commit.stale & commit.pending.keys()}, set()
        if stale:
            await self._context.link.look_again(stale, until_ms - now_ms())

    async def _wait_for_round(self, until_ms: int) -> None:
        """Wait until the group changes. Meanwhile this commit does not count as busy: the rebalance waits for those."""
        self._waiting_count += 1
        self._rest()
        try:
            await self._context.changes[Waiter.ROUND].wait(until_ms)
        finally:
            self._waiting_count -= 1
            self._busy_count += 1

    def _drop_not_owned(self, commit: Commit) -> None:
        cluster = self._context.link.cluster
        commit.recreated |= {
            tp for tp, topic_id in commit.topic_ids.items() if cluster.topic_id(tp.topic) not in (None, topic_id)
        }
        for tp in commit.recreated & commit.pending.keys():
            commit.not_owned.add(tp)
            del commit.pending[tp]
        if not commit.is_member:
            return
        membership = self._coordinator.membership
        # Without a generation the request would name no member, and a coordinator accepts that while a group is empty.
        is_lost = not membership.identity.is_member and not self._must_wait()
        for tp, entry in list(commit.pending.items()):
            if is_lost or not self._context.assignment.is_owned_since(tp, entry.ownership):
                commit.not_owned.add(tp)
                del commit.pending[tp]

    def _must_wait(self) -> bool:
        return self._is_held_back or self._coordinator.membership.awaits_round

    @staticmethod
    def _timed_out(pending: Collection[TopicPartition]) -> AiogroupError:
        return KafkaTimeoutError(f"offsets of {named(pending)} were not committed in time; commit again")

    async def _send(self, commit: Commit, timeout: int, written: Written | None) -> OffsetCommitResponse | None:
        limit_ms = min(timeout, self._context.config.request_timeout_ms) if written is None else written.timeout
        request = partial(self._request, commit)
        return await self._coordinator.exchange(COMMIT, limit_ms, request, at_most=_at_most(commit), written=written)

    def _request(self, commit: Commit) -> OffsetCommitRequest | None:
        self._drop_not_owned(commit)
        commit.sent = self._order.due(commit)
        if not commit.sent or (commit.is_member and self._must_wait()):
            return None
        commit.sent_as = self._coordinator.identity
        return commit_request(commit, commit.sent_as)

    @staticmethod
    def _is_plain(response: OffsetCommitResponse, commit: Commit) -> bool:
        """Whether the answer makes all offsets of the commit durable."""
        codes = codes_of(response, commit)
        is_whole = commit.pending.keys() <= codes.keys() and not commit.not_owned
        return is_whole and not any(codes.values()) and not response.throttle_time_ms

    async def _take_answer(
        self, response: OffsetCommitResponse, commit: Commit
    ) -> tuple[dict[TopicPartition, int], AiogroupError | None, AiogroupError | None]:
        """The committed offsets, the error that refused some for good, and the error of those that stay pending."""
        pending = commit.pending
        committed: dict[TopicPartition, int] = {}
        refused: list[AiogroupError] = []
        retry: AiogroupError | None = None
        answers = codes_of(response, commit)
        too_long = self._order.too_long(commit, answers.values())
        for tp, code in answers.items():
            entry = pending.get(tp)
            if entry is None:
                continue
            row = lookup(code)
            if (shorter := self._shorter(tp, entry, code, *too_long)) is not None:
                pending[tp], retry = shorter, BrokerError(code, row.name, row.message, retriable=True)
                continue
            is_gone = self._context.link.cluster.lacks(tp.topic)
            match verdict_of(code, tp, commit.sent_as.group_id, is_member=commit.is_member, is_gone=is_gone):
                case Durable():
                    self._note_durable(commit, tp, entry)
                    committed[tp] = entry.offset
                case Again() as again:
                    if again.coordinator_moved:
                        self._coordinator.lose(f"commit: {row.name}")
                    if again.metadata_is_stale:
                        commit.stale.add(tp)
                    retry = again.error
                case AboutMembership(error):
                    await self._coordinator.report(CommitAnswered(commit.sent_as, code))
                    retry = error
                case Refused(error):
                    refused.append(error)
                    del pending[tp]
                    commit.refused.add(tp)
        if committed:
            self._tell_of_durable()
        if pending and retry is None and (missing := commit.sent.keys() & pending.keys() - answers.keys()):
            retry = BrokerError(-1, "UNKNOWN_SERVER_ERROR", f"the answer lacks {named(missing)}", retriable=True)
        return committed, refusal_of(refused), retry

    def _shorter(
        self,
        tp: TopicPartition,
        entry: CommitEntry,
        code: int,
        about_request: Collection[int],
        about_metadata: Collection[int],
    ) -> CommitEntry | None:
        """What the coordinator may accept that refused the entry as too long: the same in a shorter request, or with a
        shorter token (KIP-333).
        """
        if code in about_request:
            return entry
        if code not in about_metadata:
            return None
        partition = self._context.assignment.get(tp)
        return None if partition is None else partition.lanes.shorter(entry)

    def _note_durable(self, commit: Commit, tp: TopicPartition, entry: CommitEntry) -> None:
        self._note_committed(tp, entry)
        self._failed.pop(tp, None)
        self._order.acknowledge(commit, tp)
        del commit.pending[tp]

    def _tell_of_durable(self) -> None:
        """Records that a rebalance or a stop waits for may be processed now."""
        self._context.changes.tell(Change.COMMITTED)

    def _note_committed(self, tp: TopicPartition, entry: CommitEntry) -> None:
        partition = self._context.assignment.get(tp)
        if partition is not None and partition.ownership == entry.ownership:
            partition.committed = Committed(entry.offset, entry.metadata, entry.leader_epoch)
            self._context.delivery.settle()
            partition.lanes.note_durable(entry)


def _at_most(commit: Commit) -> int | None:
    return None if commit.pending.keys() <= commit.topic_ids.keys() else BY_NAME
