"""Decides where the lanes of a newly assigned partition begin, from the committed offset and the bounds of the log.

After SyncGroup and a stable OffsetFetch (KIP-447: `require_stable`) the leader is asked for three things: where the log
begins, where it ends under the isolation level, and, if the commit names an epoch, whether the log still holds the
record before the committed offset (KIP-320). From the answers `recover` decides which ranges are pending and where the
live lane starts.
"""

from __future__ import annotations

from typing import Final

from aiogroup._core.recovery.lane_offsets import Mark
from aiogroup._core.recovery.ranges import Range, Ranges, above, below, subtract, union
from aiogroup._core.recovery.token import NO_EPOCH, DoneRanges, Found
from aiogroup._core.values import dataclass

__all__ = ["Log", "Recovery", "fold", "last_known", "recover"]

NOTHING: Final = Found(None, "")


@dataclass(frozen=True, slots=True)
class Log:
    """The leader's answers: the first offset, the end under the isolation level, and where the log was truncated.

    `truncated_at` is an offset below the offset that was asked about (see `last_known`), or `None` if no truncation is
    proved. Each epoch is the leader epoch of the record before its offset; it serves to prove a later truncation.
    """

    start: int
    end: int
    end_epoch: int = NO_EPOCH
    truncated_at: int | None = None
    truncated_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Recovery:
    """The `pending` ranges, and the offset `live` at which the live lane starts.

    `live_epoch` and `low_epoch` are the epochs of the records before `live` and before the low-water mark, -1 when not
    known. `mark` comes from the usable token; it is `None` when the id is new. `gone` has ranges that were pending and
    that retention has removed: `range_truncated` reports them. `foreign` says why a token was not obeyed. `added` is
    the part of `pending` that this recovery adds. `since_s` is for ranges that were left to jobs before: by each
    range's end, the second since which it has been waiting.
    """

    id: str
    mark: Mark | None
    live: int
    live_epoch: int
    pending: Ranges
    user: str = ""
    foreign: str = ""
    gone: Ranges = ()
    added: Range | None = None
    truncated_at: int | None = None
    low_epoch: int = NO_EPOCH
    since_s: tuple[tuple[int, int], ...] = ()

    @property
    def low_water(self) -> int:
        return self.pending[0].start if self.pending else self.live


def last_known(offset: int, epoch: int, found: Found) -> tuple[int, int]:
    """The offset up to which records were read, and the epoch before it: the token's `live`, or the commit's offset."""
    return (found.token.live, found.token.live_epoch) if found.token is not None else (offset, epoch)


def recover(
    offset: int, log: Log, *, min_backlog: int, fresh_id: str, epoch: int = NO_EPOCH, found: Found = NOTHING
) -> Recovery:
    """Decide where the lanes begin.

    `offset`, its `epoch` and `found` are the group's commit; if nothing is committed, `offset` is the policy's. Without
    a usable token all records from `offset` on are new. New records become a pending range if there are at least
    `min_backlog` of them. A usable token is always obeyed.
    """
    token = found.token
    base, base_epoch = last_known(offset, epoch, found)
    pending = token.pending if token is not None else ()
    cut = log.truncated_at if log.truncated_at is not None and log.truncated_at < base else None
    if cut is not None:
        pending, base, base_epoch = below(pending, cut), cut, log.truncated_epoch
    gone = below(pending, log.start)
    pending = above(pending, log.start)
    if base < log.start:
        gone = union(gone, (Range(base, log.start),))
        base, base_epoch = log.start, NO_EPOCH
    note = None if token is None else token.handoff
    waiting = () if token is None or note is None else zip(token.pending, note.since_s, strict=True)
    added = Range(base, log.end) if log.end - base >= max(1, min_backlog) else None
    live, live_epoch = (base, base_epoch) if added is None else (log.end, log.end_epoch)
    return Recovery(
        id=fresh_id if token is None or cut is not None else token.id,
        mark=None if token is None or cut is not None else Mark(token.id, offset, token.live),
        live=live,
        live_epoch=live_epoch,
        pending=pending if added is None else union(pending, (added,)),
        user=found.user,
        foreign=found.foreign,
        gone=gone,
        added=added,
        truncated_at=cut,
        since_s=tuple((each.end, at_s) for each, at_s in waiting),
        low_epoch=epoch if offset >= log.start and (cut is None or offset <= cut) else NO_EPOCH,
    )


def fold(pending: Ranges, token_id: str, done: DoneRanges | None) -> Ranges:
    """The pending ranges without those that a job has done. A result under another token id does not count.

    A job that knows the id has read it from the group's commit. So that token was durable, whoever committed it: an
    application that uses transactions commits it itself.
    """
    if done is None or done.id != token_id:
        return pending
    return subtract(pending, done.done)
