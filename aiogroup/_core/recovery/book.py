"""The book of a partition's lanes during one ownership: token ids, offsets reported to the coordinator, commits.

A commit covers both lanes, because offset and token are written together. For a lane that the application did not name,
it repeats the offset reported before: no offset of one lane becomes durable because of a commit of the other lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from aiogroup._core.fetching.one_lane import LiveLane
from aiogroup._core.offsets.commit_plan import LaneCommit
from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.recovery.lane_offsets import LaneName, LaneOffsets, Mark, Moved, PartitionOffsets
from aiogroup._core.recovery.lane_starts import Recovery, fold
from aiogroup._core.recovery.ranges import Range, Ranges, above, below, subtract
from aiogroup._core.recovery.token import NO_EPOCH, DoneRanges, HandOffNote, LogId, write_token
from aiogroup.records import LIVE

__all__ = ["Book", "CatchUpCursor"]


class CatchUpCursor(Protocol):
    """Reads one pending range, from `start` up to `end`."""

    ledger: Ledger

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def epoch_before(self, offset: int) -> int: ...
    def shorten(self, end: int) -> None:
        """Deliver nothing from `end` on; records in hand stay in hand."""


R = TypeVar("R", bound=CatchUpCursor)


class Book(Generic[R]):
    """The lanes of one partition and what was committed of them.

    `make(range, epoch)` makes the cursor that reads a range; `epoch` is the leader epoch of the record before the
    range, -1 when it is not known. `fresh_id()` makes an id that was never used. `note_of(pending)` is the token's
    field for jobs, `None` when ranges are not left to jobs.
    """

    def __init__(
        self,
        log_id: LogId,
        recovery: Recovery,
        live: LiveLane,
        make: Callable[[Range, int], R],
        fresh_id: Callable[[], str],
        note_of: Callable[[Ranges], HandOffNote | None] = lambda _: None,
    ) -> None:
        self.id = recovery.id
        self.log_id = log_id
        self.user = recovery.user  # the application's own metadata, valid while the low-water mark is `_user_at`
        self._user_at = recovery.low_water
        self.live = live
        self.live_start = self._reported_live = recovery.live
        self.cursors: list[R] = [
            make(each, NO_EPOCH if index else recovery.low_epoch) for index, each in enumerate(recovery.pending)
        ]
        self.seeks_count = 0
        self.limit_chars: int | None = None
        self._reported = {each.end: each.start for each in self.cursors}
        self._mark = recovery.mark
        self._has_reported = False  # a commit of this ownership was made
        self._has_folded = False  # a job's result was taken in
        self._make = make
        self._fresh_id = fresh_id
        self._note_of = note_of

    # Where the lanes stand.

    @property
    def offsets(self) -> PartitionOffsets:
        """Each lane with its processed offset.

        The caller has settled the delivery, as for every look at the ledgers.
        """
        return self._offsets(lambda ledger, reported: max(ledger.committable, reported))

    @property
    def reported(self) -> PartitionOffsets:
        """Each lane with the offset reported to the coordinator. A commit leaves a lane that it does not name at this
        offset.
        """
        return self._pass(self._offsets(lambda _, reported: reported))

    def _pass(self, offsets: PartitionOffsets) -> PartitionOffsets:
        """If all delivered records of a range are reported, count the offsets from there up to the position as reported
        too.

        These offsets hold no record (compaction, control batches), so no commit of the application can name them.
        """
        ledgers = {each.end: each.ledger for each in self.cursors}
        passed = (
            each if each.end is None or each.processed < ledgers[each.end].delivered else each.done_up_to(each.position)
            for each in offsets.ranges
        )
        return replace(offsets, ranges=tuple(passed))

    @property
    def pending(self) -> Ranges:
        """The offsets of the ranges that are not processed."""
        return self.offsets.pending

    @property
    def is_catching_up(self) -> bool:
        """The catch-up lane has work."""
        return any(each.ledger.committable < each.end for each in self.cursors)

    def _offsets(self, processed: Callable[[Ledger, int], int]) -> PartitionOffsets:
        live = self.live.ledger
        return PartitionOffsets(
            LaneOffsets(self.live_start, processed(live, self._reported_live), live.position),
            tuple(
                LaneOffsets(
                    each.start,
                    min(processed(each.ledger, self._reported[each.end]), each.end),
                    min(each.ledger.position, each.end),
                    each.end,
                )
                for each in self.cursors
            ),
        )

    # Commits.

    def commit_begun(self) -> LaneCommit | None:
        """A commit of the ranges that are pending when this ownership begins; it moves no lane.

        `None` after any commit or seek.
        """
        if self._has_reported or self.seeks_count or not self.pending:
            return None
        offsets = self.reported
        self._mark = Mark(self.id, offsets.low_water, offsets.live.processed)
        return self._write(offsets, self.id, self.user, self.seeks_count)

    def commit_folded(self) -> LaneCommit | None:
        """A commit of the jobs' progress, which moves no lane. `None` if no progress was folded in."""
        return self._report(self.reported) if self._has_folded else None

    def commit_processed(self) -> LaneCommit:
        """A commit of the processed offset of each lane."""
        return self._report(self.offsets)

    def is_reported(self, offset: int, metadata: str) -> bool:
        """Whether `commit_processed` would commit exactly this. Changes nothing."""
        offsets = self.offsets
        if self._mark is not None and offsets.needs_new_id(self._mark) and offsets.pending:
            return False  # the token would get a new id
        user = self.user if offsets.low_water == self._user_at else ""
        commit = self._write(offsets, self.id, user, self.seeks_count)
        return (commit.offset, commit.metadata) == (offset, metadata)

    def commit_delivered(self) -> LaneCommit:
        """A commit of all that was delivered of each lane, which counts as processed."""
        return self._report(self._offsets(lambda ledger, reported: max(ledger.position, reported)))

    def commit_named(self, offset: int, user: str = "") -> LaneCommit:
        """A commit of one offset, for the lane that it lies in. The other lanes stay at their reported offsets.

        Raises:
            ValueError: it lies in no lane.
        """
        return self._report(self._pass(self.reported.commit(offset)), user)

    def shorter(self, commit: LaneCommit, limit_chars: int) -> LaneCommit:
        """The same commit for a broker that accepts at most `limit_chars`; later commits keep to that limit too."""
        self.limit_chars = limit_chars
        return self._write(self._offsets_of(commit), commit.id, commit.user, commit.seeks_count)

    def note_durable(self, commit: LaneCommit) -> bool:
        """The commit is durable. Returns False if a seek after it took back records that it covers."""
        if commit.seeks_count != self.seeks_count:
            return False
        self.live.ledger.process_below(commit.live)
        for each in self.cursors:
            # A job's result may have divided the range after the commit was made.
            processed = next((upto for end, upto in commit.ranges if end >= each.end), 0)
            each.ledger.process_below(min(processed, each.end))
        return True

    def _report(self, offsets: PartitionOffsets, user: str = "") -> LaneCommit:
        self._has_reported = True
        self._reported_live = offsets.live.processed
        self._reported = {each.end: each.processed for each in offsets.ranges if each.end is not None}
        if user or offsets.low_water != self._user_at:
            self.user, self._user_at = user, offsets.low_water
        if self._mark is not None and offsets.needs_new_id(self._mark):
            self.id = self._fresh_id()
        self._mark = Mark(self.id, offsets.low_water, offsets.live.processed)
        return self._write(offsets, self.id, self.user, self.seeks_count)

    def _write(self, offsets: PartitionOffsets, token_id: str, user: str, seeks_count: int) -> LaneCommit:
        live, low_water = offsets.live.processed, offsets.low_water
        token = offsets.token(token_id, self.live.epoch_before(live))
        if token is not None:
            token = replace(token, handoff=self._note_of(token.pending))
        limit = {} if self.limit_chars is None else {"limit_chars": self.limit_chars}
        return LaneCommit(
            offset=low_water,
            metadata=write_token(token, self.log_id, user, **limit),
            leader_epoch=self.live.epoch_before(live) if token is None else self._epoch_before(low_water),
            id=token_id,
            live=live,
            ranges=tuple((each.end, each.processed) for each in offsets.ranges if each.end is not None),
            seeks_count=seeks_count,
            user=user,
        )

    def _epoch_before(self, low_water: int) -> int:
        """The epoch before `low_water`: a client that knows no tokens sees by it if the log was truncated (KIP-320)."""
        of = (each for each in self.cursors if each.start <= low_water <= each.end)
        return max((each.epoch_before(low_water) for each in of), default=NO_EPOCH)

    def _offsets_of(self, commit: LaneCommit) -> PartitionOffsets:
        return PartitionOffsets(
            LaneOffsets(commit.live, commit.live, commit.live),
            tuple(LaneOffsets(processed, processed, processed, end) for end, processed in commit.ranges),
        )

    # Moves.

    def seek(
        self, offset: int, lane: LaneName | None = None, *, drop_pending: bool = False, poison_at: int | None = None
    ) -> Moved:
        """The lanes after a seek. `move` carries it out.

        Raises:
            ValueError: the named lane cannot go there.
        """
        return self.offsets.seek(offset, lane, drop_pending=drop_pending, poison_at=poison_at)

    def move(self, moved: Moved) -> None:
        """Carry a move of the lanes out. Records in hand are taken back; the caller moves the live cursor."""
        pending = () if moved.drops_all else subtract(self.reported.pending, moved.dropped)
        if moved.lane == LIVE and moved.live_start < self.live_start:
            pending = below(pending, moved.live_start)  # truncated: the log does not hold those offsets any more
        self.live_start, self._reported_live = moved.live_start, min(self._reported_live, moved.live)
        self._rebuild(pending, moved.pending)
        if moved.is_new_id:
            self.id = self._fresh_id()

    def drop(self, gone: Ranges) -> None:
        """Retention has removed these ranges, which this member does not read."""
        self._rebuild(subtract(self.reported.pending, gone), subtract(self.pending, gone))

    def fold(self, done: DoneRanges | None) -> bool:
        """Take a job's result in; True when it leaves less to read. The next commit makes it durable.

        Records in hand stay in hand. A cursor that has delivered nothing may be removed from `cursors`.
        """
        before = self.pending
        self.cursors = [part for each in self.cursors for part in self._without(each, done)]
        is_less = self.pending != before
        self._has_folded = self._has_folded or is_less
        return is_less

    def _without(self, cursor: R, done: DoneRanges | None) -> list[R]:
        """The cursors that take this cursor's place: they do not read offsets that the job has done.

        Offsets that this cursor has delivered already stay with it.
        """
        position, end = cursor.ledger.position, cursor.end
        unread = (Range(position, end),) if position < end else ()
        left = fold(unread, self.id, done)
        if left == unread:
            return [cursor]
        at = left[0].end if left and left[0].start == position else position
        reported, parts = self._reported.pop(end), []
        if at > cursor.start:
            cursor.shorten(at)
            self._reported[at] = reported
            parts.append(cursor)
        made = self._make_all(above(left, at))
        self._reported |= {each.end: each.start for each in made}
        return parts + made

    def _rebuild(self, reported: Ranges, pending: Ranges) -> None:
        """Make the cursors again: `pending` is to be read.

        Ranges that were `reported` as pending and are not in `pending` are processed, but in no commit yet.
        """
        for each in self.cursors:
            each.ledger.close()
        self.seeks_count += 1
        self.cursors = self._make_all(pending, subtract(reported, pending))
        self._reported = {each.end: each.start for each in self.cursors}

    def _make_all(self, pending: Ranges, done: Ranges = ()) -> list[R]:
        """Cursors for the ranges to read, and for the `done` ranges, which are processed but not yet in a commit."""
        made = [self._make(each, self._epoch_before(each.start)) for each in sorted((*done, *pending))]
        for each in made:
            if (each.start, each.end) in done:
                each.ledger.pass_over(each.end)
                # The application got records up to `delivered`, and may still name their offsets in a commit.
                of = (one.ledger.delivered for one in self.cursors if one.start <= each.start < one.end)
                each.ledger.delivered = min(max(of, default=each.end), each.end)
        return made
