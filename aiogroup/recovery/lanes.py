"""The lanes of one partition during one ownership: what is to be committed, and what a call of the application means.

Theory of operation
-------------------
The live lane reads the head; each pending range is read beside it, up to its end. A lane stands at three places:

    start <= processed <= position          (of a range: <= end)

`start` is where this ownership, or a seek, began; everything below `processed` is done, and what lies between it and
`position` is in the application's hand. So of a range [processed, end) is pending, and what everybody may rely on is

    low-water mark = the lowest offset that is pending, or the live lane's `processed` when nothing is

which is committed, with the token behind it. The live lane never enters a pending range: what lies below its start is
either done, or pending, or was dropped by the application.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from aiogroup.records import CATCH_UP, LIVE
from aiogroup.recovery.ranges import Range, Ranges, below, find, subtract, union
from aiogroup.recovery.token import NO_EPOCH, Token
from aiogroup.values import dataclass

__all__ = ["Lane", "LaneName", "Lanes", "Mark", "Moved", "show"]

LaneName: TypeAlias = Literal["live", "catch-up"]


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a lane stands; `end` is `None` for the live one."""

    start: int
    processed: int
    position: int
    end: int | None = None

    @property
    def is_done(self) -> bool:
        """Nothing of the range is pending."""
        return self.end is not None and self.processed >= self.end

    def takes(self, offset: int) -> bool:
        """Whether a commit may say that the range is done up to `offset`: that was delivered, and something is pending.

        That everything is done may be said again: who heard no answer commits the same offset once more.
        """
        if self.end is None or not self.start < offset <= min(self.position, self.end):
            return False
        return not self.is_done or offset == self.end

    def done_up_to(self, offset: int) -> Lane:
        """The same, where a commit says that everything below `offset` is done. Of a range it takes nothing back."""
        if self.end is None:
            return replace(self, processed=offset)
        return replace(self, processed=max(self.processed, offset))

    def all_done(self) -> Lane:
        """The same, where what was delivered up to its end is done."""
        return self if self.end is None or self.position < self.end else self.done_up_to(self.end)


@dataclass(frozen=True, slots=True)
class Mark:
    """What was last read or written of a partition: the token's id, the low-water mark, and `live`."""

    id: str
    low_water: int
    live: int


@dataclass(frozen=True, slots=True)
class Moved:
    """What a seek makes of the lanes: the live lane goes on at `live`, and `pending` is what the other one has.

    `live_start` bounds the live lane below. `dropped` will not be read. `is_new_id`: what a job has done under the old
    id does not count any more. `drops_all`: nor is what was processed and not committed of the ranges kept in mind.
    """

    live: int
    live_start: int
    pending: Ranges
    lane: LaneName
    dropped: Ranges = ()
    is_new_id: bool = False
    drops_all: bool = False


@dataclass(frozen=True, slots=True)
class Lanes:
    """The live lane and those of the ranges, ascending; a range that is done may still stand here."""

    live: Lane
    ranges: tuple[Lane, ...] = ()

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
        """What to commit with the low-water mark; `None` while nothing is pending."""
        pending = self.pending
        return Token(token_id, self.live.processed, live_epoch, pending) if pending else None

    def needs_new_id(self, mark: Mark) -> bool:
        """Whether the low-water mark or `live` is below what was last read or written: it was moved back."""
        return self.low_water < mark.low_water or self.live.processed < mark.live

    def commit(self, offset: int) -> Lanes:
        """The lanes once everything below `offset` is done in the lane that it lies in.

        The catch-up lane reads range after range: what was delivered to its end before the range of `offset` is done,
        too. Else a part that a seek or a job's result cut off would stay pending, and nobody would ever name it.

        Raises:
            ValueError: it lies in none: nothing was delivered up to there from a range, nor from the live lane; or it
                lies in a range that is done.
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
        """What `seek(offset)` makes of the lanes. What is in hand of either is taken back.

        `poison_at`: the catch-up lane stands on a record that cannot be delivered, there.

        Raises:
            ValueError: the lane that was named cannot go there.
        """
        pending, live = self.pending, self.live
        if drop_pending:
            if lane == CATCH_UP:
                raise ValueError("drop_pending leaves no catch-up lane to seek in; name no lane")
            return Moved(offset, offset, (), LIVE, pending, is_new_id=True, drops_all=True)
        poisoned = None if poison_at is None or lane == LIVE else find(pending, poison_at)
        if poisoned is not None and offset == poisoned.end and (lane == CATCH_UP or poison_at == offset - 1):
            # The same offset is where the live lane, or the next range, may begin: else it would be theirs.
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
        """Each lane at what it has not processed: nothing stays in hand."""
        return Moved(self.live.processed, self.live.start, self.pending, CATCH_UP)

    def durable(self, offset: int, token: Token | None) -> Moved:
        """Each lane where this commit says; what it knows nothing of yet, as it is older, is pending."""
        base = offset if token is None else token.live
        pending = () if token is None else token.pending
        if base < self.live.start:
            pending = union(pending, (Range(base, self.live.start),))
        return Moved(max(base, self.live.start), self.live.start, pending, LIVE)

    def truncate(self, offset: int) -> Moved:
        """The log was cut off at `offset`: what was read from there on is gone, and other records may come there."""
        live = self.live
        if offset >= live.start:
            return Moved(min(offset, live.processed), live.start, self.pending, LIVE, is_new_id=True)
        return Moved(offset, offset, below(self.pending, offset), LIVE, is_new_id=True)


def show(ranges: Ranges) -> str:
    """Ranges in the words of a message."""
    return ", ".join(f"[{each.start}, {each.end})" for each in ranges) or "none"
