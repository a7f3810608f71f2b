"""Looks inside a running consumer, for pages that show it: its deadlines, its partitions and what their lanes read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.records.decode import PassedOver
from aiogroup._core.telemetry.figures import PartitionFigures
from aiogroup._core.telemetry.inside import Deadline, PartitionInside
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.figures import partition_figures
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.net.link import Link
from aiogroup.structs import TopicPartition

__all__ = ["Inside"]


class Inside:
    """A look inside a running consumer. No broker is asked, and nothing is kept: each call looks anew. What is not for
    everybody is asked for here, too: `read_up_to` and `put_off`.

    The iterators may be left for a while and taken up again, so that the event loop runs in between. They leave out
    partitions that are given up meanwhile.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def link(self) -> Link:
        """The connections, for questions about the group."""
        return self._engine.link

    @property
    def member(self) -> tuple[str, int] | None:
        """The member's id and generation; `None` outside of a group."""
        member = self._engine.member
        return None if member is None else member.identity

    def deadlines(self) -> tuple[Deadline, ...]:
        """The three time-outs of a member; none outside of a group."""
        member = self._engine.member
        return () if member is None else member.deadlines(now_ms())

    def figures(self) -> Iterator[PartitionFigures]:
        for partition in self._assigned():
            yield partition_figures(self._engine, partition)

    def partitions(self) -> Iterator[PartitionInside]:
        for partition in self._assigned():
            yield self._look(partition)

    def read_up_to(self, ends: Mapping[TopicPartition, int]) -> list[PassedOver]:
        """As `Fetchers.read_up_to`, for whoever reads exact ranges."""
        return self._engine.fetchers.read_up_to(ends)

    def put_off(self, offsets: Mapping[TopicPartition, int], most_ms: int) -> None:
        """An earlier consumer failed with these records in hand. They come when
        nothing else is there to be handed out, or after `most_ms` milliseconds.
        """
        self._engine.requests.put_off(offsets, most_ms)

    def _assigned(self) -> Iterator[Partition]:
        assignment, delivery = self._engine.assignment, self._engine.delivery
        for partition in tuple(assignment):
            if assignment.get(partition.tp) is partition:
                delivery.settle()
                yield partition

    def _look(self, partition: Partition) -> PartitionInside:
        progress = partition.lanes.progress()
        ledgers = [partition.ledger, *(each.ledger for each in partition.lanes.cursors)]
        return PartitionInside(
            partition.tp,
            partition_figures(self._engine, partition),
            position=partition.position,
            begin=partition.log.begin_offset,
            held_count=sum(each.in_hand_count for each in ledgers),
            held_from=min((each.committable for each in ledgers if each.has_unprocessed), default=None),
            state=partition.state,
            withheld=tuple(sorted({each.shown for each in partition.bars})),
            error=partition.target.error if partition.error is None else str(partition.error),
            ranges=() if progress is None else progress.ranges,
            range_per_second=None if progress is None else progress.per_second,
            range_left_ms=None if progress is None else progress.left_ms,
        )
