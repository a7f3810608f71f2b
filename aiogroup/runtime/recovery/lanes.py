"""The lanes of one partition that is ours (KIP-333): the cursors beside the live lane.

A partition is its own live lane; `Partition.lanes` holds what reads beside it. The cursor of the lowest range that is
not fetched to its end stands in `CatchUp.assignment`, whose fetchers know nothing of any other lane: a fetch session
holds a partition once. So they have sessions, connections and buffers of their own, and neither lane waits for the
other.
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
from aiogroup.recovery.lanes import LaneName, Moved
from aiogroup.recovery.ranges import Range, Ranges, count, subtract, union
from aiogroup.recovery.recovery import HandOff, Recovery
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
"""So often is looked whether a range is done, while some are pending."""
RATE_MS: Final = 10_000
"""The rate of catching up is that of so long."""
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
    """`live` is the partition itself; the others are in `book.ranges`."""

    def __init__(self, owner: LanesOwner, live: Partition, place: Place, recovery: Recovery) -> None:
        self.live = live
        self.is_owned = False  # looked up before it is taken over (cooperative), it is not read yet
        self.began_at_ms = now_ms()
        self.done: set[int] = set()  # told, by their ends
        self.is_told = not recovery.pending  # nothing is pending, and that was told
        self._owner = owner
        self._overdue: Ranges = ()  # left to a job, and taken back
        self._begun_at_wall_ms = wall_ms()
        self._watch = HandOff(owner.context.config.parallel_handoff_timeout_ms, recovery.since_s)
        self._begun_count = count(recovery.pending)
        self._left: deque[tuple[int, int]] = deque()  # at which instant how many offsets were pending
        self.book: Book[RangeCursor] = Book(place, recovery, live, self._make, fresh_id, self._note_of)
        self.link()

    def _make(self, span: Range, epoch: int) -> RangeCursor:
        return RangeCursor(self.live, span.start, span.end, epoch, self._owner.assignment.tally)

    def _note_of(self, pending: Ranges) -> HandOffNote | None:
        """What a job is told of these ranges, where they are left to jobs."""
        if not self._owner.is_handed_off:
            return None
        config = self._owner.context.config
        since_s = self._watch.since_s(pending, self._wall_ms())
        return HandOffNote(second_group_mark(config.second_group_id), config.read_committed, since_s)

    def _wall_ms(self) -> int:
        """Milliseconds since the epoch, by a clock that nobody sets while the partition is ours."""
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
        """A job was to read some of what is pending, and did not."""
        return bool(self._overdue) and bool(self.book.pending)

    @property
    def left_count(self) -> int:
        """Offsets between where the catch-up lane stands and the ends of its ranges."""
        return sum(max(0, each.end - each.ledger.position) for each in self.cursors)

    def link(self) -> None:
        """The records of one range come before those of the next; the first that is not fetched is."""
        former = None
        for each in self.cursors:
            if self._is_ours(each):
                each.former, former = former, each
        if self._owner.is_ordered:
            self.live.behind = former
            self.let_live_go_on()
        self.fetch_next()

    def _is_ours(self, cursor: RangeCursor) -> bool:
        """Not left to a job."""
        return not self._owner.is_handed_off or any(
            each.start < cursor.end and cursor.start < each.end for each in self._overdue
        )

    def let_live_go_on(self) -> bool:
        """In ordered mode: the catch-up lane's records were all handed out; True when that is news."""
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
                each.target.is_broken = True  # nothing more is asked for
                continue
            if self._owner.assignment.get(each.tp) is not each:
                self._owner.assignment.take([each])
                self._owner.context.fetchable.pulse()
            return

    # Commits. The caller has settled the delivery.

    def begun(self) -> CommitEntry | None:
        """What is pending as the ownership begins, for jobs to see; the group's offset does not move by it.

        `None` when that is durable, or when the application has committed or sought meanwhile.
        """
        commit = self.book.commit_begun()
        return None if commit is None else self._unless_durable(commit)

    def processed(self, *, again: bool = False) -> CommitEntry | None:
        """What auto-commit would send: as far as each lane was processed; `None` when that is durable."""
        return self._entry(self.book.commit_processed(), again=again)

    def delivered(self) -> CommitEntry | None:
        """What `commit()` sends where asking for more says that records are processed."""
        return self._entry(self.book.commit_delivered())

    def named(self, offset: int, metadata: str) -> CommitEntry:
        """What `commit({tp: offset})` sends. Raises as `check`."""
        self.check(offset, metadata)
        return self._bound(self.book.commit_named(offset, metadata))

    def check(self, offset: int, metadata: str) -> None:
        """Whether `commit({tp: offset})` means anything here; notes nothing.

        Raises:
            ValueError: no lane delivered up to there, or the metadata leaves no room for a token.
        """
        most_chars = MAX_COMMIT_METADATA - RESERVED_CHARS
        if len(metadata) > most_chars:
            raise ValueError(
                f"commit: the metadata of {self.live.tp} has {len(metadata)} characters; with two lanes at most "
                f"{most_chars}, since what is pending stands before it"
            )
        self.book.told.commit(offset)

    def shorter(self, entry: CommitEntry) -> CommitEntry:
        """The same in fewer characters, as the broker takes no more (error 12); in the end without a token."""
        commit: LaneCommit = entry.lanes
        limit = len(commit.metadata) // 2
        return self._bound(self.book.shorter(commit, limit if limit >= SHORTEST_CHARS else 0))

    def _entry(self, commit: LaneCommit, *, again: bool = False) -> CommitEntry | None:
        live = self.live
        if live.committed is None and not (commit.metadata or live.was_reset or commit.offset > 0):
            return None
        return self._bound(commit) if again else self._unless_durable(commit)

    def _unless_durable(self, commit: LaneCommit) -> CommitEntry | None:
        is_durable = (commit.offset, commit.metadata) == (self.live.committed, self.live.committed_metadata)
        return None if is_durable else self._bound(commit)

    def _bound(self, commit: LaneCommit) -> CommitEntry:
        live = self.live
        return CommitEntry(
            commit.offset, commit.metadata, live.ownership, commit.leader_epoch, live.starts_count, commit
        )

    @property
    def has_uncommitted(self) -> bool:
        """Something was delivered that is not durable. To ask changes nothing."""
        live = self.live
        if live.ledger.has_unprocessed or any(each.ledger.has_unprocessed for each in self.cursors):
            return True
        return live.committed is not None and not self.book.is_told(live.committed, live.committed_metadata)

    # Moves.

    def seek(self, offset: int, lane: LaneName | None = None, *, drop_pending: bool = False, why: str = "seek") -> None:
        """Raises:
        ValueError: the lane that was named cannot go there.
        """
        self._owner.settle()
        poisons = [at for each in self.cursors if (at := each.poison_offset) is not None]
        poison_at = min(poisons, default=None)
        moved = self.book.seek(offset, lane, drop_pending=drop_pending, poison_at=poison_at)
        self._move(moved, is_seek=True)
        if moved.drops_all and moved.dropped:
            self._tell_dropped(moved.dropped, why)

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """The log was cut off at `offset`, behind a record of `leader_epoch`."""
        self._owner.settle()
        moved = self.book.lanes.truncate(offset)
        self._move(moved, leader_epoch if moved.live == offset else None)
        self.live.was_reset = True
        self.live.committed = None  # it may be the same offset again, of another record
        self.live.trust()

    def return_to_durable(self, committed: Committed | None) -> None:
        """Each lane goes back to what is committed for it; where nothing is, to what it has not processed."""
        self._owner.settle()
        if committed is None:
            self._move(self.book.lanes.taken_back())
            return
        token = read_committed(committed.offset, committed.metadata, self.book.place).token
        self._move(self.book.lanes.durable(committed.offset, token))

    def return_to(self, offset: int) -> None:
        """The policy says where the live lane goes on: it must not enter a range, nor pass over what comes again."""
        self._owner.settle()
        lanes = self.book.lanes
        if offset < lanes.live.processed:
            self._move(lanes.truncate(offset))

    def _move(self, moved: Moved, leader_epoch: int | None = None, *, is_seek: bool = False) -> None:
        live, context = self.live, self._owner.context
        epoch = live.epoch_before(moved.live) if leader_epoch is None else leader_epoch
        # A seek in the other lane leaves what is buffered; one in this lane has it fetched, and deserialized, again.
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
        context.positions_wanted.pulse()  # the leader is to confirm where they stand now
        context.fetchable.pulse()
        context.changed.pulse()

    def _forget(self, cursors: Iterable[RangeCursor]) -> None:
        gone = list(cursors)
        if self._owner.assignment.get(self.live.tp) in gone:  # or its fetchers would go on for the cursor that was
            self._owner.assignment.remove([self.live.tp])
        self._owner.context.delivery.forget(gone)
        for each in gone:
            each.close()

    def abandon(self, why: str) -> None:
        """What is pending means nothing any more; the partition is read as if there were one lane."""
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

    # What becomes of the ranges.

    def progress(self) -> CatchUpProgress:
        """How far the catch-up lane is."""
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
        """Tell what is done, and fetch on: what was dropped to make room (paused) comes before what follows it."""
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
        """Take a job's result in, and take back what no job moves. The caller has settled the delivery."""
        if done is not None and done.id == self.book.id:
            self._fold(done)
        self._take_back(None)

    def _fold(self, done: DoneRanges) -> None:
        before, cursors = self.book.pending, self.cursors
        self._owner.context.delivery.close_cursor()  # what is superfluous by now may be under it
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
        """What stands below and was not delivered is gone."""
        tp = self.live.tp
        if self._owner.is_handed_off:
            self._take_back(log_start)
        for each in self.cursors:
            start, end = each.ledger.position, min(log_start, each.end)
            if start < end and not each.buffer.size_bytes:
                each.rise_to(end)
                self._owner.context.tell(events.RangeTruncated(tp.topic, tp.partition, start, end))
        self.fetch_next()
