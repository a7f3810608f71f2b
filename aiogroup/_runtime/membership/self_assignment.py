"""Partitions that no group assigned: those that the application names, or all partitions of its topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.membership.assignments import AllOfTopics
from aiogroup._core.membership.topics import Topics
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.membership.assignment_followers import AssignmentFollowers
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig, parse_reset_policy
from aiogroup.structs import TopicPartition

__all__ = ["SelfAssignment"]


class CommitsLeaving(Protocol):
    """The group for which offsets are committed, if there is one."""

    def commit_leaving(self, partitions: Iterable[Partition]) -> None:
        """Auto-commit, in the background, of partitions that are about to be given up."""
        ...


class SelfAssignment:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        emit: Emit,
        topics: Topics,
        group: CommitsLeaving,
        assignment_followers: AssignmentFollowers,
        callback_runs: CallbackRuns,
    ) -> None:
        self._callback_runs = callback_runs
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._emit = emit
        self._topics = topics
        self._group = group
        self._assignment_followers = assignment_followers
        self._default_policy = parse_reset_policy(config.auto_offset_reset)
        self._new_policy = parse_reset_policy(config.new_partition_reset)
        self._prepared: dict[TopicPartition, Partition] = {}
        self._all_of_topics = AllOfTopics()

    def assign(self, wanted: frozenset[TopicPartition], *, new: bool = False) -> None:
        """Assign exactly these partitions. Those that stay keep their position."""
        assignment = self._assignment
        # No rebalance follows that would commit the partitions which are given up.
        self._group.commit_leaving([each for each in assignment if each.tp not in wanted])
        self._delivery.forget(assignment.remove(assignment.names - wanted))
        added = dict.fromkeys(wanted - assignment.names, self._new_policy if new else self._default_policy)
        assignment.put([self._prepared.get(tp) or assignment.make({tp: each})[0] for tp, each in added.items()])
        self._prepared.clear()
        self._assignment_followers.tell()

    def assign_all_of(self, topics: frozenset[str], appeared: frozenset[str] = frozenset()) -> None:
        """Assign all partitions of these topics. `appeared`: topics that were made after they were subscribed to."""
        cluster, assignment = self._link.cluster, self._assignment
        gone = self._topics.gone(cluster)
        choice = self._all_of_topics.choose(topics, assignment.names, cluster, gone=gone, appeared=appeared)
        if choice.new:
            self.assign((assignment.names & choice.wanted) | choice.new, new=True)
            for tp in choice.new if self._new_policy.kind == "earliest" else ():
                self._emit(events.NewPartitionFromEarliest(tp.topic, tp.partition))
        if choice.wanted != assignment.names:
            self.assign(choice.wanted)

    # For a member that assigns partitions to itself: they are assigned once it has left the group, prepared until then.

    def prepare(self, wanted: frozenset[TopicPartition]) -> None:
        """These partitions will be assigned: until then the application can seek in them and pause them."""
        missing = dict.fromkeys(wanted - self._prepared.keys(), self._default_policy)
        made = {each.tp: each for each in self._assignment.make(missing)}
        self._prepared = {tp: each for tp, each in (self._prepared | made).items() if tp in wanted}

    @property
    def names(self) -> frozenset[TopicPartition]:
        """The partitions that the application means by "all"."""
        return frozenset(self._prepared if self._is_prepared else self._assignment.names)

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The partition that the application means: one that is prepared, or one that is assigned."""
        return self._prepared.get(tp) if self._is_prepared else self._assignment.get(tp)

    @property
    def _is_prepared(self) -> bool:
        """There are prepared partitions. A rebalance callback means the group's partitions instead."""
        return bool(self._prepared) and not self._callback_runs.is_in_callback

    def still(self, partitions: Iterable[Partition], numbers: Iterable[int]) -> list[Partition]:
        """Those whose ownership is still the one with this number, so that no topic was recreated meanwhile either."""
        asked = zip(partitions, numbers, strict=True)
        return [each for each, number in asked if each.ownership == number and self.is_still(each)]

    def is_still(self, partition: Partition) -> bool:
        """The same ownership goes on, or is about to begin."""
        is_ours = self._assignment.is_owned_since(partition.tp, partition.ownership)
        return is_ours or self._prepared.get(partition.tp) is partition
