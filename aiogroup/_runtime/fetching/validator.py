"""The validator task: has the leader check a position by its epochs before records are read from there (KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.cluster import Cluster
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._core.fetching.target import FORBIDDEN
from aiogroup._core.fetching.truncation import Action, EpochEnd, EpochRemedy, Search, act, is_news, leader_of, narrow
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.fetching.epoch_ends import ANSWER_MS, EpochAnswer, ask_epoch_ends
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig, parse_reset_policy
from aiogroup.errors import AiogroupError, LogTruncationError, TopicAuthorizationError, UnsupportedVersionError
from aiogroup.structs import TopicPartition

__all__ = ["Validator"]


class Validator:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        supervisor: Supervisor,
        inbox: Inbox,
        refresher: Refresher,
        positions: Positions,
    ) -> None:
        self._config = config
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._supervisor = supervisor
        self._inbox = inbox
        self._refresher = refresher
        self._positions = positions
        self._policy = parse_reset_policy(config.auto_offset_reset)
        self._asked: dict[Partition, int] = {}  # with their `changes_count` at the request
        self._ahead_since_ms: dict[Partition, int] = {}

    def follow_leaders(self, answer: Cluster) -> None:
        """The metadata is new: a new leader must be asked before anything else is fetched from it or delivered."""
        cluster = self._link.cluster
        self._positions.note_sight(answer)
        self._positions.follow_topics()  # first: another topic of the same name has epochs of its own
        for partition in self._assignment:
            leader = leader_of(cluster, partition.tp)
            if is_news(partition.leader, leader):
                self._delivery.close_cursor()
                partition.follow(leader)
        self._changes.tell(Change.METADATA)

    async def run(self) -> None:
        """Ask every leader separately: one that does not answer holds up only its own partitions."""
        while True:
            now = now_ms()
            self._ahead_since_ms = {
                each: since_ms
                for each, since_ms in self._ahead_since_ms.items()
                if self._assignment.is_owned_since(each.tp, each.ownership)
            }
            by_leader: dict[int, list[Partition]] = defaultdict(list)
            due_ms: list[int] = []
            for each in self._assignment:
                if each.state is not PositionState.VALIDATING or self._asked.get(each) == each.target.changes_count:
                    continue
                if now >= each.target.backoff_until_ms and self._is_ahead(each, now):
                    self._refresher.want()
                    each.back_off(now, self._config)
                if now < each.target.backoff_until_ms:
                    due_ms.append(each.target.backoff_until_ms)
                else:
                    by_leader[each.leader.node_id].append(each)
            for node_id, partitions in by_leader.items():
                asked = {each: each.target.changes_count for each in partitions}
                self._asked |= asked
                self._supervisor.spawn("validation", self._ask, node_id, asked)
            await self._changes[Waiter.POSITIONS].wait(min(due_ms, default=None))

    def _is_ahead(self, partition: Partition, now: int) -> bool:
        """Whether the position has a newer epoch than the leader in the metadata, which then cannot check it.

        That ends after a while: if the topic was recreated, its epochs began again.
        """
        if partition.search.leader_epoch <= partition.leader.epoch:
            self._ahead_since_ms.pop(partition, None)
            return False
        since_ms = self._ahead_since_ms.setdefault(partition, now)
        return now - since_ms < self._config.request_timeout_ms

    async def _ask(self, node_id: int, asked: dict[Partition, int]) -> None:
        limit_ms = min(ANSWER_MS, self._config.request_timeout_ms)
        question = {each.tp: (each.leader, each.search.leader_epoch) for each in asked}
        try:
            answers = await ask_epoch_ends(self._link, node_id, question, limit_ms)
        except UnsupportedVersionError:  # older than Kafka 2.3
            for partition in self._unchanged(asked):
                partition.trust()
        except AiogroupError as error:
            self._emit(events.FetchFailed(node_id, None, None, f"checking positions: {error}"))
            self._retry(self._unchanged(asked))
        else:
            self._take_answers(node_id, answers, asked)
        finally:
            for partition, changes_count in asked.items():
                if self._asked.get(partition) == changes_count:
                    del self._asked[partition]
            self._changes.tell(Change.POSITION)  # what this did not settle is asked for again

    def _unchanged(self, asked: dict[Partition, int]) -> list[Partition]:
        """The partitions that were not moved, lost or given another leader since the request."""
        return [
            each
            for each, changes_count in asked.items()
            if each.target.changes_count == changes_count and each.state is PositionState.VALIDATING
        ]

    def _retry(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.back_off(now_ms(), self._config)
        if partitions:
            self._refresher.want()

    def _take_answers(
        self, node_id: int, answers: Mapping[TopicPartition, EpochAnswer], asked: dict[Partition, int]
    ) -> None:
        for partition in self._unchanged(asked):
            tp, found = partition.tp, answers.get(partition.tp)
            if found is not None and found.remedy is EpochRemedy.PROCEED:
                self._go_on(partition, found.end)
                continue
            why = "the answer lacks it" if found is None else found.error
            self._emit(events.FetchFailed(node_id, tp.topic, tp.partition, f"checking the position: {why}"))
            if found is not None and found.remedy is EpochRemedy.NOT_AUTHORIZED:
                partition.target.failed(FORBIDDEN)
                self._inbox.put(TopicAuthorizationError([tp.topic]))
            self._retry([partition])

    def _go_on(self, partition: Partition, answer: EpochEnd) -> None:
        found = narrow(partition.search, answer, partition.epochs)
        if isinstance(found, Search):
            partition.search = found
            return
        self._ahead_since_ms.pop(partition, None)
        tp, delivery, position = partition.tp, self._delivery, partition.search.position
        leader_epoch = partition.epoch_before(position)
        action = act(found, has_policy=self._policy.decides)
        if found is None:
            partition.confirm(answer)
            return
        if action is Action.FAIL:
            partition.stick(LogTruncationError(tp, position, found.offset))
        elif found.offset is None:
            delivery.forget([partition])
            self._positions.reset(partition, self._policy, why="the log was truncated, and nobody knows where")
            partition.note_gone(position)
        else:
            delivery.forget([partition])
            partition.lanes.truncate(found.offset, found.leader_epoch)
            partition.note_gone(position)
            partition.bar(Bar.HELD, when=self._positions.is_committed_at_once)
        count = None if found.offset is None else position - found.offset
        self._emit(
            events.LogTruncated(tp.topic, tp.partition, position, leader_epoch, found.offset, count, action.value)
        )
