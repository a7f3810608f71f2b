"""The lanes of one assigned partition (KIP-333): the live lane, and the cursors that read ranges beside it.

A `Partition` is its own live lane; `Partition.lanes` holds the cursors of its ranges. A fetch session can hold a
partition only once. So the catch-up lane has fetchers, sessions, connections and buffers of its own, and neither lane
waits for the other. The cursor of the lowest range that is not fetched to its end stands in `CatchUp.assignment`, from
which those fetchers read.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from aiogroup.config import MAX_COMMIT_METADATA
from aiogroup.fetching.assignment import LaneTable
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.range_cursor import RangeCursor
from aiogroup.fetching.truncation import leader_of
from aiogroup.offsets.commit_plan import CommitEntry, Committed
from aiogroup.records import LIVE, CatchUpProgress
from aiogroup.recovery.book import Book, LaneCommit
from aiogroup.recovery.lane_offsets import LaneName, Moved
from aiogroup.recovery.ranges import Range, Ranges, count, subtract, union
from aiogroup.recovery.recovery import HandOffWatch, Recovery
from aiogroup.recovery.token import (
    ID_BYTES,
    RESERVED_CHARS,
    DoneRanges,
    HandOffNote,
    Place,
    make_id,
    read_committed,
    second_group_mark,
)
from aiogroup.runtime.context import Context
from aiogroup.runtime.loop.clock import Signal, now_ms, wall_ms
from aiogroup.telemetry import events

__all__ = ["LOOK_MS", "PartitionLanes", "fresh_id"]

LOOK_MS: Final = 200
"""How often the ranges are checked for done ones, while some are pending."""
RATE_MS: Final = 10_000
"""The rate of catching up is measured over this time."""
SHORTEST_CHARS: Final = 64


def fresh_id() -> str:
    """The id of a new token."""
    return make_id(secrets.token_bytes(ID_BYTES))


class LanesOwner(Protocol):
    """What keeps the lanes of all partitions (`CatchUp`): the parts of it that one partition's lanes use."""

    context: Context
    assignment: LaneTable[RangeCursor]
    wanted: Signal
    is_handed_off: bool
    is_ordered: bool

    def settle(self) -> None:
        """Bring the ledgers up to what was handed out."""

    def share_out(self) -> None:
        """Divide the bound on what waits behind catch-up lanes anew."""

    def drop(self, lanes: PartitionLanes) -> None:
        """These lanes are closed."""


class PartitionLanes:
    """The lanes of one partition: `live` is the partition itself, the cursors of the ranges are in `book.ranges`."""

    def __init__(self, owner: LanesOwner, live: Partition, place: Place, recovery: Recovery) -> None:
        self.live = live
        self.is_owned = False  # a cooperative member looks a partition up before it owns it: nothing is read until then
        self.began_at_ms = now_ms()
        self.done: set[int] = set()  # ends of the ranges that were told to be done
        self.is_told = not recovery.pending  # nothing is pending, and `CatchUpDone` was told
        self._owner = owner
        self._overdue: Ranges = ()  # ranges that were left to a job, and taken back
        self._begun_at_wall_ms = wall_ms()
        self._watch = HandOffWatch(owner.context.config.parallel_handoff_timeout_ms, recovery.since_s)
        self._begun_count = count(recovery.pending)
        self._left: deque[tuple[int, int]] = deque()  # pairs of an instant and the count of offsets pending then
        self.book: Book[RangeCursor] = Book(place, recovery, live, self._make, fresh_id, self._note_of)
        self.link()

    def _make(self, span: Range, epoch: int) -> RangeCursor:
        return RangeCursor(self.live, span.start, span.end, epoch, self._owner.assignment.tally)

    def _note_of(self, pending: Ranges) -> HandOffNote | None:
        """The token's field for jobs, if these ranges are left to jobs."""
        if not self._owner.is_handed_off:
            return None
        config = self._owner.context.config
        since_s = self._watch.since_s(pending, self._wall_ms())
        return HandOffNote(second_group_mark(config.second_group_id), config.read_committed, since_s)

    def _wall_ms(self) -> int:
        """Milliseconds since the epoch, by a clock that nobody can set back while the partition is owned."""
        return self._begun_at_wall_ms + now_ms() - self.began_at_ms

    @property
    def cursors(self) -> list[RangeCursor]:
        return self.book.ranges

    @property
    def is_catching_up(self) -> bool:
        self._owner.settle()
        return self.book.is_catching_up

    @property
    def is_overdue(self) -> bool:
        """A job should have read some of what is pending, and did not."""
        return bool(self._overdue) and bool(self.book.pending)

    @property
    def left_count(self) -> int:
        """Offsets between the positions of the catch-up lane and the ends of its ranges."""
        return sum(max(0, each.end - each.ledger.position) for each in self.cursors)

    def link(self) -> None:
        """Put the cursors in order: each range is delivered before the next, and the first unfetched one is fetched."""
        former = None
        for each in self.cursors:
            if self._is_ours(each):
                each.former, former = former, each
        if self._owner.is_ordered:
            self.live.behind = former
            self.let_live_go_on()
        self.fetch_next()

    def _is_ours(self, cursor: RangeCursor) -> bool:
        """The range is read here, as it is not left to a job."""
        return not self._owner.is_handed_off or any(
            each.start < cursor.end and cursor.start < each.end for each in self._overdue
        )

    def let_live_go_on(self) -> bool:
        """In ordered mode: let the live lane go on once the catch-up lane is handed out; True when it was waiting."""
        live = self.live
        if live.behind is not None and not live.behind.is_delivered:
            return False
        was_behind = live.behind is not None
        live.behind, live.target.most_bytes = None, 0
        return was_behind

    def fetch_next(self) -> None:
        """Fetch from the lowest range that is not fetched up to its end."""
        if not self.is_owned:
            return
        for each in self.cursors:
            if max(each.target.offset, each.ledger.position) >= each.end or not self._is_ours(each):
                each.target.is_broken = True  # so that nothing more is fetched for it
                continue
            if self._owner.assignment.get(each.tp) is not each:
                self._owner.assignment.take([each])
                self._owner.context.fetchable.pulse()
            return

    # Commits. The caller has settled the delivery.

    def begun(self) -> CommitEntry | None:
        """The commit of what is pending as the ownership begins, so that jobs see it. It moves no committed offset.

        `None` when it is durable already, or when the application has committed or sought meanwhile.
        """
        commit = self.book.commit_begun()
        return None if commit is None else self._unless_durable(commit)

    def processed(self, *, again: bool = False) -> CommitEntry | None:
        """The commit of each lane's processed offset, for auto-commit; `None` when it is durable already."""
        return self._entry(self.book.commit_processed(), again=again)

    def delivered(self) -> CommitEntry | None:
        """The commit of all that was delivered, for `commit()` with `auto_ack`."""
        return self._entry(self.book.commit_delivered())

    def named(self, offset: int, metadata: str) -> CommitEntry:
        """The commit of `commit({tp: offset})`.

        Raises:
            ValueError: as `check`.
        """
        self.check(offset, metadata)
        return self._bound(self.book.commit_named(offset, metadata))

    def check(self, offset: int, metadata: str) -> None:
        """Check that `commit({tp: offset})` names an offset of a lane. Changes nothing.

        Raises:
            ValueError: no lane was delivered up to there, or the metadata leaves no space for a token.
        """
        most_chars = MAX_COMMIT_METADATA - RESERVED_CHARS
        if len(metadata) > most_chars:
            raise ValueError(
                f"commit: the metadata of {self.live.tp} has {len(metadata)} characters; with two lanes at most "
                f"{most_chars}, since what is pending stands before it"
            )
        self.book.told.commit(offset)

    def shorter(self, entry: CommitEntry) -> CommitEntry:
        """The same commit in half the characters, or without a token: the broker refused its length (error 12)."""
        commit: LaneCommit = entry.lanes
        limit = len(commit.metadata) // 2
        return self._bound(self.book.shorter(commit, limit if limit >= SHORTEST_CHARS else 0))

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
        live = self.live
        return CommitEntry(
            commit.offset, commit.metadata, live.ownership, commit.leader_epoch, live.starts_count, commit
        )

    @property
    def has_uncommitted(self) -> bool:
        """Some delivered offset is not durable. Reading this changes nothing."""
        live = self.live
        if live.ledger.has_unprocessed or any(each.ledger.has_unprocessed for each in self.cursors):
            return True
        return live.committed is not None and not self.book.is_told(live.committed.offset, live.committed.metadata)

    # Moves.

    def seek(self, offset: int, lane: LaneName | None = None, *, drop_pending: bool = False, why: str = "seek") -> None:
        """Go on at `offset`, in the named lane or in the one that `offset` lies in.

        Raises:
            ValueError: the named lane cannot go there.
        """
        self._owner.settle()
        poisons = [at for each in self.cursors if (at := each.poison_offset) is not None]
        poison_at = min(poisons, default=None)
        moved = self.book.seek(offset, lane, drop_pending=drop_pending, poison_at=poison_at)
        self._move(moved, is_seek=True)
        if moved.drops_all and moved.dropped:
            self._tell_dropped(moved.dropped, why)

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """The log was truncated at `offset`, behind a record of `leader_epoch`."""
        self._owner.settle()
        moved = self.book.offsets.truncate(offset)
        self._move(moved, leader_epoch if moved.live == offset else None)
        self.live.reset.was_applied = True
        self.live.committed = None  # the same offset may soon be that of another record
        self.live.trust()

    def return_to_durable(self, committed: Committed | None) -> None:
        """Each lane goes back to its committed offset, or without one to the first offset it has not processed."""
        self._owner.settle()
        if committed is None:
            self._move(self.book.offsets.taken_back())
            return
        token = read_committed(committed.offset, committed.metadata, self.book.place).token
        self._move(self.book.offsets.durable(committed.offset, token))

    def return_to(self, offset: int) -> None:
        """The reset policy says where the live lane goes on.

        It must neither enter a range nor skip unprocessed offsets.
        """
        self._owner.settle()
        lanes = self.book.offsets
        if offset < lanes.live.processed:
            self._move(lanes.truncate(offset))

    def _move(self, moved: Moved, leader_epoch: int | None = None, *, is_seek: bool = False) -> None:
        live, context = self.live, self._owner.context
        epoch = live.epoch_before(moved.live) if leader_epoch is None else leader_epoch
        # A seek in the catch-up lane keeps the live lane's buffer. A seek in the live lane has its records fetched and
        # deserialized again.
        is_there = moved.lane != LIVE and live.position == moved.live and not live.ledger.has_unprocessed
        self._forget(self.cursors)
        if not is_there:
            leader = leader_of(context.link.cluster, live.tp)
            if is_seek:
                context.delivery.seek(live, moved.live, leader_epoch=epoch, leader=leader)
            else:
                context.delivery.forget([live])
                live.start_at(moved.live, leader_epoch=epoch, leader=leader)
        self.book.move(moved)
        self.done.clear()
        self._left.clear()
        self._begun_count = count(self.book.pending)
        self.is_told = not self.book.pending
        self.link()
        if is_seek and live.tp in self._owner.assignment:
            self._owner.assignment.tally.moved[live.tp] = None
        self._owner.share_out()
        self._owner.wanted.pulse()
        context.positions_wanted.pulse()  # the leader must confirm the new positions
        context.fetchable.pulse()
        context.changed.pulse()

    def _forget(self, cursors: Iterable[RangeCursor]) -> None:
        gone = list(cursors)
        if self._owner.assignment.get(self.live.tp) in gone:  # otherwise its fetchers would go on for a closed cursor
            self._owner.assignment.remove([self.live.tp])
        self._owner.context.delivery.forget(gone)
        for each in gone:
            each.close()

    def abandon(self, why: str) -> None:
        """The pending ranges mean nothing any more; from now on the partition is read in one lane."""
        if self.book.pending:
            self._tell_dropped(self.book.pending, why)
        self.close()
        self.live.lanes = self.live.behind = None
        self.live.target.most_bytes = 0
        self._owner.share_out()

    def close(self) -> None:
        """The ownership ended."""
        self.is_owned = False
        self._owner.drop(self)
        self._forget(self.cursors)

    def _tell_dropped(self, dropped: Ranges, why: str) -> None:
        tp = self.live.tp
        spans = tuple((each.start, each.end) for each in dropped)
        self._owner.context.tell(events.RangesDropped(tp.topic, tp.partition, spans, why))

    # The progress of the ranges.

    def progress(self) -> CatchUpProgress:
        """The progress of the catch-up lane."""
        self._note_left()
        pending, left = self.book.pending, self._left[-1][1]
        (since_ms, before), (until_ms, _) = self._left[0], self._left[-1]
        is_known = until_ms - since_ms >= LOOK_MS and before > left
        per_second = (before - left) * 1_000 / (until_ms - since_ms) if is_known else None
        return CatchUpProgress(
            tuple((each.start, each.end) for each in pending),
            self.live.ledger.position,
            max(0, self._begun_count - left),
            left,
            per_second,
            0 if not left else None if per_second is None else round(left * 1_000 / per_second),
        )

    def _note_left(self) -> None:
        now = now_ms()
        self._left.append((now, count(self.book.pending)))
        while len(self._left) > 2 and now - self._left[1][0] >= RATE_MS:
            self._left.popleft()

    def look(self) -> None:
        """Tell of ranges that are done, and fetch on.

        The lowest range is fetched first. If its records were dropped from the buffer while it was paused, they are
        fetched again before those of the next range.
        """
        self.fetch_next()
        tp, tell = self.live.tp, self._owner.context.tell
        self._note_left()
        for each in self.cursors:
            if each.is_done and each.end not in self.done:
                self.done.add(each.end)
                self._owner.context.changed.pulse()  # the next range may have records that waited for this one
                tell(events.RangeDone(tp.topic, tp.partition, each.start, each.end, count(self.book.pending)))
        if not self.is_told and not self.book.is_catching_up:
            self.is_told = True
            self._owner.assignment.remove([tp])
            tell(events.CatchUpDone(tp.topic, tp.partition, now_ms() - self.began_at_ms))

    def fold(self, done: DoneRanges | None) -> None:
        """Take a job's result in, and take back ranges that no job moves. The caller has settled the delivery."""
        if done is not None and done.id == self.book.id:
            self._fold(done)
        self._take_back(None)

    def _fold(self, done: DoneRanges) -> None:
        before, cursors = self.book.pending, self.cursors
        self._owner.context.delivery.close_cursor()  # the open iteration may be over records that the job has done
        if not self.book.fold(done):
            return
        self._forget([each for each in cursors if each not in self.cursors])
        pending, tp = self.book.pending, self.live.tp
        self._watch.note_moved(before, pending, self._wall_ms(), done.at_s)
        left_count = count(pending)
        self._owner.context.tell(events.JobProgressed(tp.topic, tp.partition, count(before) - left_count, left_count))
        self.link()
        self._owner.context.changed.pulse()  # the next range may have records that waited for this one

    def _take_back(self, log_start: int | None) -> None:
        tp, overdue = self.live.tp, self._watch.overdue(self.book.pending, self._wall_ms(), log_start)
        news = subtract(overdue, self._overdue)
        for each in news:
            self._owner.context.tell(events.HandOffOverdue(tp.topic, tp.partition, each.start, each.end))
        if news:
            self._overdue = union(self._overdue, news)
            for cursor in self.cursors:
                cursor.target.is_broken = False
            self.link()
            self._owner.context.fetchable.pulse()

    def raise_log_start(self, log_start: int) -> None:
        """The log begins at `log_start` now: offsets below it that were not delivered are gone."""
        tp = self.live.tp
        if self._owner.is_handed_off:
            self._take_back(log_start)
        for each in self.cursors:
            start, end = each.ledger.position, min(log_start, each.end)
            if start < end and not each.buffer.size_bytes:
                each.rise_to(end)
                self._owner.context.tell(events.RangeTruncated(tp.topic, tp.partition, start, end))
        self.fetch_next()
