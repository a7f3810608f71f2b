"""Offsets that the application names: of which ownership they are, and what they mean where two lanes read (KIP-333).

An offset that is named while it is not known yet where the lanes of its partition begin cannot be of this ownership,
from which nothing was delivered. Sent as it is, it would replace the token of what is pending, and those records would
come to nobody. So `commit` waits until the lanes have begun, and they say whether the offset means anything in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from aiogroup.errors import ConsumerStoppedError, IllegalStateError, KafkaTimeoutError, named
from aiogroup.fetching.lane import Bar
from aiogroup.fetching.partition import Partition
from aiogroup.offsets.commit_plan import CommitEntry, Offsets, read_offsets
from aiogroup.runtime.context import Context
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = ["NamedOffset", "NamedOffsets"]


@dataclass(frozen=True, slots=True)
class NamedOffset:
    """The offset of one partition, bound to the ownership of the call: `partition` is `None` where there was none."""

    tp: TopicPartition
    offset: int
    metadata: str
    partition: Partition | None
    ownership: int

    @property
    def is_of_former_log(self) -> bool:
        """The topic was deleted and made anew: the committer refuses it, whatever the lanes of the new one are."""
        return self.partition is not None and self.partition.is_of_former_log(self.offset)


class Lookups(Protocol):
    """Whoever looks up where the lanes of a partition begin."""

    def is_undecided(self, partition: Partition) -> bool:
        """Two lanes will read it, and it is not known yet where they begin."""
        ...


class NamedOffsets:
    def __init__(self, context: Context, positions: Lookups) -> None:
        self._context = context
        self._positions = positions

    def bind(self, offsets: Offsets, why_not_assigned: Callable[[TopicPartition], str]) -> list[NamedOffset]:
        """Each with the ownership of now. Those of partitions that were lost are kept, to be refused with the others.

        Raises:
            IllegalStateError: a partition never was assigned.
            ValueError, TypeError: not offsets, or they mean nothing in the lanes that have begun.
        """
        assignment, bound = self._context.assignment, []
        for tp, (offset, metadata) in read_offsets(offsets).items():
            partition = assignment.get(tp)
            if partition is None and not assignment.was_owned(tp):
                raise IllegalStateError(f"commit: {why_not_assigned(tp)}")
            number = -1 if partition is None else partition.ownership
            bound.append(NamedOffset(tp, offset, metadata, partition, number))
        self._check(bound)
        return bound

    def undecided(self, bound: Iterable[NamedOffset]) -> list[NamedOffset]:
        """Those of which it is not known yet where the lanes begin. What is being given up needs no answer."""
        return [
            each
            for each in bound
            if each.partition is not None
            and self._is_owned(each.partition)
            and Bar.LEAVING not in each.partition.bars
            and self._positions.is_undecided(each.partition)
        ]

    def undecided_of_all(self) -> list[TopicPartition]:
        """The partitions that are ours, and of which it is not known yet where their lanes begin."""
        return [each.tp for each in self._context.assignment if self._positions.is_undecided(each)]

    async def decided(self, bound: list[NamedOffset], until_ms: int) -> None:
        """Wait until it is known what each means.

        Raises:
            KafkaTimeoutError: not known until `until_ms`.
            ValueError: one means nothing in the lanes that have begun meanwhile.
            ConsumerStoppedError: it was stopped meanwhile. AiogroupError: the consumer failed meanwhile.
        """
        context, waiting = self._context, self.undecided(bound)
        while waiting:
            names = named([each.tp for each in waiting])
            context.inbox.raise_fatal()
            if context.link.is_closed:
                raise ConsumerStoppedError(f"the consumer was stopped before it was known where {names} go on")
            if now_ms() >= until_ms:
                raise KafkaTimeoutError(
                    f"nothing was committed: it is not known yet where {names} go on, as their leaders have not "
                    "answered. Records of an earlier ownership come again; commit what is delivered then"
                )
            await context.changed.wait(until_ms)
            still = self.undecided(waiting)
            # At once: what is delivered while others are waited for is not what was named.
            self._check(each for each in waiting if each not in still)
            waiting = still

    def entries(self, bound: Iterable[NamedOffset]) -> dict[TopicPartition, CommitEntry]:
        """What to send. An ownership that has ended since it was named is one that the committer refuses.

        Raises:
            ValueError: one means nothing in its lanes; nothing is noted as told then.
        """
        bound = list(bound)
        self._check(bound)
        return {each.tp: self._entry(each) for each in bound}

    def _check(self, bound: Iterable[NamedOffset]) -> None:
        """All before the first is noted: nothing of a commit that is refused may go out with a later one."""
        self._context.delivery.settle()
        for each in bound:
            partition = each.partition
            if partition is not None and partition.lanes is not None and self._has_lanes(each, partition):
                partition.lanes.check(each.offset, each.metadata)

    def _entry(self, each: NamedOffset) -> CommitEntry:
        partition = each.partition
        if partition is None or self._positions.is_undecided(partition):  # given up before it was known
            return CommitEntry(each.offset, each.metadata, -1)
        if partition.lanes is not None and self._has_lanes(each, partition):
            entry: CommitEntry = partition.lanes.named(each.offset, each.metadata)
            return entry
        epoch = partition.epoch_before(each.offset)
        return CommitEntry(each.offset, each.metadata, each.ownership, epoch, partition.starts_count)

    def _has_lanes(self, each: NamedOffset, partition: Partition) -> bool:
        """Lanes say what it means: not where the ownership ended, or it is of a topic that was deleted."""
        return self._is_owned(partition) and not each.is_of_former_log

    def _is_owned(self, partition: Partition) -> bool:
        return self._context.assignment.is_owned_since(partition.tp, partition.ownership)
