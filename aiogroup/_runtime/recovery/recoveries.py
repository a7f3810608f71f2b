"""Finds where the lanes of newly assigned partitions begin: asks leaders; `_core/recovery/lane_starts.py` decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.truncation import EpochEnd, EpochRemedy, leader_of
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.recovery.lane_starts import Log, Recovery, last_known, recover
from aiogroup._core.recovery.token import NO_EPOCH, Found, LogId, read_token
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.fetching.epoch_ends import ANSWER_MS, ask_epoch_ends
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.leader_offsets import EARLIEST, LATEST, LeaderOffsets, by_leader, epoch_before
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, LogTruncationError, TopicAuthorizationError, UnsupportedVersionError
from aiogroup.structs import OffsetAndTimestamp, TopicPartition

__all__ = ["Recoveries"]


class Recoveries:
    """Begins the lanes of newly assigned partitions (KIP-333), once all that decides about them is known."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        emit: Emit,
        refresher: Refresher,
        offsets: LeaderOffsets,
        catch_up: CatchUp,
    ) -> None:
        self._config = config
        self._link = link
        self._emit = emit
        self._refresher = refresher
        self._offsets = offsets
        self._catch_up = catch_up

    def has_begun(self, partition: Partition) -> bool:
        return self._catch_up.has_begun(partition)

    async def begin(
        self,
        asked: Mapping[TopicPartition, tuple[Partition, int]],
        found: Mapping[TopicPartition, Committed | None],
        times: Mapping[TopicPartition, int],
        until_ms: int,
    ) -> str:
        """Begin each partition whose leader answers.

        `found` has the committed offsets, `times` the timestamps and marks that the reset policies ask for.

        Returns:
            Why some partitions did not begin; these are unchanged.

        Raises:
            TopicAuthorizationError: these topics may not be read; partitions of others did begin.
            UnsupportedVersionError, AuthenticationFailedError: no retry helps.
        """
        cluster = self._link.cluster
        why = "" if all(tp.topic in cluster.topics for tp in asked) else "a topic is not known"
        if why:
            self._refresher.want()
        asked = {tp: each for tp, each in asked.items() if tp.topic in cluster.topics}
        found = {tp: each for tp, each in found.items() if tp in asked}
        times = {tp: each for tp, each in times.items() if tp in asked}
        # All answers must come from one leader: another may lack the records that this one has just confirmed
        # (KIP-320).
        meant = {tp: (self._log_id(tp), leader_of(cluster, tp)) for tp in asked}
        starts: dict[TopicPartition, OffsetAndTimestamp] = {}
        ends: dict[TopicPartition, OffsetAndTimestamp] = {}
        by_time: dict[TopicPartition, OffsetAndTimestamp] = {}
        said = {tp: each for tp, each in found.items() if each is not None}
        texts = {tp: read_token(each.offset, each.metadata, self._log_id(tp)) for tp, each in said.items()}
        known = {tp: last_known(each.offset, each.leader_epoch, texts[tp]) for tp, each in said.items()}
        epochs = await self._ask_epochs({tp: epoch for tp, (_, epoch) in known.items() if epoch >= 0}, until_ms)
        started: dict[TopicPartition, tuple[str, int]] = {}
        refused, unauthorized = await self._ask_offsets(
            (
                (dict.fromkeys(asked, EARLIEST), starts),
                (dict.fromkeys(asked, LATEST), ends),
                ({tp: at for tp, at in times.items() if at >= 0}, by_time),
            ),
            until_ms,
        )
        why = why or refused
        for tp, (partition, changes_count) in asked.items():
            lacks = tp not in starts or tp not in ends or (times.get(tp, -1) >= 0 and tp not in by_time)
            if lacks or (tp in known and known[tp][1] >= 0 and tp not in epochs):
                why = why or "no answer about the log"
                continue
            if partition.target.changes_count != changes_count:
                continue
            now = self._link.cluster
            if tp.topic not in now.topics or (self._log_id(tp), leader_of(now, tp)) != meant[tp]:
                why = why or "the leader moved while it was asked"
                continue
            log = self._log(starts[tp], ends[tp], epochs.get(tp), known.get(tp))
            committed = found.get(tp)
            if committed is not None:
                self._take_up(partition, committed, texts[tp], log)
            else:
                offset = self._take_up_by_policy(partition, times[tp], by_time.get(tp), log)
                started[tp] = partition.reset.policy.kind, offset
        self._catch_up.follow()
        for event in events.PositionFromPolicy.of_round(started):
            self._emit(event)
        if unauthorized is not None:
            raise unauthorized
        return why

    async def _ask_offsets(
        self,
        questions: Iterable[tuple[dict[TopicPartition, int], dict[TopicPartition, OffsetAndTimestamp]]],
        until_ms: int,
    ) -> tuple[str, TopicAuthorizationError | None]:
        """Put the answers to each question into the mapping beside it.

        Returns:
            Why some were not answered, and the error for topics that may not be read.
        """
        why, unauthorized = "", None
        for wanted, answers in questions:
            if not wanted:
                continue
            is_committed = self._config.read_committed
            try:
                refused = await self._offsets.ask_leaders(wanted, until_ms, answers.update, read_committed=is_committed)
            except TopicAuthorizationError as error:
                unauthorized, refused = error, str(error)
            why = why or refused
        return why, unauthorized

    @staticmethod
    def _log(
        start: OffsetAndTimestamp, end: OffsetAndTimestamp, answer: EpochEnd | None, known: tuple[int, int] | None
    ) -> Log:
        end_epoch = epoch_before(end)
        if known is None or answer is None or not 0 <= answer.end_offset < known[0]:
            return Log(start.offset, end.offset, end_epoch)
        return Log(start.offset, end.offset, end_epoch, answer.end_offset, answer.epoch)

    def _log_id(self, tp: TopicPartition) -> LogId:
        cluster = self._link.cluster
        return LogId(cluster.cluster_id or "", tp.topic, cluster.topics[tp.topic].topic_id, tp.partition)

    def _take_up(self, partition: Partition, committed: Committed, found: Found, log: Log) -> None:
        config, tp, emit = self._config, partition.tp, self._emit
        if found.is_of_former_topic:
            self._take_up_former(partition, committed, log)
            return
        recovery = recover(
            committed.offset,
            log,
            epoch=committed.leader_epoch,
            found=found,
            min_backlog=config.parallel_min_backlog,
            fresh_id=self._catch_up.fresh_id(),
        )
        if found.foreign:
            emit(events.ForeignToken(tp.topic, tp.partition, committed.offset, found.foreign))
        for gone in recovery.gone:
            emit(events.RangeTruncated(tp.topic, tp.partition, gone.start, gone.end))
        self._start(partition, recovery)
        partition.committed = committed
        partition.bar(Bar.HELD, when=self._concerns_jobs(recovery))
        if recovery.truncated_at is not None:
            offset, epoch = last_known(committed.offset, committed.leader_epoch, found)
            self._emit_truncated(partition, offset, epoch, recovery.truncated_at)

    def _emit_truncated(self, partition: Partition, offset: int, epoch: int, cut: int) -> None:
        tp, is_raised = partition.tp, self._config.auto_offset_reset == "none"
        if is_raised:
            partition.stick(LogTruncationError(tp, offset, cut))
        action = "raised LogTruncationError" if is_raised else "went to the diverging offset"
        self._emit(events.LogTruncated(tp.topic, tp.partition, offset, epoch, cut, offset - cut, action))

    def _take_up_former(self, partition: Partition, committed: Committed, log: Log) -> None:
        """The committed offset is of a topic that was deleted, so no record of the present topic was read."""
        tp, topic_id = partition.tp, self._log_id(partition.tp).topic_id
        self._emit(events.TopicRecreated(tp.topic, tp.partition, committed.offset, "", str(topic_id)))
        self._take_up_new(partition, log.start, log)

    def _take_up_by_policy(
        self, partition: Partition, wanted: int, by_time: OffsetAndTimestamp | None, log: Log
    ) -> int:
        """Nothing is committed: begin where the reset policy says. Returns the offset."""
        at = -1 if by_time is None else by_time.offset
        offset = log.start if wanted == EARLIEST else at if at >= 0 else log.end
        self._take_up_new(partition, offset, log)
        return offset

    def _take_up_new(self, partition: Partition, offset: int, log: Log) -> None:
        """Nothing is committed: the policy's position and the token are made durable before the first delivery."""
        config = self._config
        epoch = log.end_epoch if offset == log.end else NO_EPOCH
        recovery = recover(
            offset, log, min_backlog=config.parallel_min_backlog, fresh_id=self._catch_up.fresh_id(), epoch=epoch
        )
        self._start(partition, recovery, was_reset=True)
        partition.bar(Bar.HELD, when=config.enable_auto_commit or self._concerns_jobs(recovery))

    def _concerns_jobs(self, recovery: Recovery) -> bool:
        """Whether the pending ranges are left to jobs, or were left to jobs and are read here from now on.

        The token is then committed before the first delivery, even without auto-commit, because jobs see only what is
        committed.
        """
        return bool(recovery.pending) and (self._config.parallel_handoff or bool(recovery.since_s))

    def _start(self, partition: Partition, recovery: Recovery, *, was_reset: bool = False) -> None:
        leader = leader_of(self._link.cluster, partition.tp)
        partition.start_at(recovery.live, leader_epoch=recovery.live_epoch, leader=leader, was_reset=was_reset)
        partition.trust()  # the leader has just been asked
        self._catch_up.begin(partition, self._log_id(partition.tp), recovery)

    async def _ask_epochs(self, wanted: Mapping[TopicPartition, int], until_ms: int) -> dict[TopicPartition, EpochEnd]:
        """Where these epochs ended, according to their leaders; unknown (-1) if a leader's version cannot tell."""
        parts = by_leader(dict(sorted(wanted.items())), self._link.cluster)
        parts.pop(-1, None)
        found: dict[TopicPartition, EpochEnd] = {}
        for node_id, part in parts.items():
            asked = {tp: (leader_of(self._link.cluster, tp), epoch) for tp, epoch in part.items()}
            limit_ms = max(1, min(until_ms - now_ms(), ANSWER_MS))
            try:
                answers = await ask_epoch_ends(self._link, node_id, asked, limit_ms)
            except UnsupportedVersionError:
                found |= dict.fromkeys(asked, EpochEnd(NO_EPOCH, -1))
                continue
            except AiogroupError as error:
                self._emit(events.FetchFailed(node_id, None, None, f"checking what was read: {error}"))
                self._refresher.want()
                continue
            for tp, answer in answers.items():
                if answer.remedy is EpochRemedy.PROCEED:
                    found[tp] = answer.end
                    continue
                why = f"checking what was read: {answer.error}"
                self._emit(events.FetchFailed(node_id, tp.topic, tp.partition, why))
                self._refresher.want()
        return found
