"""Delivery from two lanes (KIP-333): what comes of each is weighed, so that neither stands still beside the other.

Each lane has a tally, and so turns and a bound, of its own. The lane that has got less for its share is asked first.
What one lane does not use while it has nothing is not saved up for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from aiogroup.delivery.delivery import Delivery
from aiogroup.delivery.turn import Turn
from aiogroup.errors import RecordError
from aiogroup.fetching.assignment import Assignment
from aiogroup.fetching.buffer import Slice
from aiogroup.fetching.lane import Lane
from aiogroup.fetching.tally import Tally
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["TwoLanes"]

BEHIND: Final = 2_000
"""So many weighed records a lane may be behind the other: what it missed longer ago is not made up for."""


class _Lane:
    """`weight` is its part of the records, `given` how many it has got, each divided by that."""

    __slots__ = ("given", "max_bytes", "tally", "weight")

    def __init__(self, tally: Tally, weight: float, max_bytes: int) -> None:
        self.tally = tally
        self.weight = weight
        self.max_bytes = max_bytes
        self.given = 0.0


class TwoLanes(Delivery):
    """`catch_up` is the tally of the catch-up lane, and `share` its part; the live lane's is that of the assignment."""

    def __init__(
        self,
        assignment: Assignment,
        catch_up: Tally,
        share: float,
        *,
        auto_ack: bool,
        records_per_turn: int,
        turn_ms: int,
        max_bytes: int,
    ) -> None:
        super().__init__(assignment, auto_ack=auto_ack, records_per_turn=records_per_turn, turn_ms=turn_ms)
        self._live = _Lane(assignment.tally, 1 - share, int(max_bytes * (1 - share)))
        self._catch_up = _Lane(catch_up, share, int(max_bytes * share))

    def has_room(self, partition: Lane) -> bool:
        return partition.tally.held_bytes <= self._lane_of(partition).max_bytes

    def in_hand(self) -> dict[TopicPartition, int]:
        self.settle()
        counts: dict[TopicPartition, int] = {}
        for each in self._held.values():
            if each.ledger.has_unprocessed:
                counts[each.tp] = counts.get(each.tp, 0) + each.ledger.in_hand_count
        return counts

    def decode_ahead(self, count: int, only: Collection[TopicPartition] = ()) -> bool:
        self.close_cursor()
        if self._is_one_enough():
            return super().decode_ahead(count, only)
        turn = Turn(self._records_per_turn)
        ready: dict[_Lane, int] = {}
        # As `take` divides them, so that it has nothing left to decode.
        for lane, part in self._divided(count):
            self._enter(lane)
            others = sum(ready.values()) - ready.pop(lane, 0)
            ready[lane] = self._decode_towards(min(part, count - others), only, turn)
        return sum(ready.values()) < count and turn.is_over

    def open_cursor(self, only: Collection[TopicPartition] = ()) -> Record | None:
        self.close_cursor()
        if self._is_one_enough():
            return super().open_cursor(only)
        for lane in self._by_share():
            self._enter(lane)
            try:
                record = super().open_cursor(only)
            except RecordError:
                self._put_last(lane)
                raise
            if record is not None:
                return record
        return None

    def take(self, max_count: int | None, only: Collection[TopicPartition] = ()) -> dict[TopicPartition, list[Record]]:
        self.close_cursor()
        if self._is_one_enough():
            return super().take(max_count, only)
        taken: dict[TopicPartition, list[Record]] = {}
        left = max_count if max_count is not None else 2**62
        for lane, part in self._divided(left):
            most = min(part, left)
            if not most:
                continue
            self._enter(lane)
            try:
                found = super().take(most, only)
            except RecordError:
                if not taken:
                    self._put_last(lane)
                    raise
                continue  # it has got less, so that it is asked first before long, and its error told
            for tp, records in found.items():
                taken.setdefault(tp, []).extend(records)
                left -= len(records)
        return taken

    # Weighing.

    def _is_one_enough(self) -> bool:
        """Mostly one lane has nothing: all there is comes from the other one, and nothing is to be weighed."""
        lane, rival = self._live, self._catch_up
        if rival.tally.turns:
            lane, rival = rival, lane
            if rival.tally.turns:
                return False
        rival.given = max(rival.given, lane.given)
        self._enter(lane)
        return True

    def _by_share(self) -> tuple[_Lane, _Lane]:
        """Whose turn it is first. What a lane without records could have got is forgotten."""
        live, other = self._live, self._catch_up
        for lane, rival in ((live, other), (other, live)):
            least = rival.given if not lane.tally.turns else rival.given - BEHIND
            lane.given = max(lane.given, least)
        return (live, other) if live.given <= other.given else (other, live)

    def _divided(self, count: int) -> Iterable[tuple[_Lane, int]]:
        """The part of the one, all that is left for the other, and what that does not use for the first again."""
        first, second = self._by_share()
        return ((first, self._part(first, count)), (second, count), (first, count))

    def _part(self, lane: _Lane, count: int) -> int:
        """Of so many records; at least one is left for each."""
        return count if count == 1 else min(max(1, round(count * lane.weight)), count - 1)

    def _put_last(self, lane: _Lane) -> None:
        """It cannot go on for now: the other one is asked first next time."""
        lane.given = max(self._live.given, self._catch_up.given) + 1

    def _lane_of(self, partition: Lane) -> _Lane:
        return self._live if partition.tally is self._live.tally else self._catch_up

    def _enter(self, lane: _Lane) -> None:
        self._turns, self._max_bytes = lane.tally.turns, lane.max_bytes

    def _hand_out(self, partition: Lane, piece: Slice, upto: int, *, keep_last_only: bool) -> None:
        lane = self._lane_of(partition)
        lane.given += (upto - piece.index) / lane.weight
        super()._hand_out(partition, piece, upto, keep_last_only=keep_last_only)
