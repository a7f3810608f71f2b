"""Delays the redelivery of a record at which the application's loop ends again and again, longer each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup.fetching.lane import Bar, Lane

if TYPE_CHECKING:
    from aiogroup.config import ConsumerConfig
    from aiogroup.records import Record
    from aiogroup.structs import TopicPartition

__all__ = ["Redeliveries"]


class Redeliveries:
    """The first redelivery of a record is immediate. From the second one on its lane waits, and the others go on."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.delayed: dict[Lane, int] = {}
        """Lanes that wait, and until when."""
        self._config = config
        self._counts: dict[tuple[TopicPartition, str], tuple[int, int]] = {}  # by partition and lane: offset, count

    def note(self, lane: Lane, record: Record, now_ms: int) -> int:
        """The record is to be delivered again. Returns how many times in a row that has happened."""
        key = (record.tp, record.lane)
        offset, count = self._counts.get(key, (record.offset, 0))
        count = count + 1 if offset == record.offset else 1
        self._counts[key] = (record.offset, count)
        if count > 1:
            lane.bar(Bar.DELAYED)
            self.delayed[lane] = now_ms + self._config.backoff_ms(count - 1)
        return count

    def look(self, now_ms: int) -> int | None:
        """Release the lanes whose wait is over, or that were moved. Returns when the next wait ends."""
        for lane, until_ms in list(self.delayed.items()):
            if until_ms <= now_ms or Bar.DELAYED not in lane.bars:
                lane.lift(Bar.DELAYED)
                del self.delayed[lane]
        return min(self.delayed.values(), default=None)
