"""Offsets that the application names: to which ownership each belongs, and which lane it means (KIP-333).

The application may name an offset before it is known where the lanes of its partition begin. No record was delivered
in this ownership then, so the offset cannot be of one. If it were sent as it is, it would replace the token that lists
the pending ranges, and nobody would read those records. So `commit` waits until the lanes have begun, and then checks
whether the offset lies in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.lane import Bar
from aiogroup._core.fetching.one_lane import OneLane
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.offsets.commit_plan import CommitEntry
from aiogroup._core.offsets.named_offsets import Offsets, read_offsets
from aiogroup._core.values import dataclass
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.net.link import Link
from aiogroup.errors import ConsumerStoppedError, IllegalStateError, KafkaTimeoutError, named
from aiogroup.structs import TopicPartition

__all__ = ["NamedOffset", "NamedOffsets"]


@dataclass(frozen=True, slots=True)
class NamedOffset:
    """The offset of one partition, bound to its ownership at the call; `partition` is `None` if it was not assigned."""

    tp: TopicPartition
    offset: int
    metadata: str
    partition: Partition | None
    ownership: int

    @property
    def is_of_former_log(self) -> bool:
        """The records below it are gone: the committer refuses the offset, whatever lanes the partition has now."""
        return self.partition is not None and self.partition.is_of_former_log(self.offset)


class Lookups(Protocol):
    """The part that looks up where the lanes of a partition begin."""

    def is_undecided(self, partition: Partition) -> bool:
        """Two lanes will read the partition, and it is not known yet where they begin."""
        ...


class NamedOffsets:
    def __init__(
        self,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        inbox: Inbox,
        positions: Lookups,
    ) -> None:
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._inbox = inbox
        self._positions = positions

    def bind(self, offsets: Offsets, why_not_assigned: Callable[[TopicPartition], str]) -> list[NamedOffset]:
        """Bind each offset to its partition's present ownership. Those of lost partitions are kept, and refused later.

        Raises:
            IllegalStateError: a partition was never assigned.
            ValueError, TypeError: not offsets, or one lies in none of the lanes that have begun.
        """
        assignment, bound = self._assignment, []
        for tp, (offset, metadata) in read_offsets(offsets).items():
            partition = assignment.get(tp)
            if partition is None and not assignment.was_owned(tp):
                raise IllegalStateError(f"commit: {why_not_assigned(tp)}")
            number = -1 if partition is None else partition.ownership
            bound.append(NamedOffset(tp, offset, metadata, partition, number))
        self._check(bound)
        return bound

    def undecided(self, bound: Iterable[NamedOffset]) -> list[NamedOffset]:
        """Those whose lanes have not begun yet, without partitions that are being given up, which need no answer."""
        return [
            each
            for each in bound
            if each.partition is not None
            and self._is_owned(each.partition)
            and Bar.LEAVING not in each.partition.bars
            and self._positions.is_undecided(each.partition)
        ]

    def undecided_of_all(self) -> list[TopicPartition]:
        """The assigned partitions whose lanes have not begun yet."""
        return [each.tp for each in self._assignment if self._positions.is_undecided(each)]

    async def decided(self, bound: list[NamedOffset], until_ms: int) -> None:
        """Wait until the lanes of all these partitions have begun.

        Raises:
            KafkaTimeoutError: some had not begun at `until_ms`.
            ValueError: an offset lies in none of the lanes that have begun meanwhile.
            ConsumerStoppedError: the consumer was stopped meanwhile.
            AiogroupError: the consumer failed meanwhile.
        """
        waiting = self.undecided(bound)
        while waiting:
            names = named([each.tp for each in waiting])
            self._inbox.raise_fatal()
            if self._link.is_closed:
                raise ConsumerStoppedError(f"the consumer was stopped before it was known where {names} go on")
            if now_ms() >= until_ms:
                raise KafkaTimeoutError(
                    f"nothing was committed: it is not known yet where {names} go on, as their leaders have not "
                    "answered. Records of an earlier ownership come again; commit what is delivered then"
                )
            await self._changes[Waiter.REQUESTS].wait(until_ms)
            still = self.undecided(waiting)
            # Checked at once: records that are delivered while others are waited for were not meant by the call.
            self._check(each for each in waiting if each not in still)
            waiting = still

    def entries(self, bound: Iterable[NamedOffset]) -> dict[TopicPartition, CommitEntry]:
        """The entries to send. The committer refuses those whose ownership has ended since the call.

        Raises:
            ValueError: an offset lies in none of its partition's lanes; then no book notes any of them.
        """
        bound = list(bound)
        self._check(bound)
        return {each.tp: self._entry(each) for each in bound}

    def _check(self, bound: Iterable[NamedOffset]) -> None:
        """Check all offsets before any is noted: no part of a refused commit may be sent with a later one."""
        self._delivery.settle()
        for each in bound:
            partition = each.partition
            if partition is not None and self._is_for_lanes(each, partition):
                partition.lanes.check(each.offset, each.metadata)

    def _entry(self, each: NamedOffset) -> CommitEntry:
        partition = each.partition
        if partition is None or self._positions.is_undecided(partition):  # given up before its lanes had begun
            return CommitEntry(each.offset, each.metadata, -1)
        lanes = partition.lanes if self._is_for_lanes(each, partition) else OneLane(partition)
        return lanes.named(each.offset, each.metadata, each.ownership)

    def _is_for_lanes(self, each: NamedOffset, partition: Partition) -> bool:
        """Lanes decide what the offset means, unless its ownership has ended or its records are gone."""
        return self._is_owned(partition) and not each.is_of_former_log

    def _is_owned(self, partition: Partition) -> bool:
        return self._assignment.is_owned_since(partition.tp, partition.ownership)
