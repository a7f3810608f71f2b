"""Reads exact ranges with aiogroup's own consumer, and reports what the offsets of each part hold. Without Spark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aiogroup._core.fetching.records.decode import PassedOver
from aiogroup._runtime.inside import Inside
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.consumer import Consumer
from aiogroup.records import Record
from aiogroup.spark.errors import IncompleteError
from aiogroup.spark.source.tasks import Part, Run, Task, runs_of
from aiogroup.structs import TopicPartition

__all__ = ["Held", "RangeReader", "Read"]

CHUNK_RECORDS: Final = 10_000
WAIT_MS: Final = 500
_OFFSET: Final = attrgetter("offset")


class Held(NamedTuple):
    """What the offsets of a part hold: records, markers of transactions, records of aborted transactions. Compaction
    has removed the others.
    """

    offsets_count: int
    records_count: int
    control_count: int
    aborted_count: int


class Read(NamedTuple):
    """Some records of a part, in order. If `held` is set, they are the part's last ones."""

    part: Part
    records: list[Record]
    held: Held | None


class _Progress:
    """One partition of a task: the remaining runs, and the counts of the part that is read now."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self.left = list(runs[0].parts)
        self.position = -1
        self.records_count = 0
        self.passed: list[PassedOver] = []

    def take(self, records: list[Record]) -> list[Read]:
        """The records that belong to parts; records between two parts are left out."""
        taken, at = [], 0
        for part in self.left:
            begin = bisect_left(records, part.start, at, key=_OFFSET)
            at = bisect_left(records, part.end, begin, key=_OFFSET)
            if begin < at:
                taken.append(Read(part, records[begin:at], None))
            if at == len(records):
                break
        return taken

    def end_parts(self, position: int, taken: list[Read]) -> list[Read]:
        """`taken`, and the end of each part that the position has passed."""
        ended = []
        for read in taken:
            ended += self._end_before(read.part)
            self.records_count += len(read.records)
            ended.append(read)
        while self.left and self.left[0].end <= position:
            ended.append(self._end())
        self.passed = [each for each in self.passed if each.end > position]
        return ended

    def _end_before(self, part: Part) -> list[Read]:
        ended = []
        while self.left[0] is not part:
            ended.append(self._end())
        return ended

    def _end(self) -> Read:
        part, count = self.left.pop(0), self.records_count
        self.records_count = 0
        control = sum(each.within(part.start, part.end) for each in self.passed if each.is_control)
        aborted = sum(each.within(part.start, part.end) for each in self.passed if not each.is_control)
        return Read(part, [], Held(len(part), count, control, aborted))


class RangeReader:
    """The records of a task's parts, and at the end of each part what it held.

    Raises:
        OffsetOutOfRangeError: retention has deleted the beginning of a range.
        IncompleteError: a partition has not gone on for `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """

    def __init__(self, settings: Mapping[str, Any], task: Task, chunk_records: int = CHUNK_RECORDS) -> None:
        self._consumer = Consumer(**{**settings, "auto_offset_reset": "none", "max_poll_records": chunk_records})
        self._progress = {tp: _Progress(runs) for tp, runs in runs_of(task).items()}
        self._ends = {tp: each.runs[0].end for tp, each in self._progress.items()}
        self._passed: list[PassedOver] = []
        self._moved_at_ms = 0

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        inside = self._consumer.inside()
        assert isinstance(inside, Inside)
        self._passed = inside.read_up_to(self._ends)
        self._consumer.assign(self._progress)
        for tp, each in self._progress.items():
            self._consumer.seek(tp, each.runs[0].start)
        self._moved_at_ms = now_ms()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._consumer.__aexit__(kind, error, trace)

    async def next(self) -> list[Read]:
        """The next records; an empty list at the end of all ranges."""
        while self._progress:
            got = await self._consumer.getmany(timeout_ms=WAIT_MS)
            for batch in self._passed:
                if batch.tp in self._progress:
                    self._progress[batch.tp].passed.append(batch)
            self._passed.clear()
            reads: list[Read] = []
            for tp, each in tuple(self._progress.items()):
                position = await self._consumer.position(tp)
                if position != each.position:
                    each.position, self._moved_at_ms = position, now_ms()
                reads += each.end_parts(position, each.take(got.get(tp, [])))
                if not each.left:
                    self._go_on(tp, each)
            if reads:
                return reads
            self._check_moving()
        return []

    def _go_on(self, tp: TopicPartition, each: _Progress) -> None:
        """Go to the next run, or read no more of this partition."""
        del each.runs[0]
        if each.runs:
            each.left, each.passed = list(each.runs[0].parts), []
            self._ends[tp] = each.runs[0].end
            self._consumer.seek(tp, each.runs[0].start)
            return
        self._consumer.pause(tp)
        self._consumer.seek(tp, self._ends[tp])  # frees what was fetched beyond the end
        del self._progress[tp]

    def _check_moving(self) -> None:
        limit_ms = self._consumer.config.default_api_timeout_ms
        if now_ms() - self._moved_at_ms >= limit_ms:
            waiting = ", ".join(f"{tp.topic}-{tp.partition} before {self._ends[tp]}" for tp in self._progress)
            raise IncompleteError(f"no record came within {limit_ms} ms of {waiting}: run the job again")
