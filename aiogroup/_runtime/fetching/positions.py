"""The positions task: looks up where to start. Committed offsets come first, then the reset policy; a position is never
guessed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.cluster import Cluster
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.epochs import NO_EPOCH
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._core.fetching.target import FORBIDDEN
from aiogroup._core.fetching.truncation import Leader, leader_of
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.recovery.token import LogId, is_ours, read_token
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import FETCH_FAILED, Failures, Totals
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms, wall_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.leader_offsets import EARLIEST, LATEST, LeaderOffsets, Offsets, epoch_before
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup.config import FROM_EARLIEST, ConsumerConfig, ResetPolicy, parse_reset_policy
from aiogroup.errors import AiogroupError, KafkaTimeoutError, NoOffsetForPartitionError, TopicAuthorizationError, named
from aiogroup.structs import TopicPartition

__all__ = ["LOOK_UP", "Positions"]

LOOK_UP: Final = "looking up positions"
COORDINATOR: Final = -2
"""In place of a leader's id: -1 stands for no leader."""
NOT_COMMITTED: Final = "nothing is committed"


class LaneStarts(Protocol):
    """Starts both lanes of newly assigned partitions (KIP-333)."""

    async def begin(
        self,
        asked: Mapping[TopicPartition, tuple[Partition, int]],
        found: Mapping[TopicPartition, Committed | None],
        times: Mapping[TopicPartition, int],
        until_ms: int,
    ) -> str:
        """Start each partition whose leader answers. Returns why some did not start; those are left unchanged."""
        ...

    def has_begun(self, partition: Partition) -> bool:
        """Whether both lanes of it have started."""
        ...


class Positions:
    """`commits` is `None` without a group: then every position comes from the policy."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        failures: Failures,
        totals: Totals,
        inbox: Inbox,
        supervisor: Supervisor,
        offsets: LeaderOffsets,
        commits: OwnCommits | None,
        recoveries: LaneStarts | None = None,
    ) -> None:
        self._config = config
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._failures = failures
        self._totals = totals
        self._inbox = inbox
        self._supervisor = supervisor
        self._offsets = offsets
        self._commits = commits
        self._policy = parse_reset_policy(config.auto_offset_reset)
        self._new_policy = parse_reset_policy(config.new_partition_reset)
        # Partitions that are being looked up, with their `changes_count` at the request, and who is asked.
        self._asked: dict[Partition, tuple[int, int]] = {}
        self._busy: set[int] = set()  # whom the positions task asks, or will not ask before a backoff has passed
        self._retries: dict[int, Retries] = {}
        self._unknown_since_ms: dict[Partition, int] = {}
        self.why_unknown = ""
        """Why the last look-up that failed did so; empty when no position is missing."""
        # Whether a partition did not exist when we first looked for it.
        self._was_missing: WeakKeyDictionary[Partition, bool] = WeakKeyDictionary()
        self._recoveries = recoveries
        self._recovering: WeakKeyDictionary[Partition, Committed | None] = WeakKeyDictionary()
        self._afterwards: WeakKeyDictionary[Partition, Callable[[], object]] = WeakKeyDictionary()

    @property
    def is_committed_at_once(self) -> bool:
        """Whether a position that is not committed must be committed before the first delivery from it."""
        return self._commits is not None and self._config.enable_auto_commit

    async def run(self) -> None:
        """Look up missing positions whenever there are some.

        The coordinator and each leader are asked apart, and one at a time: who is silent holds up only its own.
        """
        while True:
            # A self-assigned partition's topic may be missing in the metadata; each refresh looks again.
            known = self._link.cluster.topics
            missing = [each for each in self._assignment if _is_wanted(each) and each.tp.topic in known]
            # A rebalance looks up the positions of its own partitions.
            parts = self._by_whom([each for each in missing if not self._is_asked(each)])
            for whom, part in parts.items():
                if whom not in self._busy:
                    self._busy.add(whom)
                    self._ask(part)
                    self._supervisor.spawn("positions of a node", self._look_up_once, whom, part)
            self._note_unknown()
            if not missing:
                self.why_unknown = ""
                self._failures.end(FETCH_FAILED, -1, why=LOOK_UP)
                if self._commits is None or not self._commits.is_adopting:  # a rebalance tells its own at its end
                    self._totals.tell()
            await self._changes[Waiter.POSITIONS].wait()

    def _note_unknown(self) -> None:
        now, before = now_ms(), self._unknown_since_ms
        self._unknown_since_ms = {each: before.get(each, now) for each in self._assignment if each.awaits_position}

    def unknown(self, since_ms: int) -> list[TopicPartition]:
        """The partitions whose position has been looked up, or checked, since that instant or longer."""
        return sorted(each.tp for each, from_ms in self._unknown_since_ms.items() if from_ms <= since_ms)

    async def _look_up_once(self, whom: int, part: list[Partition]) -> None:
        retries = self._retries.setdefault(whom, Retries(self._config))
        try:
            # Once only: a position that is wanted meanwhile must not wait until the last of these has a leader.
            await self._look_up(whom, part, now_ms() + self._config.request_timeout_ms, most_attempts=1)
            retries.on_success()
        except AiogroupError as error:
            if not error.retriable:
                self._inbox.put(error)
            self._emit(events.FetchFailed(-1, None, None, f"{LOOK_UP}: {error}"))
            await retries.back_off()
        finally:
            self._busy.discard(whom)
            self._changes.tell(Change.POSITION)  # what this did not find may be looked up again

    async def commit_held(self) -> None:
        """Commit the positions of held partitions whenever there are some. While that fails, try again."""
        commits, retries = self._commits, Retries(self._config)
        while commits is not None:
            held = [each for each in self._assignment if Bar.HELD in each.bars]
            if not held or commits.is_adopting:
                await self._changes[Waiter.POSITIONS].wait()
            elif await commits.commit_held(held, self._config.request_timeout_ms // 3):
                retries.on_success()
            else:
                await retries.back_off()

    async def resolve(self, partitions: list[Partition], until_ms: int) -> None:
        """Give each partition its position, except one that is moved or lost meanwhile.

        A partition gets it as soon as its own leader has answered.

        Raises:
            AiogroupError: a position could not be looked up until `until_ms`; those partitions stay as they are.
        """
        failure: AiogroupError | None = None
        of = [each for each in partitions if each.state is PositionState.COMMITTED]
        try:
            if of:
                await self._look_up(COORDINATOR, of, until_ms)
        except TopicAuthorizationError as error:
            failure = error
        of = [each for each in partitions if each.state is PositionState.RESET]
        self._ask(of)  # now: the positions task may run before these tasks begin
        parts = self._by_whom(of)
        answers = [
            self._supervisor.begin("positions of a node", partial(self._look_up, whom, part, until_ms))
            for whom, part in parts.items()
        ]
        if answers:
            await asyncio.wait(answers)
        for answer in answers:
            try:
                answer.result()
            except TopicAuthorizationError as error:
                former = failure.topics if isinstance(failure, TopicAuthorizationError) else frozenset()
                failure = TopicAuthorizationError(error.topics | former)
            except AiogroupError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _look_up(
        self, whom: int, partitions: list[Partition], until_ms: int, most_attempts: int | None = None
    ) -> None:
        """Ask the coordinator where these partitions go on, or their leader; at most `most_attempts` times.

        Raises:
            AiogroupError: as `resolve`.
        """
        self.follow_topics(partitions)
        failure: AiogroupError | None = None
        try:
            # The application may have moved some since somebody decided to ask for them.
            if whom == COORDINATOR:
                of = [each for each in partitions if each.state is PositionState.COMMITTED]
                await self._resolve_committed(of, until_ms)
            else:
                of = [each for each in partitions if each.state is PositionState.RESET]
                ours = [each for each in of if each in self._recovering]
                try:
                    await self._recover(ours, until_ms, most_attempts)
                except AiogroupError as error:
                    failure = error  # other partitions do not wait for these
                await self._resolve_policy([each for each in of if each not in ours], until_ms, most_attempts)
            if failure is not None:
                raise failure
        except AiogroupError as error:
            self.why_unknown = str(error)
            if isinstance(error, TopicAuthorizationError):
                for each in partitions:
                    if each.tp.topic in error.topics:
                        each.target.failed(FORBIDDEN)
            raise
        finally:
            for each in partitions:
                self._asked.pop(each, None)
            self._changes.tell(Change.POSITION)

    def _by_whom(self, partitions: list[Partition]) -> dict[int, list[Partition]]:
        """By the leader's id, -1 without a leader, or `COORDINATOR` for those whose committed offsets are asked for."""
        parts: dict[int, list[Partition]] = defaultdict(list)
        for each in partitions:
            parts[self._whom(each)].append(each)
        return parts

    def _whom(self, partition: Partition) -> int:
        return COORDINATOR if partition.state is PositionState.COMMITTED else self._link.cluster.leader(partition.tp)

    def _is_asked(self, partition: Partition) -> bool:
        return self._asked.get(partition) == (partition.target.changes_count, self._whom(partition))

    def _ask(self, partitions: list[Partition]) -> dict[TopicPartition, tuple[Partition, int]]:
        """Note which change of each partition the request belongs to: an answer counts only if nobody moved it
        since.
        """
        self._asked.update((each, (each.target.changes_count, self._whom(each))) for each in partitions)
        return {each.tp: (each, each.target.changes_count) for each in partitions}

    async def _resolve_committed(self, partitions: list[Partition], until_ms: int) -> None:
        asked = self._ask(partitions)
        found: Mapping[TopicPartition, Committed | None] = {}
        refusal: TopicAuthorizationError | None = None
        while asked and self._commits is not None:
            try:
                found = await self._commits.committer.committed.fetch(asked, until_ms)
                break
            except TopicAuthorizationError as error:  # other topics do not wait for an ACL
                if error.topics.isdisjoint(tp.topic for tp in asked):
                    raise
                topics = error.topics | (refusal.topics if refusal is not None else frozenset())
                refusal = TopicAuthorizationError(topics)
                asked = {tp: each for tp, each in asked.items() if tp.topic not in topics}
        self.follow_topics(partitions)  # also partitions that are not ours yet: nothing else checks them
        for tp, (partition, changes_count) in asked.items():
            if partition.target.changes_count != changes_count:
                continue
            committed = found.get(tp)
            if self._recoveries is not None and (committed is not None or partition.reset.policy.decides):
                self._recovering[partition] = committed
                partition.move(PositionState.RESET)  # its leader must be asked
            elif committed is not None and self.is_of_former_topic(tp, committed):
                topic_id = str(partition.topic_id)
                self._emit(events.TopicRecreated(tp.topic, tp.partition, committed.offset, "", topic_id))
                self.reset(partition, FROM_EARLIEST, why=events.RECREATED)
                self._afterwards.pop(partition, lambda: None)()
            elif committed is not None:
                leader = leader_of(self._link.cluster, tp)
                partition.start_at(committed.offset, leader_epoch=committed.leader_epoch, leader=leader)
                partition.committed = committed
            else:
                self.reset(partition, partition.reset.policy, why=NOT_COMMITTED)
                self._afterwards.pop(partition, lambda: None)()
        if refusal is not None:
            raise refusal

    async def _recover(self, partitions: list[Partition], until_ms: int, most_attempts: int | None) -> None:
        """Start both lanes of newly assigned partitions (KIP-333)."""
        recoveries, retries = self._recoveries, Retries(self._config, until_ms, most_attempts=most_attempts)
        while recoveries is not None:
            self.follow_topics(partitions)
            if not (left := [each for each in partitions if each in self._recovering]):
                return
            asked = self._ask(left)
            found = {each.tp: self._recovering[each] for each in left}
            times = {each.tp: _timestamp(each.reset.policy) for each in left if found[each.tp] is None}
            why = await recoveries.begin(asked, found, times, until_ms)
            for each in left:
                if each.state is not PositionState.RESET or each.target.changes_count != asked[each.tp][1]:
                    self._recovering.pop(each, None)
                    self._afterwards.pop(each, lambda: None)()
                    self._changes.tell(Change.POSITION)  # a commit by name may wait for both lanes
            if not why:
                continue
            if not await retries.back_off():
                raise KafkaTimeoutError(f"where {sorted(asked)} go on is not known yet: {why}")

    def is_recovering(self, partition: Partition, then: Callable[[], object]) -> bool:
        """Whether its lanes are being looked up. If so, `then` is called as soon as they have started."""
        if not self.is_undecided(partition):
            return False
        self._afterwards[partition] = then
        return True

    def is_undecided(self, partition: Partition) -> bool:
        """Whether two lanes will read it and their starting offsets are not known yet. Always False without KIP-333."""
        is_wanted = partition.state is PositionState.COMMITTED or partition in self._recovering
        return self._recoveries is not None and is_wanted and not self._recoveries.has_begun(partition)

    def is_of_former_topic(self, tp: TopicPartition, committed: Committed) -> bool:
        """Whether a token (KIP-333) proves that the committed offset belongs to a deleted topic, whose name exists
        again.
        """
        cluster = self._link.cluster
        topic_id = cluster.topic_id(tp.topic)
        if topic_id is None or not is_ours(committed.metadata):
            return False
        log_id = LogId(cluster.cluster_id or "", tp.topic, topic_id, tp.partition)
        return read_token(committed.offset, committed.metadata, log_id).is_of_former_topic

    def follow_topics(self, partitions: Iterable[Partition] | None = None) -> None:
        """Start over with each partition whose topic id in the metadata has changed, of `partitions` or of all that are
        ours.
        """
        emit = self._emit
        for partition in self._assignment if partitions is None else partitions:
            tp, former_id = partition.tp, partition.topic_id
            topic_id = self._link.cluster.topic_id(tp.topic)
            if topic_id is None or topic_id == former_id:
                continue
            if former_id is not None and not partition.starts_count:
                self._look_up_again(partition, topic_id)
            elif former_id is not None:
                self._start_over(partition, former_id, topic_id)
            elif (former := self._assignment.name_topic(partition, topic_id)) is not None:
                id_then, position = former
                emit(events.TopicRecreated(tp.topic, tp.partition, position, str(id_then), str(topic_id)))
                self._changes.tell(Change.POSITION)  # the positions task tells the totals

    def note_sight(self, answer: Cluster) -> None:
        """Note partitions that do not exist when we first look: they begin by `new_partition_reset`, since all their
        records are newer than our subscription.

        `answer` was requested after the partitions became ours: older metadata may be stale. A broker that lags behind
        may not know a topic that has existed for long; then more records are read than the policy asks for. But if the
        topic's id is known, only another id proves that the topic was recreated. With `auto_offset_reset="none"` the
        application says where to begin.
        """
        ids = {each.tp.topic: each.topic_id for each in self._assignment if each.topic_id is not None}
        for partition in self._assignment:
            topic, policy = partition.tp.topic, partition.reset.policy
            is_unknown = answer.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition in self._was_missing or not (is_unknown or topic in answer.topics):
                continue
            if is_unknown:
                partition.topic_id = ids.get(topic)
            is_missing = partition.topic_id is None if is_unknown else answer.partition(partition.tp) is None
            self._was_missing[partition] = is_missing
            if is_missing and policy.decides and policy != self._new_policy:
                partition.reset.policy = self._new_policy

    def _look_up_again(self, partition: Partition, topic_id: UUID) -> None:
        """Look up the position in the new topic. Nothing of the old one was read in this ownership, and another member
        may already have committed an offset of the new one.
        """
        self._recovering.pop(partition, None)
        partition.drop_buffer()  # answers about the old topic do not count
        partition.topic_id, partition.reset.policy = topic_id, self._new_policy
        partition.move(PositionState.COMMITTED)

    def _start_over(self, partition: Partition, former_id: UUID, topic_id: UUID) -> None:
        """The topic was recreated, and other records stand at the same offsets: drop everything buffered, in hand or to
        be committed.

        The whole new log was written after we had subscribed, so it is read like a new partition.
        """
        tp = partition.tp
        self._delivery.settle()
        position = partition.position
        if partition.has_uncommitted:
            self._assignment.note_lost((tp,))
        self._delivery.forget([partition])
        partition.lanes.abandon(events.RECREATED)
        self._recovering.pop(partition, None)
        self._afterwards.pop(partition, None)
        self._assignment.start_over(partition, topic_id)
        self._emit(events.TopicRecreated(tp.topic, tp.partition, position, str(former_id), str(topic_id)))
        self.reset(partition, self._new_policy, why=events.RECREATED)

    def reset(self, partition: Partition, policy: ResetPolicy, *, why: str, lost: int = -1) -> None:
        """Start over by the reset policy: look up the position, or have the application set it. `lost` is the position
        that the log does not hold.
        """
        if not policy.decides:
            partition.stick(NoOffsetForPartitionError(partition.tp))
        else:
            partition.await_reset(policy, why, lost)

    async def _resolve_policy(self, partitions: list[Partition], until_ms: int, most_attempts: int | None) -> None:
        asked = self._ask(partitions)
        wanted = {tp: _timestamp(each.reset.policy) for tp, (each, _) in asked.items()}
        leaders = {tp: leader_of(self._link.cluster, tp) for tp in asked}
        started: dict[TopicPartition, tuple[str, int]] = {}

        def note(found: Offsets) -> None:
            for tp, answer in found.items():
                partition, changes_count = asked[tp]
                is_moved = partition.target.changes_count != changes_count
                further = None if is_moved else self._further(partition, wanted[tp], answer.offset)
                if further is not None:
                    wanted[tp] = further
                    continue
                offset, is_end = answer.offset, wanted.pop(tp) == LATEST
                if partition.reset.policy.kind == "nearest" and is_end:
                    offset = min(offset, partition.reset.lost)  # the log may have grown past it meanwhile
                if not is_moved:
                    if partition.reset.why == NOT_COMMITTED:
                        started[tp] = partition.reset.policy.kind, offset
                        is_new = self._was_missing.get(partition) and partition.reset.policy is self._new_policy
                        if is_new and self._new_policy.kind == "earliest":
                            self._emit(events.NewPartitionFromEarliest(tp.topic, tp.partition))
                    epoch = epoch_before(answer) if is_end and offset == answer.offset else NO_EPOCH
                    self._start_at(partition, offset, epoch, leaders[tp])

        retries = Retries(self._config, until_ms, most_attempts=most_attempts)
        while wanted:
            try:
                why = await self._ask_leaders(wanted, until_ms, note)
            finally:
                for event in events.PositionFromPolicy.of_round(started):
                    self._emit(event)
                started.clear()
            if wanted and not await retries.back_off():
                raise KafkaTimeoutError(f"no offsets for {named(wanted)} yet: {why}")

    async def _ask_leaders(
        self, wanted: Mapping[TopicPartition, int], until_ms: int, note: Callable[[Offsets], object]
    ) -> str:
        """Ask for all that is `wanted`, and where `note` changes a question, that one at once, whatever became of the
        others. Returns why some were not answered.

        Raises:
            TopicAuthorizationError, UnsupportedVersionError, AuthenticationFailedError
        """
        asked, why, refusal = dict(wanted), "", None
        while asked:
            try:
                refused = await self._offsets.ask_leaders(
                    asked, until_ms, note, read_committed=self._config.read_committed
                )
                why = refused or why
            except TopicAuthorizationError as error:
                refusal = error
            asked = {tp: at for tp, at in wanted.items() if tp in asked and at != asked[tp]}
        if refusal is not None:
            raise refusal
        return why

    def _further(self, partition: Partition, asked: int, offset: int) -> int | None:
        """The next question to the leader, which answered `offset` to `asked` (a timestamp, EARLIEST or LATEST); `None`
        if that was enough.
        """
        reset = partition.reset
        if asked == LATEST:
            return None
        if reset.policy.kind != "nearest":
            return LATEST if offset < 0 else None  # no record is as new as the timestamp
        if reset.lost <= offset:
            return None  # retention has removed what was next
        committed = partition.committed
        if reset.lost != reset.sought or (committed is not None and committed.offset == reset.lost):
            return LATEST
        reset.policy = self._policy  # nobody was ever at the offset that the application sought
        return _timestamp(self._policy)

    def _start_at(self, partition: Partition, offset: int, leader_epoch: int, asked: Leader) -> None:
        """Begin at `offset`, which was `asked` for of a leader; the record before it has `leader_epoch`."""
        partition.lanes.return_to(offset)
        leader = leader_of(self._link.cluster, partition.tp)
        partition.start_at(offset, leader_epoch=leader_epoch, leader=leader, was_reset=True)
        if leader == asked:
            partition.trust()
        partition.bar(Bar.HELD, when=self.is_committed_at_once)
        tp, reset = partition.tp, partition.reset
        if reset.why != NOT_COMMITTED:
            skipped_count = max(0, offset - reset.lost) if reset.lost >= 0 else 0
            self._emit(events.OffsetReset(tp.topic, tp.partition, offset, reset.policy.kind, reset.why, skipped_count))


def _is_wanted(partition: Partition) -> bool:
    return partition.state in (PositionState.COMMITTED, PositionState.RESET)


def _timestamp(policy: ResetPolicy) -> int:
    match policy.kind:
        case "earliest" | "nearest":
            return EARLIEST
        case "by_duration":
            return max(0, wall_ms() - policy.duration_ms)
        case _:
            return LATEST
