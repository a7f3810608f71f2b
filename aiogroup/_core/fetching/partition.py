"""One partition while it is ours: its position, the leader that confirms it, and its committed offset."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

from aiogroup._core.changes import Change
from aiogroup._core.fetching.epochs import NO_EPOCH
from aiogroup._core.fetching.lane import LIFTED_BY_A_MOVE, Bar, Lane, LaneTally
from aiogroup._core.fetching.one_lane import OneLane
from aiogroup._core.fetching.truncation import NO_LEADER, EpochEnd, Leader, Search, confirms, is_news, must_check
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup.config import ResetPolicy
from aiogroup.errors import AiogroupError
from aiogroup.structs import TopicPartition

__all__ = ["Partition", "PositionState", "Reset"]


class PositionState(StrEnum):
    COMMITTED = "committed"
    """The committed offset is to be looked up."""
    RESET = "reset"
    """The reset policy decides: an offset is to be looked up by timestamp."""
    VALIDATING = "validating"
    """The position is known; the leader must confirm that its log holds the records before it (KIP-320)."""
    FETCHING = "fetching"
    """The position is known, and the leader that we know has confirmed it or need not."""
    STUCK = "stuck"
    """An error is raised to the application, which must seek."""


_FETCHING: Final = PositionState.FETCHING  # a module constant: looking it up on the enum each time would cost more
_VALIDATING: Final = PositionState.VALIDATING


class Reset:
    """How the position is found if no committed offset gives it: by `policy`, for the reason `why`.

    `was_applied` says that the present position came in this way, and not from a commit or a seek. `lost` is the
    position that the log did not hold, -1 if that is not the reason. `sought` is the last offset of a seek.
    """

    __slots__ = ("lost", "policy", "sought", "was_applied", "why")

    def __init__(self, policy: ResetPolicy) -> None:
        self.policy = policy
        self.why = ""
        self.was_applied = False
        self.lost = -1
        self.sought = -1


class Partition(Lane):
    """The live lane of a partition. Only its position is looked up, reset and validated. Without KIP-333 it is the only
    lane.
    """

    __slots__ = ("committed", "former_end", "lanes", "reset", "search", "state")

    def __init__(
        self, tp: TopicPartition, ownership: int, reset_policy: ResetPolicy, tally: LaneTally | None = None
    ) -> None:
        super().__init__(tp, ownership, tally or LaneTally())
        self.reset = Reset(reset_policy)
        self.state = PositionState.COMMITTED
        self.search = Search(0, 0, NO_EPOCH)  # the last check of the position, under way in `VALIDATING`
        self.committed: Committed | None = None
        self.former_end = 0  # up to where this consumer read records that the log no longer holds
        self.lanes = OneLane(self)

    # Bars.

    @property
    def is_open(self) -> bool:
        if self.bars or self.state is _VALIDATING:
            return False
        waits_for = self.lanes.waits_for
        return waits_for is None or waits_for.is_delivered

    def pause(self, why: Bar, *, when: bool = True) -> None:
        """As `bar`, of this lane and of the ranges beside it; `why` is one of `PAUSES`."""
        self.bar(why, when=when)
        for cursor in self.lanes.cursors:
            cursor.bar(why, when=when)

    @property
    def waits_for_range(self) -> bool:
        """Whether its records come after those of a range, in ordered mode (KIP-333)."""
        return self.lanes.waits_for is not None

    @property
    def is_fetched(self) -> bool:
        return self.state is _FETCHING

    # Position.

    @property
    def position(self) -> int | None:
        return self.ledger.position if self.state is _FETCHING or self.state is _VALIDATING else None

    @property
    def was_reset(self) -> bool:
        """Whether the position came from the reset policy: after a restart that could give another one."""
        return self.reset.was_applied

    @property
    def leader(self) -> Leader:
        """The leader that has checked the position, or is to check it."""
        return self.search.leader

    @property
    def awaits_position(self) -> bool:
        """Whether it is to be read, and its position is still being looked up or checked."""
        return not (self.is_paused or self.state in (PositionState.FETCHING, PositionState.STUCK))

    def move(self, state: PositionState) -> None:
        """Go to another state; nothing else sets it."""
        self.state = state
        self.target.changed()
        self.tally.changes.tell(Change.POSITION)

    def start_at(
        self, offset: int, *, leader_epoch: int = NO_EPOCH, leader: Leader = NO_LEADER, was_reset: bool = False
    ) -> None:
        """The position is known from now on; records that were buffered or in hand are dropped.

        `leader_epoch` is that of the record before the position, if it is known: then `leader` must confirm the
        position first.
        """
        if not was_reset and self.ledger.position >= self.former_end:
            self.former_end = 0  # what stands there now was read: its offsets may be committed after a seek backwards
        self._begin_at(offset, leader_epoch)
        self.reset.was_applied = was_reset
        self._check_position(leader)

    def go_on_at(self, offset: int) -> bool:
        """Seek forwards within the buffer: the records from `offset` on stay, and so does a request that is under way.

        Returns False if that is not possible: then call `start_at`, which drops the rest of the buffer.
        """
        is_within = self.ledger.position <= offset <= self.target.offset
        if self.state is not _FETCHING or self.target.is_halted or not is_within or not self.buffer.go_on_at(offset):
            return False
        self.starts_count += 1
        self.ledger.move(offset)  # the same ledger: the records that are buffered acknowledge themselves to it
        self.reset.was_applied = False
        self.bars.difference_update(LIFTED_BY_A_MOVE)
        self.target.retry_now()
        self.tally.changes.tell(Change.POSITION)
        return True

    def await_reset(self, policy: ResetPolicy, why: str = "", lost: int = -1) -> None:
        """The position must be looked up by this reset policy. `lost` is the one that the log does not hold."""
        self.drop_buffer()
        self.error = None
        self.reset.policy, self.reset.why, self.reset.lost = policy, why, lost
        self.move(PositionState.RESET)

    def stick(self, error: AiogroupError) -> None:
        """Only a seek helps: raise the error to the application."""
        self.drop_buffer()
        self.error = error
        self.move(PositionState.STUCK)
        self.tally.turns.setdefault(self)

    def start_over(self, ownership: int, topic_id: UUID) -> None:
        """The topic was deleted and recreated: nothing that is known of the old log holds for the new one."""
        read_to = self.ledger.position
        self.start_at(0)
        self.note_gone(read_to)
        self.ownership = ownership
        self.topic_id = topic_id
        self.committed = None
        self.log.forget()
        self.target.start_over()
        self.move(PositionState.COMMITTED)

    def note_gone(self, read_to: int) -> None:
        """The log no longer holds all of the records that were read up to `read_to`: the topic was deleted, or the log
        truncated. The position is where reading begins again.
        """
        self.former_end = max(self.former_end, read_to)

    def is_of_former_log(self, offset: int) -> bool:
        """Whether this offset, which is to be committed, can only belong to records that are gone: the log was not read
        that far since.
        """
        return (self.position or 0) < offset <= self.former_end

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were delivered whose offsets are not committed."""
        return self.lanes.has_uncommitted

    @property
    def has_processed(self) -> bool:
        """Whether the application has processed a record of any of its lanes in this ownership."""
        return self.ledger.has_processed or any(each.ledger.has_processed for each in self.lanes.cursors)

    # Leaders.

    def follow(self, leader: Leader) -> None:
        """The metadata names this leader. The answer that is under way from another leader will be ignored."""
        if self.position is None or not is_news(self.leader, leader):
            return
        self.target.follow_leader()
        self._doubt(leader)

    def doubt(self) -> None:
        """Have the leader confirm the position, if it can, before anything else is fetched or delivered."""
        if self.position is not None:
            self._doubt(self.leader)

    def _doubt(self, leader: Leader) -> None:
        super().doubt()
        self._check_position(leader)

    def _check_position(self, leader: Leader) -> None:
        position = self.ledger.position
        self.search = Search(position, position, self.epoch_before(position), leader)
        is_checkable = must_check(self.search.leader_epoch, leader)
        self.move(PositionState.VALIDATING if is_checkable else PositionState.FETCHING)

    def trust(self) -> None:
        """Go on without a check: the leader cannot be asked."""
        if self.state is PositionState.VALIDATING:
            self.move(PositionState.FETCHING)

    def confirm(self, answer: EpochEnd) -> None:
        """The leader's log holds all records that were delivered. The buffer is kept if the log holds that, too."""
        if not confirms(answer, self.epochs.before(self.target.offset), self.target.offset):
            self.drop_buffer()
        self.move(PositionState.FETCHING)
        self.target.retry_now()

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """The records that were read from `offset` on are not in the log any more: go back to `offset`."""
        self.start_at(offset, leader_epoch=leader_epoch, leader=self.leader, was_reset=True)
        self.committed = None  # the same offset may come again for another record, and must be committed
        self.move(PositionState.FETCHING)
