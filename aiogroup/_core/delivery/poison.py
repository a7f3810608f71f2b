"""Records that cannot be delivered: which one an error named, so that `skip` passes over that one and no other."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiogroup._core.delivery.delivery import Delivery
    from aiogroup._core.fetching.assignment import Assignment
    from aiogroup._core.fetching.lane import Lane
    from aiogroup.errors import RecordDeserializationError, TimestampError
    from aiogroup.structs import TopicPartition

__all__ = ["PoisonBook"]


class _Noted(NamedTuple):
    """A poison record: how often the position of each lane was set by then, and where the lane that met it goes on."""

    offset: int
    moves: dict[Lane, int]
    ends: dict[Lane, int]


class PoisonBook:
    """The poison record of each partition that was raised last."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._noted: dict[TopicPartition, _Noted] = {}
        self._raised: TopicPartition | None = None  # the partition of the one that the last request raised

    def begin(self) -> None:
        """A request begins; it has raised none."""
        self._raised = None

    def note(self, error: RecordDeserializationError | TimestampError) -> bool:
        """A request raises this error. Returns whether it names another record than the last one of its partition:
        every request that meets a poison record raises its error again.
        """
        self._raised = error.tp
        former, moves = self._noted.get(error.tp), self._moves(error.tp)
        ends = {each: end for each in moves if (end := each.poison_end_at(error.offset)) is not None}
        self._noted[error.tp] = _Noted(error.offset, moves, ends)
        return former is None or former.offset != error.offset

    def pass_over(self, only: Collection[TopicPartition], delivery: Delivery) -> None:
        """Pass over the record that the last request raised, or over those of the named partitions."""
        tps = only or ((self._raised,) if self._raised is not None else ())
        if self._raised in tps:
            self._raised = None
        for tp in tps:
            if tp not in self._noted:
                continue
            # If a lane was moved since then (by a seek, or because the topic was recreated), another record may stand
            # at that offset, which was never raised and may be good.
            noted, now = self._noted[tp], self._moves(tp)
            unmoved = [each for each in now if noted.moves.get(each) == now[each]]
            if any(delivery.pass_over(each, noted.offset, noted.ends.get(each)) for each in unmoved):
                del self._noted[tp]

    def _moves(self, tp: TopicPartition) -> dict[Lane, int]:
        partition = self._assignment.get(tp)
        if partition is None:
            return {}
        return {each: each.starts_count for each in (partition, *partition.lanes.cursors)}
