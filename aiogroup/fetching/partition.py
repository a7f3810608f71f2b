"""One partition while it is ours: where it goes on, who confirms that, and what is committed of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from aiogroup.config import ResetPolicy
from aiogroup.errors import AiogroupError
from aiogroup.fetching.epochs import NO_EPOCH
from aiogroup.fetching.lane import Bar, Lane, LogBounds
from aiogroup.fetching.tally import Tally
from aiogroup.fetching.target import UNKNOWN
from aiogroup.fetching.truncation import NOBODY, EpochEnd, Leader, Search, confirms, is_news, must_check
from aiogroup.offsets.ledger import Ledger
from aiogroup.structs import TopicPartition

__all__ = ["Partition", "PositionState"]


class PositionState(StrEnum):
    COMMITTED = "committed"
    """The committed offset is to be looked up."""
    RESET = "reset"
    """The policy decides: an offset is to be looked up by timestamp."""
    VALIDATING = "validating"
    """The position is known; the leader must confirm that its log holds what stands before (KIP-320)."""
    FETCHING = "fetching"
    """The position is known, and good for what is known of the leader."""
    STUCK = "stuck"
    """An error must reach the application, which must seek."""


_FETCHING: Final = PositionState.FETCHING  # as an attribute of the enum it would be looked up at each question
_VALIDATING: Final = PositionState.VALIDATING


class Partition(Lane):
    """The live lane, which alone is looked up, reset and validated. Without KIP-333 it is all there is."""

    __slots__ = (
        "behind", "committed", "committed_metadata", "former_end", "lanes", "leader", "reset_policy", "reset_why",
        "search", "state", "was_reset",
    )  # fmt: skip

    def __init__(
        self, tp: TopicPartition, ownership: int, reset_policy: ResetPolicy, tally: Tally | None = None
    ) -> None:
        super().__init__(tp, ownership, tally or Tally())
        self.reset_policy = reset_policy
        self.reset_why = ""
        self.state = PositionState.COMMITTED
        self.leader = NOBODY  # by whom the position is checked, or is to be
        self.search = Search(0, 0, NO_EPOCH)  # while it is checked
        self.committed: int | None = None
        self.committed_metadata = ""
        self.was_reset = False
        self.former_end = 0  # up to where a former topic of the same name was read, by this consumer
        self.behind: Any = None  # the range whose records come before ours, in ordered mode (KIP-333)
        self.lanes: Any = None  # the ranges that are read beside it (KIP-333, `runtime/recovery/lanes.py`)

    # Gates.

    @property
    def is_open(self) -> bool:
        if self.bars or (self.behind is not None and not self.behind.is_delivered):
            return False
        return self.state is not _VALIDATING

    @property
    def is_fetched(self) -> bool:
        return self.state is _FETCHING

    # Position.

    @property
    def _has_position(self) -> bool:
        return self.state is _FETCHING or self.state is _VALIDATING

    @property
    def awaits_position(self) -> bool:
        """Records are to be read from it, and where is being looked up or checked."""
        return not (self.is_paused or self.state in (PositionState.FETCHING, PositionState.STUCK))

    def move(self, state: PositionState) -> None:
        """The one way to another state."""
        self.state = state
        self.target.changed()

    def start_at(
        self, offset: int, *, leader_epoch: int = NO_EPOCH, leader: Leader = NOBODY, was_reset: bool = False
    ) -> None:
        """The position is known from now on; what was buffered or in hand is dropped.

        `leader_epoch` is that of the record before it, as far as is known: with one, `leader` must confirm it first.
        """
        self._begin_at(offset, leader_epoch)
        self.leader = leader
        self.was_reset = was_reset
        self._check_position()

    def go_on_at(self, offset: int) -> bool:
        """A seek forwards within what is buffered: what stands at `offset` and behind it stays, and so does a request
        that is under way. False where that cannot be: then `start_at` drops what is left.
        """
        is_within = self.ledger.position <= offset <= self.target.offset
        if self.state is not _FETCHING or self.target.is_broken or not is_within or not self.buffer.go_on_at(offset):
            return False
        self.starts_count += 1
        self.ledger.close()
        self.ledger = Ledger(offset)
        self.was_reset = False
        self.bars -= {Bar.HELD, Bar.DELAYED}
        self.target.retry_now()
        return True

    def await_reset(self, policy: ResetPolicy) -> None:
        """The position must be looked up by policy."""
        self.drop_buffer()
        self.error = None
        self.reset_policy = policy
        self.move(PositionState.RESET)

    def stick(self, error: AiogroupError) -> None:
        """Only a seek helps; the error goes to the application."""
        self.drop_buffer()
        self.error = error
        self.move(PositionState.STUCK)
        self.tally.turns.setdefault(self)

    def begin_anew(self, ownership: int, topic_id: UUID) -> None:
        """The topic was deleted and made anew: nothing that is known of the log is true of this one."""
        self.former_end = max(self.former_end, self.ledger.position)
        self.start_at(0)
        self.ownership = ownership
        self.topic_id = topic_id
        self.committed, self.committed_metadata = None, ""
        self.log = LogBounds()
        self.target.error = ""
        self.target.preferred_replica = UNKNOWN
        self.move(PositionState.COMMITTED)

    def is_of_former_log(self, offset: int) -> bool:
        """An offset to commit that can only be of the topic that was deleted: this one was not read up to there."""
        return (self.position or 0) < offset <= self.former_end

    @property
    def has_uncommitted(self) -> bool:
        """Something was delivered that is not durable."""
        if self.lanes is not None:
            return bool(self.lanes.has_uncommitted)
        position, committed = self.position, self.committed
        return self.ledger.has_unprocessed or (position is not None and committed is not None and position > committed)

    # Leaders.

    def follow(self, leader: Leader) -> None:
        """The metadata names this leader. What is on its way from another one will not count."""
        if not (self._has_position and is_news(self.leader, leader)):
            return
        self.leader = leader
        self.target.preferred_replica = UNKNOWN
        self.doubt()
        self.target.backoff_until_ms = 0

    def doubt(self) -> None:
        """The leader must confirm the position before anything else is fetched or delivered, if it can."""
        if not self._has_position:
            return
        super().doubt()
        self._check_position()

    def _check_position(self) -> None:
        position = self.ledger.position
        self.search = Search(position, position, self.epoch_before(position))
        is_checkable = must_check(self.search.leader_epoch, self.leader)
        self.move(PositionState.VALIDATING if is_checkable else PositionState.FETCHING)

    def trust(self) -> None:
        """Go on unchecked: the leader cannot be asked."""
        if self.state is PositionState.VALIDATING:
            self.move(PositionState.FETCHING)

    def confirm(self, answer: EpochEnd) -> None:
        """The leader's log holds all that was delivered; what is buffered is kept where it holds that, too."""
        if not confirms(answer, self.epochs.before(self.target.offset), self.target.offset):
            self.drop_buffer()
        self.move(PositionState.FETCHING)
        self.target.retry_now()

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """What was read from `offset` on is not in the log any more: go back to there."""
        self.start_at(offset, leader_epoch=leader_epoch, leader=self.leader, was_reset=True)
        self.committed = None  # it may be the same offset again, of another record
        self.move(PositionState.FETCHING)
