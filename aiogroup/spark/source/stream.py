"""Pending ranges as a Spark stream: it claims partitions as a job does, and marks as done what Spark has committed."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from signal import SIG_IGN, SIGTERM, signal
from typing import TYPE_CHECKING, Any, Final

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from aiogroup._core.recovery.ranges import above
from aiogroup._runtime.loop.clock import now_ms, steady_ms
from aiogroup.spark.access import Access
from aiogroup.spark.claims import IDLE_MS, SESSION_TIMEOUT_MS, Claims
from aiogroup.spark.errors import TopicRecreatedError
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.offsets import StreamOffset, Taken, next_offset
from aiogroup.spark.source.options import Wanted
from aiogroup.spark.source.partitions import plan, read
from aiogroup.spark.standing import Pending, Standing, look, look_at_rest
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa
    from pyspark.sql.connect.streaming.query import StreamingQuery as ConnectQuery
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RangesStream", "settle"]

CLAIM_MS: Final = 30_000
"""How long to wait for a first claim while other drivers hold all that is pending."""


class RangesStream(DataSourceStreamReader):
    """One object lives in a Python process beside Spark's driver as long as the query runs, and one in each task."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._member: _Member | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return self._joined().latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        level, pieces = self._joined().begin(start, end)
        return plan(self._wanted, pieces, level)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._wanted, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._joined().commit(end)

    def stop(self) -> None:
        signal(SIGTERM, SIG_IGN)
        if self._member is not None:
            self._member.leave()

    def _joined(self) -> _Member:
        if self._member is None:
            # Spark 4.0 calls `stop` only when its connection ends or an exception is raised, and it ends the process by
            # a signal. The handler turns the signal into an exception.
            signal(SIGTERM, lambda *_: sys.exit())
            self._member = _Member(self._wanted.access())
        return self._member


class _Member:
    """The stream's membership in the group of the second commit log.

    Its state decides when Spark gets a new offset and which partitions are held meanwhile. It does not decide what a
    batch reads: that is in the two offsets alone, since Spark may ask a new process for it.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._claims = _claims(access)
        self._numbers: dict[TopicPartition, int] = {}
        self._at_work: frozenset[TopicPartition] = frozenset()
        self._renewing: Future[None] | None = None
        self._last: StreamOffset | None = None  # the end of the last batch that Spark has begun
        self._latest = StreamOffset()
        self._settled: Mapping[TopicPartition, Taken] = {}
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._claims))
            self._open = stack.pop_all()
        self._claim_until_ms = steady_ms() + CLAIM_MS

    def leave(self) -> None:
        self._renew({})
        self._open.close()

    def latest(self) -> dict[str, Any]:
        """The pending ranges of the claimed partitions as an offset; the last one again if Spark has nothing to do."""
        while True:
            # The token ids are read after the claim and before the first fetch. At the commit they must be the same.
            self._hold()
            standing = self._portal.call(look, self._access)
            pending = _pending(standing, self._numbers)
            others_hold_all = not pending.taken and any(each.ranges for each in standing.values())
            if not others_hold_all or steady_ms() >= self._claim_until_ms:
                break
            self._portal.call(self._claims.release, IDLE_MS)
        self._claim_until_ms = 0
        self._latest = next_offset(self._last, pending, self._settled)
        if self._latest == self._last:
            self._at_work = frozenset()
            self._portal.call(self._claims.release, IDLE_MS)
        else:
            self._at_work |= self._latest.taken.keys()
        return self._latest.as_json(self._access.group_id)

    def begin(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[str, list[Piece]]:
        """The isolation level and the pieces of a batch. From now on the stream works on this batch.

        Raises:
            TopicRecreatedError: the records to read are gone.
        """
        self._last = self._offset(end)
        new = self._last.without(self._offset(start))
        if not new:
            return self._last.isolation_level, []
        topics = tuple(sorted({tp.topic for tp in new}))
        standing = self._portal.call(look, replace(self._access, topics=topics))
        former = {tp.topic for tp, each in new.items() if str(standing.topic_ids[tp.topic]) != each.topic_id}
        if former:
            raise TopicRecreatedError(former)
        self._at_work |= new.keys()
        self._hold()
        self._renew({tp: each for tp, each in standing.items() if tp in new and tp in self._numbers})
        return self._last.isolation_level, [
            Piece(tp, each.start, each.end)
            for tp, taken in sorted(new.items())
            for each in above(taken.ranges, standing.log_starts[tp])
        ]

    def commit(self, end: Mapping[str, Any]) -> None:
        """Mark the offset's ranges as done, where token and claim are still the same."""
        self._renew({})
        done = self._offset(end)
        self._at_work |= done.taken.keys()
        self._hold()
        refused = self._portal.call(_mark, self._access, self._claims, self._numbers, done)
        self._settled = {} if refused else done.taken
        self._at_work = frozenset(self._latest.without(done).keys() | refused)
        self._hold()

    def _offset(self, offset: Mapping[str, Any]) -> StreamOffset:
        return StreamOffset.of(offset, self._access.group_id)

    def _hold(self) -> None:
        self._numbers = self._portal.call(self._claims.hold, self._at_work)

    def _renew(self, standing: Mapping[TopicPartition, Pending]) -> None:
        """From now on report at intervals that a job works on these."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if standing:
            self._renewing = self._portal.start_task_soon(self._claims.renew, standing, self._numbers)


def settle(query: StreamingQuery | ConnectQuery, options: Mapping[str, str]) -> Standing:
    """Mark as done what the last batch of an ended query has read, and return what is still pending.

    Spark tells a source that a batch has succeeded when it begins the next one: the last batch of a query that has
    ended, as with `trigger(availableNow=True)`, is still pending. Without `settle` the next run with the same
    checkpoint marks it. Give it the stream's options. The result is as for `pending_ranges`.

    Raises:
        ValueError: the query is running: it marks its batches itself.
        StreamingQueryException: the query has failed. Start it again.
        DrainError, AiogroupError: as `pending_ranges`, or the batch could not be marked.
    """
    if query.isActive:
        raise ValueError("settle: the query is running, and marks its batches itself: wait until it has ended")
    if error := query.exception():
        raise error
    access = Wanted.of(options).access()
    progress = query.lastProgress
    sources = [] if progress is None else json.loads(progress.json)["sources"]
    ours = [end for end in map(_end_of, sources) if end.get("group") == access.group_id]
    with start_blocking_portal() as portal:
        return portal.call(_settle, access, [StreamOffset.of(each, access.group_id) for each in ours])


def _end_of(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The offset at which a source has ended; empty if the source is not aiogroup's. Over Connect the offset is a JSON
    text.
    """
    end = source["endOffset"]
    with suppress(ValueError):
        end = json.loads(end) if isinstance(end, str) else end
    return end if isinstance(end, dict) else {}


async def _settle(access: Access, offsets: Collection[StreamOffset]) -> Standing:
    standing = await look(access)
    if _left(standing, offsets):
        async with _claims(access) as claims:
            until_ms = now_ms() + CLAIM_MS
            while (left := _left(standing, offsets)) and now_ms() < until_ms:
                numbers = await claims.hold()
                for each in offsets:
                    await _mark(access, claims, numbers, each)
                standing = await look(access)
                if _left(standing, offsets) == left:
                    await claims.release(IDLE_MS)
    return await look_at_rest(access)


def _left(standing: Standing, offsets: Iterable[StreamOffset]) -> set[TopicPartition]:
    """The partitions in which ranges that were taken are still pending."""
    pending = _pending(standing, standing)
    return {tp for each in offsets for tp in each.has_of(pending)}


async def _mark(
    access: Access, claims: Claims, numbers: Mapping[TopicPartition, int], offset: StreamOffset
) -> set[TopicPartition]:
    """Mark the offset's ranges as done. Returns the partitions whose claim ended meanwhile."""
    standing = await look(access)
    entries = standing.entries({tp: (each.id, each.ranges) for tp, each in offset.taken.items() if tp in numbers})
    return entries.keys() - await claims.commit(entries, numbers)


def _claims(access: Access) -> Claims:
    return Claims(access, access.settings().get("session_timeout_ms", SESSION_TIMEOUT_MS))


def _pending(standing: Standing, of: Collection[TopicPartition]) -> StreamOffset:
    taken = {
        tp: Taken(each.token.id, each.ranges, str(each.place.topic_id))
        for tp, each in standing.items()
        if tp in of and each.ranges
    }
    return StreamOffset(standing.isolation_level, taken) if taken else StreamOffset()
