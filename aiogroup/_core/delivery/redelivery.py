"""Delays the redelivery of a record that failed: longer each time inside one consumer, and behind all other records
after a service has made another consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.fetching.lane import Bar, Lane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiogroup._core.fetching.assignment import Assignment
    from aiogroup._core.fetching.partition import Partition
    from aiogroup.config import ConsumerConfig
    from aiogroup.records import Record
    from aiogroup.structs import TopicPartition

__all__ = ["Redeliveries"]


class Redeliveries:
    """The first redelivery of a record is immediate. From the second one on its lane waits, and the others go on."""

    def __init__(self, config: ConsumerConfig, assignment: Assignment) -> None:
        self.delayed: dict[Lane, int] = {}
        """Lanes that wait, and until when."""
        self.is_idle = True
        """Nothing waits, so `look` would find nothing to do."""
        self._config = config
        self._assignment = assignment
        self._counts: dict[tuple[TopicPartition, str], tuple[int, int]] = {}  # by partition and lane: offset, count
        self._put_off: dict[TopicPartition, tuple[int, int]] = {}  # whose lane is not known yet: offset, most ms
        self._last: set[Lane] = set()  # of the delayed lanes those that wait for the others only

    def note(self, lane: Lane, record: Record, now_ms: int) -> int:
        """The record is to be delivered again. Returns how many times in a row that has happened."""
        key = (record.tp, record.lane)
        offset, count = self._counts.get(key, (record.offset, 0))
        count = count + 1 if offset == record.offset else 1
        self._counts[key] = (record.offset, count)
        if count > 1:
            self._delay(lane, now_ms + self._config.backoff_ms(count - 1))
        return count

    def put_off(self, offsets: Mapping[TopicPartition, int], most_ms: int) -> None:
        """An earlier consumer failed with these records in hand: here they come when nothing else is there to be handed
        out, or after `most_ms` milliseconds.
        """
        self._put_off = {tp: (offset, most_ms) for tp, offset in offsets.items()}
        self.is_idle = False

    def put_nothing_off(self) -> None:
        """The order of the records must not change."""
        self._put_off = {}

    def look(self, now_ms: int) -> int | None:
        """Release the lanes whose wait is over, or that were moved. Returns when the next wait ends."""
        for tp, (offset, most_ms) in list(self._put_off.items()):
            partition = self._assignment.get(tp)
            if partition is None or partition.awaits_position:
                continue
            del self._put_off[tp]
            lane = _lane_before(partition, offset)
            if lane is not None:
                self._delay(lane, now_ms + most_ms)
                self._last.add(lane)
        for lane, until_ms in list(self.delayed.items()):
            if until_ms <= now_ms or Bar.DELAYED not in lane.bars:
                self._release(lane)
        self.is_idle = not self.delayed and not self._put_off
        return min(self.delayed.values(), default=None)

    def release_last(self) -> bool:
        """No record was there to be handed out. Release the lanes that wait for the others, unless one of the others
        has not answered yet. Returns whether a lane was released.
        """
        if not self._last or any(self._is_awaited(each) for each in self._assignment):
            return False
        for lane in tuple(self._last):
            self._release(lane)
        return True

    def _is_awaited(self, partition: Partition) -> bool:
        """Whether records of it may come at once: its log has some, or has not been heard of."""
        if partition.is_paused:
            return False
        if partition not in self.delayed and partition.lag(read_committed=self._config.read_committed) != 0:
            return True
        return bool(partition.lanes.left_count) and self.delayed.keys().isdisjoint(partition.lanes.cursors)

    def _delay(self, lane: Lane, until_ms: int) -> None:
        lane.bar(Bar.DELAYED)
        self.delayed[lane] = until_ms
        self.is_idle = False

    def _release(self, lane: Lane) -> None:
        lane.lift(Bar.DELAYED)
        del self.delayed[lane]
        self._last.discard(lane)


def _lane_before(partition: Partition, offset: int) -> Lane | None:
    """The lane that reads this offset next; `None` if it was processed meanwhile."""
    lanes: list[Lane] = [partition, *partition.lanes.cursors]
    before = [(each.position, at) for at, each in enumerate(lanes) if each.position is not None]
    nearest = max(((position, at) for position, at in before if position <= offset), default=None)
    return None if nearest is None else lanes[nearest[1]]
