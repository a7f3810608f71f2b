"""The lanes of one assigned partition (KIP-333): the live lane, and the cursors that read ranges beside it.

A `Partition` is its own live lane; `Partition.lanes` holds the cursors of its ranges. A fetch session can hold a
partition only once. So the catch-up lane has fetchers, sessions, connections and buffers of its own, and neither lane
waits for the other. The cursor of the lowest range that is not fetched to its end stands in `LanesOwner.fetched`, from
which those fetchers read.

Work in other parts (the delivery, the tasks, other partitions) is asked of the `LanesOwner` within the call that
decides it, and not returned. Lanes are moved by the application's `seek`, the reset policy, the validator, jobs,
retention and the end of an ownership. If the work were returned, each of these callers would have to do it before its
next await. Until then a request would get records of a closed cursor, and a commit would find a book that has moved
while the live lane has not. The owner never waits, so this file still needs no loop, clock or log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from aiogroup._core.changes import Change
from aiogroup._core.fetching.assignment import LaneTable
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.one_lane import OneLane
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed, LaneCommit
from aiogroup._core.recovery.book import Book
from aiogroup._core.recovery.handoff import HandOffWatch
from aiogroup._core.recovery.lane_offsets import LaneName, Moved
from aiogroup._core.recovery.lane_starts import Recovery
from aiogroup._core.recovery.progress import Progress
from aiogroup._core.recovery.ranges import Range, Ranges, count
from aiogroup._core.recovery.token import (
    RESERVED_CHARS,
    DoneRanges,
    HandOffNote,
    LogId,
    read_token,
    second_group_mark,
)
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup.config import MAX_COMMIT_METADATA, ConsumerConfig
from aiogroup.records import LIVE, CatchUpProgress

__all__ = ["LanesOwner", "PartitionLanes"]

SHORTEST_CHARS: Final = 64


class DeliveryOfLanes(Protocol):
    """The delivery as the lanes of one partition see it."""

    def settle(self) -> None:
        """Bring the ledgers up to what was handed out."""

    def close_cursor(self) -> None:
        """Make the application's next request look again for records to deliver."""

    def forget(self, lanes: Collection[Lane]) -> None:
        """None of their records is in hand any more."""


class LanesOwner(Protocol):
    """The consumer as the lanes of one partition see it. Nothing here waits."""

    @property
    def config(self) -> ConsumerConfig: ...
    @property
    def fetched(self) -> LaneTable[RangeCursor]:
        """The cursors that are fetched from, at most one for each partition."""
        ...

    def now_ms(self) -> int:
        """The time. A token's note for jobs needs it, and callers of a commit do not pass it."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def fresh_id(self) -> str:
        """An id that no token ever had."""
        ...

    @property
    def delivery(self) -> DeliveryOfLanes: ...
    def emit(self, event: Event) -> None: ...
    def move_live(self, live: Partition, offset: int, leader_epoch: int, *, is_seek: bool) -> None:
        """Let the live lane go on at `offset`. If that is a seek of the application, records buffered at that offset
        stay.
        """

    def on_moved(self) -> None:
        """The lanes have moved: everything that depends on them must look again."""

    def share_out(self) -> None:
        """Divide the buffer bound again among the live lanes that wait for catch-up lanes."""

    def drop(self, lanes: PartitionLanes) -> None:
        """These lanes are closed."""


class PartitionLanes(OneLane):
    """The lanes of one partition: `live` is the partition itself, the cursors of the ranges are in `book.cursors`."""

    def __init__(self, owner: LanesOwner, live: Partition, log_id: LogId, recovery: Recovery) -> None:
        super().__init__(live)
        self.live = live
        self.is_owned = False  # a cooperative member looks a partition up before it owns it: nothing is read until then
        self.is_done = not recovery.pending  # nothing is pending, and `CatchUpDone` was emitted
        self._owner = owner
        self._is_handed_off = owner.config.parallel_handoff
        self._emitted_ends: set[int] = set()  # ends of the ranges for which `RangeDone` was emitted
        self._began_at_ms = owner.now_ms()
        self._began_at_wall_ms = owner.wall_ms()
        self._watch = HandOffWatch(owner.config.parallel_handoff_timeout_ms, recovery.since_s)
        self._progress = Progress(recovery.pending)
        self.book: Book[RangeCursor] = Book(log_id, recovery, live, self._make, owner.fresh_id, self._note_of)
        self.put_in_order()

    def _make(self, span: Range, epoch: int) -> RangeCursor:
        return RangeCursor(self.live, span.start, span.end, epoch, self._owner.fetched.tally)

    def _note_of(self, pending: Ranges) -> HandOffNote | None:
        """The token's field for jobs, if these ranges are left to jobs."""
        if not self._is_handed_off:
            return None
        config = self._owner.config
        since_s = self._watch.since_s(pending, self._wall_ms())
        return HandOffNote(second_group_mark(config.second_group_id), config.read_committed, since_s)

    def _wall_ms(self) -> int:
        """Milliseconds since the epoch, by a clock that nobody can set back while the partition is owned."""
        return self._began_at_wall_ms + self._owner.now_ms() - self._began_at_ms

    @property
    def cursors(self) -> list[RangeCursor]:
        return self.book.cursors

    @property
    def is_overdue(self) -> bool:
        """Whether some pending range has waited too long for a job."""
        return bool(self._watch.taken_back) and bool(self.book.pending)

    @property
    def left_count(self) -> int:
        """Offsets between the positions of the catch-up lane and the ends of its ranges."""
        return sum(max(0, each.end - each.ledger.position) for each in self.cursors)

    # What is read, and in which order.

    def put_in_order(self) -> None:
        """Put the cursors in order: each range is delivered before the next, and the first unfetched one is fetched."""
        former = None
        for each in self.cursors:
            if self._is_ours(each):
                each.former, former = former, each
        if self._owner.config.parallel_order == "ordered":
            self.waits_for = former
            self.let_live_go_on()
        self.fetch_next()

    def _is_ours(self, cursor: RangeCursor) -> bool:
        """Whether the range is read here, and not left to a job."""
        return not self._is_handed_off or self._watch.has_taken_back(cursor.start, cursor.end)

    def let_live_go_on(self) -> bool:
        """In ordered mode: let the live lane go on once the catch-up lane is handed out; True when it was waiting."""
        was_waiting = self.waits_for is not None
        if self.waits_for is not None and not self.waits_for.is_delivered:
            return False
        self.waits_for = None
        self.live.target.bound(0)
        return was_waiting

    def fetch_next(self) -> None:
        """Fetch from the lowest range that is not fetched up to its end."""
        if not self.is_owned:
            return
        for each in self.cursors:
            if max(each.target.offset, each.ledger.position) >= each.end or not self._is_ours(each):
                each.target.halt()
                continue
            if self._owner.fetched.get(each.tp) is not each:
                self._owner.fetched.put([each])
            return

    # Commits.

    @property
    def has_uncommitted(self) -> bool:
        live = self.live
        if live.ledger.has_unprocessed or any(each.ledger.has_unprocessed for each in self.cursors):
            return True
        return live.committed is not None and not self.book.is_reported(live.committed.offset, live.committed.metadata)

    def begun(self) -> CommitEntry | None:
        commit = self.book.commit_begun()
        return None if commit is None else self._unless_durable(commit)

    def folded(self) -> CommitEntry | None:
        commit = self.book.commit_folded()
        return None if commit is None else self._unless_durable(commit)

    def entry(self, *, delivered: bool = False, unmoved: bool = False, again: bool = False) -> CommitEntry | None:
        """As `OneLane.entry`, but `unmoved` is ignored, and with `delivered` so is `again`."""
        if delivered:
            return self._entry(self.book.commit_delivered())
        return self._entry(self.book.commit_processed(), again=again)

    def check(self, offset: int, metadata: str) -> None:
        most_chars = MAX_COMMIT_METADATA - RESERVED_CHARS
        if len(metadata) > most_chars:
            raise ValueError(
                f"commit: the metadata of {self.live.tp} has {len(metadata)} characters; with two lanes at most "
                f"{most_chars}, since what is pending stands before it"
            )
        self.book.reported.commit(offset)

    def named(self, offset: int, metadata: str, ownership: int) -> CommitEntry:
        self.check(offset, metadata)
        return self._bound(self.book.commit_named(offset, metadata))

    def shorter(self, entry: CommitEntry) -> CommitEntry | None:
        if entry.beside is None or not entry.metadata:
            return None
        limit = len(entry.beside.metadata) // 2
        return self._bound(self.book.shorter(entry.beside, limit if limit >= SHORTEST_CHARS else 0))

    def note_durable(self, entry: CommitEntry) -> None:
        if entry.beside is None:
            super().note_durable(entry)
        else:
            self.book.note_durable(entry.beside)

    def _entry(self, commit: LaneCommit, *, again: bool = False) -> CommitEntry | None:
        live = self.live
        if live.committed is None and not (commit.metadata or live.was_reset or commit.offset > 0):
            return None
        return self._bound(commit) if again else self._unless_durable(commit)

    def _unless_durable(self, commit: LaneCommit) -> CommitEntry | None:
        durable = self.live.committed
        is_durable = durable is not None and (commit.offset, commit.metadata) == (durable.offset, durable.metadata)
        return None if is_durable else self._bound(commit)

    def _bound(self, commit: LaneCommit) -> CommitEntry:
        if self._is_handed_off:
            self._watch.note_waiting((end for end, processed in commit.ranges if processed < end), self._wall_ms())
        live = self.live
        return CommitEntry(
            commit.offset, commit.metadata, live.ownership, commit.leader_epoch, live.starts_count, commit
        )

    # Moves. The owner moves the live lane.

    def seek(
        self,
        offset: int,
        lane: LaneName | None = None,
        *,
        move: Callable[[int], None],
        drop_pending: bool = False,
        why: str = "seek",
    ) -> None:
        self._owner.delivery.settle()
        poisons = [at for each in self.cursors if (at := each.poison_offset) is not None]
        poison_at = min(poisons, default=None)
        moved = self.book.seek(offset, lane, drop_pending=drop_pending, poison_at=poison_at)
        self._move(moved, is_seek=True)
        if moved.drops_all and moved.dropped:
            self._emit_dropped(moved.dropped, why)

    def truncate(self, offset: int, leader_epoch: int) -> None:
        self._owner.delivery.settle()
        moved = self.book.offsets.truncate(offset)
        self._move(moved, leader_epoch if moved.live == offset else None)
        self.live.reset.was_applied = True
        self.live.committed = None  # another record may soon have the same offset
        self.live.trust()

    def return_to_durable(self, committed: Committed | None, *, move: Callable[[int, int], None]) -> None:
        self._owner.delivery.settle()
        if committed is None:
            self._move(self.book.offsets.taken_back())
            return
        token = read_token(committed.offset, committed.metadata, self.book.log_id).token
        self._move(self.book.offsets.durable(committed.offset, token))

    def return_to(self, offset: int) -> None:
        self._owner.delivery.settle()
        offsets = self.book.offsets
        if offset < offsets.live.processed:
            self._move(offsets.truncate(offset))

    def _move(self, moved: Moved, leader_epoch: int | None = None, *, is_seek: bool = False) -> None:
        live, owner = self.live, self._owner
        epoch = live.epoch_before(moved.live) if leader_epoch is None else leader_epoch
        # A seek in the catch-up lane keeps the live lane's buffer. A seek in the live lane has its records fetched and
        # deserialized again.
        is_there = moved.lane != LIVE and live.position == moved.live and not live.ledger.has_unprocessed
        self._forget(self.cursors)
        if not is_there:
            owner.move_live(live, moved.live, epoch, is_seek=is_seek)
        self.book.move(moved)
        pending = self.book.pending
        self._emitted_ends.clear()
        self._progress.start_over(pending)
        self.is_done = not pending
        self.put_in_order()
        if is_seek and live.tp in owner.fetched:
            owner.fetched.tally.was_moved(live.tp)
        owner.on_moved()

    def _forget(self, cursors: Iterable[RangeCursor]) -> None:
        gone = list(cursors)
        if self._owner.fetched.get(self.live.tp) in gone:  # otherwise fetchers would go on to read for a closed cursor
            self._owner.fetched.remove([self.live.tp])
        self._owner.delivery.forget(gone)
        for each in gone:
            each.close()

    def abandon(self, why: str) -> None:
        if self.book.pending:
            self._emit_dropped(self.book.pending, why)
        self.close()
        self.waits_for, self.live.lanes = None, OneLane(self.live)
        self.live.target.bound(0)
        self._owner.share_out()

    def close(self) -> None:
        """The ownership ended."""
        self.is_owned = False
        self._owner.drop(self)
        self._forget(self.cursors)

    def _emit_dropped(self, dropped: Ranges, why: str) -> None:
        tp = self.live.tp
        spans = tuple((each.start, each.end) for each in dropped)
        self._owner.emit(events.RangesDropped(tp.topic, tp.partition, spans, why))

    # The progress of the ranges.

    def progress(self) -> CatchUpProgress:
        return self._progress.at(self.book.pending, self.live.ledger.position, self._owner.now_ms())

    def note_done(self) -> None:
        """Emit events for ranges that are done, and fetch on.

        The lowest range is fetched first. If its records were dropped from the buffer while it was paused, they are
        fetched again before those of the next range.
        """
        self.fetch_next()
        tp, owner = self.live.tp, self._owner
        self._progress.note(self.book.pending, owner.now_ms())
        for each in self.cursors:
            if each.is_done and each.end not in self._emitted_ends:
                self._emitted_ends.add(each.end)
                self._tell(Change.READABLE)
                owner.emit(events.RangeDone(tp.topic, tp.partition, each.start, each.end, count(self.book.pending)))
        if not self.is_done and not self.book.is_catching_up:
            self.is_done = True
            owner.fetched.remove([tp])
            owner.emit(events.CatchUpDone(tp.topic, tp.partition, owner.now_ms() - self._began_at_ms))

    def fold(self, done: DoneRanges | None) -> None:
        """Take a job's result in, and take back ranges that no job moves. The caller has settled the delivery."""
        if done is not None and done.id == self.book.id and (self._fold(done) or done.at_s):
            self._watch.note_progress(self.book.pending, self._wall_ms(), done.at_s)
        self._take_back(None)

    def _fold(self, done: DoneRanges) -> bool:
        before, cursors = self.book.pending, self.cursors
        self._owner.delivery.close_cursor()  # the open iteration may be over records that the job has done
        if not self.book.fold(done):
            return False
        self._forget([each for each in cursors if each not in self.cursors])
        pending, tp = self.book.pending, self.live.tp
        left_count = count(pending)
        self._owner.emit(events.JobProgressed(tp.topic, tp.partition, count(before) - left_count, left_count))
        self.put_in_order()
        return True

    def _tell(self, change: Change) -> None:
        self._owner.fetched.tally.changes.tell(change)

    def _take_back(self, log_start: int | None) -> None:
        tp, news = self.live.tp, self._watch.take_back(self.book.pending, self._wall_ms(), log_start)
        for each in news:
            self._owner.emit(events.HandOffOverdue(tp.topic, tp.partition, each.start, each.end))
        if news:
            for cursor in self.cursors:
                cursor.target.go_on()
            self.put_in_order()
            self._tell(Change.FETCHABLE)

    def raise_log_start(self, log_start: int) -> None:
        """The log begins at `log_start` now: offsets below it that were not delivered are gone."""
        tp = self.live.tp
        if self._is_handed_off:
            self._take_back(log_start)
        for each in self.cursors:
            start, end = each.ledger.position, min(log_start, each.end)
            if start < end and not each.buffer.size_bytes:
                each.rise_to(end)
                self._owner.emit(events.RangeTruncated(tp.topic, tp.partition, start, end))
        self.fetch_next()
