"""A lane: what is fetched and handed out in the order of its offsets. A partition is one, and so is a range of it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from uuid import UUID

from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError
from aiogroup.fetching.buffer import Buffer
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.epochs import NO_EPOCH, Epochs
from aiogroup.fetching.tally import Tally
from aiogroup.fetching.target import FetchTarget
from aiogroup.offsets.ledger import Ledger
from aiogroup.structs import TopicPartition

__all__ = ["Bar", "Lane", "LogBounds"]


class Bar(Enum):
    """Why nothing of a lane is handed out."""

    PAUSED = auto()
    HELD = auto()
    """Its position comes from the policy and must be committed first."""
    NEW = auto()
    """The assigned callback has not returned."""
    LEAVING = auto()
    """It is being revoked, or its topic is not subscribed to any more."""
    DELAYED = auto()
    """A record that failed waits until it is given again."""


class LogBounds:
    """Where the log begins and ends, by the last answer; `None` where that is not known."""

    __slots__ = ("begin_offset", "end_offset", "heard_at_ms", "last_stable_offset", "received_at_ms")

    def __init__(self) -> None:
        self.begin_offset: int | None = None
        self.end_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.received_at_ms: int | None = None  # the last answer to where we read
        self.heard_at_ms: int | None = None  # the last answer about it, or that there is no news

    def last_offset(self, *, read_committed: bool) -> int | None:
        """The offset up to which can be read, `None` when not known."""
        return self.last_stable_offset if read_committed else self.end_offset


class Lane:
    """One lane of a partition during one ownership; `ownership` is that ownership's number."""

    __slots__ = (
        "__weakref__", "bars", "buffer", "epochs", "error", "is_left_out", "ledger", "log", "ownership",
        "starts_count", "tally", "target", "topic_id", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, ownership: int, tally: Tally) -> None:
        self.tp = tp
        self.ownership = ownership
        self.topic_id: UUID | None = None  # of the topic that the position is meant in
        self.tally = tally
        self.bars: set[Bar] = set()
        self.buffer = Buffer(tally)
        self.target = FetchTarget(tp, tally)
        self.log = LogBounds()
        self.ledger = Ledger(0)
        self.epochs = Epochs()
        self.error: AiogroupError | None = None
        self.starts_count = 0  # how often the position was set: what was in hand before is not what is in hand now
        self.is_left_out = False  # the planner asks for no more while this much is buffered

    # Gates.

    @property
    def is_open(self) -> bool:
        """Its records may be handed out."""
        return not self.bars

    @property
    def is_fetched(self) -> bool:
        """Where it goes on is known, and may be read."""
        return True

    @property
    def is_paused(self) -> bool:
        return Bar.PAUSED in self.bars

    def bar(self, why: Bar, *, when: bool = True) -> None:
        """Hand nothing out for this reason; `when` it does not hold (any more), lift the bar."""
        if when:
            self.bars.add(why)
        else:
            self.bars.discard(why)
        self.target.changed()

    def lift(self, why: Bar) -> None:
        """Hand out again, as far as this reason goes."""
        self.bar(why, when=False)

    # Position.

    @property
    def position(self) -> int | None:
        """The next offset that could be delivered, `None` while it is looked up."""
        return self.ledger.position if self._has_position else None

    @property
    def _has_position(self) -> bool:
        return True

    def _begin_at(self, offset: int, leader_epoch: int) -> None:
        """Read from there on; what was buffered or in hand is dropped."""
        self.drop_buffer()
        self.starts_count += 1
        self.ledger.close()  # late acknowledgements are of records that are not in hand any more
        self.ledger = Ledger(offset)
        self.epochs.start(offset, leader_epoch)
        self.bars -= {Bar.HELD, Bar.DELAYED}
        self.error = None
        self.target.offset = offset
        self.target.batch_bytes = 0
        self.target.is_broken = False
        self.target.retry_now()

    def doubt(self) -> None:
        """What is on its way counts no more."""
        self.target.changes_count += 1

    def epoch_before(self, offset: int) -> int:
        """The leader epoch to commit `offset` with: of the record before it, if that was read from here."""
        return self.epochs.before(offset) if offset <= self.ledger.position else NO_EPOCH

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between position and end, `None` when either is not known (SubscriptionState.partitionLag)."""
        end, position = self.log.last_offset(read_committed=read_committed), self.position
        return None if end is None or position is None else max(0, end - position)

    def close(self) -> None:
        """The ownership ended."""
        self.ledger.close()
        self.drop_buffer()

    # Buffer.

    def put(self, piece: PartitionDecoder, epochs: Iterable[tuple[int, int]] = ()) -> None:
        """Take what was fetched; from these (offset, epoch) on its records have these epochs."""
        self.buffer.put(piece)
        self.tally.turns.setdefault(self)
        self.target.changed()
        self.epochs.learn(epochs)

    def use_up(self) -> None:
        """The first buffered piece has nothing left."""
        self.buffer.use_up()
        if self.is_left_out:
            self.target.changed()

    def drop_buffer(self) -> None:
        """Forget what was fetched and not delivered, and the answer that is on its way."""
        self.buffer.clear()
        self.tally.turns.pop(self, None)
        self.target.is_broken = False  # the damaged piece went with the others, and is fetched again
        self.target.changes_count += 1
        if self._has_position:
            self.target.offset = self.ledger.position
            self.epochs.forget_from(self.ledger.position)

    def count_in(self, tally: Tally) -> None:
        """From now on this tally counts what is buffered here, and its turns are ours."""
        if tally is self.tally:
            return
        self.tally.turns.pop(self, None)
        self.tally = tally
        self.buffer.count_in(tally)
        self.target.count_in(tally)
        if self.is_due:
            tally.turns.setdefault(self)

    @property
    def is_due(self) -> bool:
        """Something is left to deliver or to tell."""
        return bool(self.buffer.ready_count or self.buffer.pieces) or self.error is not None

    @property
    def due_error(self) -> AiogroupError | None:
        """What the application must hear of now: nothing stands before it any more."""
        return None if self.buffer.ready_count or self.buffer.pieces else self.error

    @property
    def buffered_count(self) -> int:
        """Offsets that were fetched and not delivered: at least as many as there are records."""
        return self.target.offset - self.ledger.position

    @property
    def has_enough(self) -> bool:
        """What is buffered is not to become more: for a merge, or since others are waited for."""
        tally = self.tally
        is_barred = tally.is_narrow and (self.is_due or (bool(tally.needed) and self.tp not in tally.needed))
        return self._has_position and (is_barred or self.buffered_count >= tally.enough_count > 0)

    # Errors.

    def fail(self, error: AiogroupError) -> None:
        """The application must hear of it when what is buffered before it is handed out, and until it is over."""
        self.error = error
        self.tally.turns.setdefault(self)

    def heal(self) -> None:
        """What was asked for came."""
        self.target.heal()
        self.error = None

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Leave the lane alone for a while, longer each time until something works."""
        self.target.back_off(now_ms, config)
