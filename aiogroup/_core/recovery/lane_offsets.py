"""The offsets of a partition's lanes during one ownership: what to commit, and the meaning of `commit` and `seek`.

Theory of operation
-------------------
The live lane reads the head of the log; each pending range is read beside it, up to its end. A lane has three offsets:

    start <= processed <= position          (of a range: <= end)

`start` is where this ownership, or the last seek, began. Everything below `processed` is done. The records between
`processed` and `position` are in the application's hand. So [processed, end) of a range is pending. The offset to
commit is the

    low-water mark = the lowest pending offset, or the live lane's `processed` when nothing is pending

with the token as its metadata. The live lane never enters a pending range: each offset below its start is either done,
or pending, or was dropped by the application.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from aiogroup._core.recovery.ranges import Range, Ranges, below, find, subtract, union
from aiogroup._core.recovery.token import NO_EPOCH, Token
from aiogroup._core.values import dataclass
from aiogroup.records import CATCH_UP, LIVE

__all__ = ["LaneName", "LaneOffsets", "Mark", "Moved", "PartitionOffsets", "show"]

LaneName: TypeAlias = Literal["live", "catch-up"]


@dataclass(frozen=True, slots=True)
class LaneOffsets:
    """The offsets of one lane; `end` is `None` for the live lane."""

    start: int
    processed: int
    position: int
    end: int | None = None

    @property
    def is_done(self) -> bool:
        """Nothing of the range is pending."""
        return self.end is not None and self.processed >= self.end

    def takes(self, offset: int) -> bool:
        """Whether a commit of `offset` may be about this range: it was delivered up to there, and is not done.

        The end of a range that is done may be committed again: a caller that got no answer repeats its commit.
        """
        if self.end is None or not self.start < offset <= min(self.position, self.end):
            return False
        return not self.is_done or offset == self.end

    def done_up_to(self, offset: int) -> LaneOffsets:
        """The lane after a commit of `offset`. A commit never moves a range's `processed` back."""
        if self.end is None:
            return replace(self, processed=offset)
        return replace(self, processed=max(self.processed, offset))

    def all_done(self) -> LaneOffsets:
        """The lane with its range done, if it was delivered up to the end."""
        return self if self.end is None or self.position < self.end else self.done_up_to(self.end)


@dataclass(frozen=True, slots=True)
class Mark:
    """The last commit of a partition that was read or written: the token's id, the low-water mark, and `live`."""

    id: str
    low_water: int
    live: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The lanes after a seek: the live lane goes on at `live`, and the catch-up lane has `pending` to read.

    The live lane does not go below `live_start`. The `dropped` ranges will not be read. With `is_new_id` the token gets
    a new id, so that the work of a job under the old id does not count any more. With `drops_all` no range is kept, not
    even a processed one that was kept only until its commit.
    """

    live: int
    live_start: int
    pending: Ranges
    lane: LaneName
    dropped: Ranges = ()
    is_new_id: bool = False
    drops_all: bool = False


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of the live lane, and of the ranges in ascending order. Ranges that are done may be among them."""

    live: LaneOffsets
    ranges: tuple[LaneOffsets, ...] = ()

    @property
    def pending(self) -> Ranges:
        return tuple(
            Range(each.processed, each.end) for each in self.ranges if each.end is not None and not each.is_done
        )

    # Committing.

    @property
    def low_water(self) -> int:
        """The offset below which everything is processed."""
        pending = self.pending
        return pending[0].start if pending else self.live.processed

    def token(self, token_id: str, live_epoch: int = NO_EPOCH) -> Token | None:
        """The token to commit with the low-water mark; `None` while nothing is pending."""
        pending = self.pending
        return Token(token_id, self.live.processed, live_epoch, pending) if pending else None

    def needs_new_id(self, mark: Mark) -> bool:
        """Whether the low-water mark or `live` was moved back, below the last commit that was read or written."""
        return self.low_water < mark.low_water or self.live.processed < mark.live

    def commit(self, offset: int) -> PartitionOffsets:
        """The lanes once everything below `offset` is done in the lane that it lies in.

        The catch-up lane reads one range after the other. So earlier ranges that were delivered to their end are done
        too. Otherwise a part that was cut off by a seek or a job's result would stay pending, and no later commit would
        cover it.

        Raises:
            ValueError: it lies in no lane: nothing was delivered up to it, or it lies in a range that is done.
        """
        for index, each in enumerate(self.ranges):
            if each.takes(offset):
                before = tuple(lower.all_done() for lower in self.ranges[:index])
                return replace(self, ranges=(*before, each.done_up_to(offset), *self.ranges[index + 1 :]))
        if self.live.start <= offset <= self.live.position:
            return replace(self, live=self.live.done_up_to(offset))
        open_ranges = [each for each in self.ranges if each.position > each.start and not each.is_done]
        delivered = " and ".join(f"above {each.start} up to {each.position}" for each in open_ranges)
        done = tuple(Range(each.start, each.end) for each in self.ranges if each.end is not None and each.is_done)
        raise ValueError(
            f"{offset} is next to process in no lane. To commit are, of pending ranges {show(self.pending)}, offsets "
            f"{delivered or '(none were delivered)'}, and of the live lane those from {self.live.start} up to "
            f"{self.live.position}{f'; done already: {show(done)}' if done else ''}"
        )

    # Moving.

    def seek(
        self, offset: int, lane: LaneName | None = None, *, drop_pending: bool = False, poison_at: int | None = None
    ) -> Moved:
        """The lanes as `seek(offset)` leaves them. Records in hand, of either lane, are taken back.

        `poison_at` is the offset of a record that cannot be delivered and at which the catch-up lane stands.

        Raises:
            ValueError: the named lane cannot go there.
        """
        pending, live = self.pending, self.live
        if drop_pending:
            if lane == CATCH_UP:
                raise ValueError("drop_pending leaves no catch-up lane to seek in; name no lane")
            return Moved(offset, offset, (), LIVE, pending, is_new_id=True, drops_all=True)
        poisoned = None if poison_at is None or lane == LIVE else find(pending, poison_at)
        if poisoned is not None and offset == poisoned.end and (lane == CATCH_UP or poison_at == offset - 1):
            # The live lane or the next range may begin at this offset. Without this case, the seek would move one of
            # them instead.
            return Moved(live.processed, live.start, subtract(pending, (poisoned,)), CATCH_UP, (poisoned,))
        held = find(pending, offset)
        if held is not None and lane != LIVE:
            dropped = (Range(held.start, offset),) if held.start < offset else ()
            return Moved(live.processed, live.start, subtract(pending, dropped), CATCH_UP, dropped)
        if offset >= live.start:
            if lane == CATCH_UP:
                raise ValueError(f"{offset} lies in no pending range ({show(pending)}); seek in the live lane")
            return Moved(offset, live.start, pending, LIVE, is_new_id=offset < live.processed)
        if lane == LIVE:
            raise ValueError(
                f"the live lane began at {live.start} and goes nowhere below: {offset} is the catch-up lane's. Leave "
                "lane away, or pass drop_pending=True to read everything from there on in order"
            )
        return Moved(live.processed, live.start, union(pending, (Range(offset, live.start),)), CATCH_UP, is_new_id=True)

    def taken_back(self) -> Moved:
        """Each lane at the first offset that it has not processed, so that no record stays in hand."""
        return Moved(self.live.processed, self.live.start, self.pending, CATCH_UP)

    def durable(self, offset: int, token: Token | None) -> Moved:
        """Each lane at the offset that this commit gives it. Offsets that it is too old to cover are pending."""
        base = offset if token is None else token.live
        pending = () if token is None else token.pending
        if base < self.live.start:
            pending = union(pending, (Range(base, self.live.start),))
        return Moved(max(base, self.live.start), self.live.start, pending, LIVE)

    def truncate(self, offset: int) -> Moved:
        """The log was truncated at `offset`: records read from there on are gone, and others may take their place."""
        live = self.live
        if offset >= live.start:
            return Moved(min(offset, live.processed), live.start, self.pending, LIVE, is_new_id=True)
        return Moved(offset, offset, below(self.pending, offset), LIVE, is_new_id=True)


def show(ranges: Ranges) -> str:
    """Ranges as text for a message."""
    return ", ".join(f"[{each.start}, {each.end})" for each in ranges) or "none"
