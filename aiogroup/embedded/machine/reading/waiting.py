"""A fetch that waits for records. It is registered at its partitions, so events of other partitions cost nothing."""

from __future__ import annotations

from collections.abc import Callable

from aiogroup.embedded.machine.logs.topics import Partition
from aiogroup.embedded.machine.reading.reads import Params, Read, Reads
from aiogroup.embedded.machine.timers import Timer, Timers

__all__ = ["WaitingFetch"]


class WaitingFetch:
    """Waits until its partitions have `min_bytes`, one of them has an error, or its time is over (Kafka: DelayedFetch).

    Args:
        number: its own among all that wait at a partition.
        params: the parameters of the fetch.
        reads: the state of its partitions.
        reader: looks again at a partition with news.
        finish: called once as `finish(now_ms, is_touched)`; `is_touched` says whether anything happened to a partition.
    """

    __slots__ = ("_awaited", "_counted", "_finish", "_is_touched", "_number", "_params", "_reader", "_timer", "_total")

    def __init__(
        self, number: int, params: Params, reads: list[Read], reader: Reads, finish: Callable[[int, bool], None]
    ) -> None:
        self._number = number
        self._params = params
        self._reader = reader
        self._finish = finish
        self._awaited: dict[Partition, Read] = {read.partition: read for read in reads if read.partition is not None}
        self._counted: dict[Partition, int] = {}
        """The readable bytes of each partition that has any."""
        self._total = 0
        self._is_touched = False
        self._timer: Timer | None = None

    def begin(self, timers: Timers, now_ms: int) -> None:
        """Wait, unless there is nothing to wait for."""
        is_committed = self._params.is_committed
        for partition, read in self._awaited.items():
            until = read.last_stable_offset if is_committed else read.high_watermark
            offset = read.wanted.ask.fetch_offset
            if offset == until:
                continue
            if offset > until:
                # The offset is beyond the last stable offset. Kafka does not wait here.
                self._finish(now_ms, False)
                return
            self._count(partition)
        if self._total >= self._params.min_bytes:
            # There are enough bytes: only the limit of the whole answer left them out.
            self._finish(now_ms, False)
            return
        for partition in self._awaited:
            partition.waiters[self._number] = self
        self._timer = timers.at(now_ms + self._params.max_wait_ms, self._expire)

    def on_append(self, partition: Partition, _size_bytes: int, now_ms: int) -> None:
        self._is_touched = True
        self._count(partition)
        if self._total >= self._params.min_bytes:
            self._end(now_ms)

    def on_change(self, partition: Partition, now_ms: int) -> None:
        self._is_touched = True
        read = self._reader.look(self._awaited[partition].wanted, self._params)
        until = read.last_stable_offset if self._params.is_committed else read.high_watermark
        if read.error or read.diverging is not None or read.wanted.ask.fetch_offset > until:
            self._end(now_ms)
        else:
            self.on_append(partition, 0, now_ms)

    def _count(self, partition: Partition) -> None:
        log = partition.log
        until = log.last_stable_offset if self._params.is_committed else log.end_offset
        ask = self._awaited[partition].wanted.ask
        size_bytes = log.readable_bytes(ask.fetch_offset, ask.partition_max_bytes, until_offset=until)
        self._total += size_bytes - self._counted.get(partition, 0)
        self._counted[partition] = size_bytes

    def _expire(self, now_ms: int) -> None:
        self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        self.give_up()
        self._finish(now_ms, self._is_touched)

    def give_up(self) -> None:
        """Stop waiting, because nobody expects the answer any more. In Kafka the fetch would stay, unseen, until its
        time is over.
        """
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._awaited:
            partition.waiters.pop(self._number, None)
