"""Records that the application gets again and again, since its loop ends at each of them: ever later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup.fetching.lane import Bar, Lane

if TYPE_CHECKING:
    from aiogroup.config import ConsumerConfig
    from aiogroup.records import Record
    from aiogroup.structs import TopicPartition

__all__ = ["Redeliveries"]


class Redeliveries:
    """The first time a record comes again at once. From the second time on its partition waits, the others do not."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.delayed: dict[Lane, int] = {}
        """Partitions that wait, and until when."""
        self._config = config
        self._counts: dict[tuple[TopicPartition, str], tuple[int, int]] = {}  # by partition and lane: offset, count

    def note(self, partition: Lane, record: Record, now_ms: int) -> int:
        """The record is the next one of its partition again; how often that has been so in a row."""
        key = (record.tp, record.lane)
        offset, count = self._counts.get(key, (record.offset, 0))
        count = count + 1 if offset == record.offset else 1
        self._counts[key] = (record.offset, count)
        if count > 1:
            partition.bar(Bar.DELAYED)
            self.delayed[partition] = now_ms + self._config.backoff_ms(count - 1)
        return count

    def look(self, now_ms: int) -> int | None:
        """Let those go on whose wait is over, or that were moved; when the next one's will be."""
        for partition, until_ms in list(self.delayed.items()):
            if until_ms <= now_ms or Bar.DELAYED not in partition.bars:
                partition.lift(Bar.DELAYED)
                del self.delayed[partition]
        return min(self.delayed.values(), default=None)
