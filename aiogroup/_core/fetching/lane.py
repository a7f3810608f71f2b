"""A lane: a sequence of records that is fetched and handed out in the order of its offsets. A partition is a lane, and
so is a range of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final
from uuid import UUID

from aiogroup._core.changes import Bell, Change, Changes
from aiogroup._core.fetching.buffer import Buffer
from aiogroup._core.fetching.epochs import NO_EPOCH, Epochs
from aiogroup._core.fetching.records.decode import Acknowledge, DecodeSettings, PartitionDecoder
from aiogroup._core.fetching.tally import Tally
from aiogroup._core.fetching.target import FetchTarget
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError
from aiogroup.structs import TopicPartition

__all__ = ["LIFTED_BY_A_MOVE", "PAUSES", "Bar", "Lane", "LaneTally", "LogBounds"]


class Bar(Enum):
    """Why no records of a lane are handed out."""

    PAUSED = auto()
    """By `pause`, until `resume`."""
    SUSPENDED = auto()
    """By a block `async with consumer.paused()`, until its end."""
    HELD = auto()
    """Its position comes from the reset policy, and must be committed before records are handed out."""
    NEW = auto()
    """Its assigned callback has not returned yet."""
    LEAVING = auto()
    """It is being revoked, or its topic is not subscribed to any more."""
    DELAYED = auto()
    """A record that failed waits for its redelivery."""

    @property
    def shown(self) -> str:
        """Its word in pages and documents."""
        return "paused" if self in PAUSES else self.name.lower()


PAUSES: Final = frozenset({Bar.PAUSED, Bar.SUSPENDED})
"""The application wants nothing of the lane."""

HOLD_UP: Final = frozenset({Bar.LEAVING, Bar.DELAYED})
"""These bars last as long as the application takes, or fails."""

LIFTED_BY_A_MOVE: Final = frozenset({Bar.HELD, Bar.DELAYED})
"""These bars are about the position at which they were set."""


class LogBounds:
    """Where the log begins and ends according to the last answer; `None` where that is not known."""

    __slots__ = ("begin_offset", "end_offset", "heard_at_ms", "last_stable_offset", "received_at_ms")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is known of the log: it has not been asked about, or is another one."""
        self.begin_offset: int | None = None
        self.end_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.received_at_ms: int | None = None  # the time of the last answer for the offset at which we read
        self.heard_at_ms: int | None = None  # the time of the last answer about the log, even one without news

    def hear(self, begin: int, end: int, stable: int, now_ms: int) -> None:
        """A fetch was answered with these offsets. On the wire -1 means "not known": no lag may be computed from it."""
        stable = stable if stable >= 0 else end
        self.begin_offset = begin if begin >= 0 else None
        self.end_offset = end if end >= 0 else None
        self.last_stable_offset = stable if stable >= 0 else None
        self.heard_at_ms = now_ms

    def hear_no_news(self, now_ms: int) -> None:
        """A fetch session was answered, and what the last answer said still holds."""
        if self.heard_at_ms is not None:
            self.heard_at_ms = now_ms

    def hear_end(self, offset: int, now_ms: int, *, read_committed: bool) -> None:
        """The leader was asked up to where records can be read."""
        self.heard_at_ms = now_ms
        if read_committed:
            self.last_stable_offset = offset
        else:
            self.end_offset = offset

    def last_offset(self, *, read_committed: bool) -> int | None:
        """The offset up to which records can be read, `None` when it is not known."""
        return self.last_stable_offset if read_committed else self.end_offset


class LaneTally(Tally):
    """With the order in which its lanes are served, and who hears of their changes."""

    __slots__ = ("changes", "turns")

    def __init__(self, changes: Changes[Bell] | None = None) -> None:
        super().__init__()
        self.changes = changes or Changes.silent()
        self.turns: OrderedDict[Lane, None] = OrderedDict()
        """The lanes with something to deliver or an error to raise, the one that is served next first."""


class Lane:
    """One lane of a partition during one ownership; `ownership` is that ownership's number."""

    __slots__ = (
        "__weakref__", "_acknowledge", "bars", "buffer", "epochs", "error", "is_left_out", "ledger", "log",
        "ownership", "starts_count", "tally", "target", "topic_id", "tp",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, ownership: int, tally: LaneTally) -> None:
        self.tp = tp
        self.ownership = ownership
        self.topic_id: UUID | None = None  # of the topic that the position belongs to
        self.tally = tally
        self.bars: set[Bar] = set()
        self.buffer = Buffer(tally)
        self.target = FetchTarget(tp, tally)
        self.log = LogBounds()
        self.ledger = Ledger(0)
        self._acknowledge: Acknowledge | None = None
        self.epochs = Epochs()
        self.error: AiogroupError | None = None
        # How often the position was set: commits and poison records of an earlier count do not concern the lane now.
        self.starts_count = 0
        self.is_left_out = False  # the planner asks for no more while this much is buffered

    # Bars.

    @property
    def is_open(self) -> bool:
        """Whether its records may be handed out."""
        return not self.bars

    @property
    def is_fetched(self) -> bool:
        """Whether its position is known and may be fetched from."""
        return True

    @property
    def is_paused(self) -> bool:
        return bool(self.bars) and not self.bars.isdisjoint(PAUSES)

    def bar(self, why: Bar, *, when: bool = True) -> None:
        """Hand out no records for the reason `why`. If `when` is False the reason does not hold (any more), and the bar
        is lifted.
        """
        if when:
            self.bars.add(why)
        else:
            self.bars.discard(why)
        self.target.changed()
        self.tally.changes.tell(Change.BARRED)

    def lift(self, why: Bar) -> None:
        """Remove this reason; records are handed out when no other reason is left."""
        self.bar(why, when=False)

    # Position.

    @property
    def position(self) -> int | None:
        """The next offset that could be delivered, `None` while it is being looked up."""
        return self.ledger.position

    def _begin_at(self, offset: int, leader_epoch: int) -> None:
        """Read from `offset` on; records that were buffered or in hand are dropped."""
        self.drop_buffer()
        self.starts_count += 1
        self.ledger.close()  # late acknowledgements concern records that are not in hand any more
        self.ledger = Ledger(offset)
        self._acknowledge = None
        self.epochs.start(offset, leader_epoch)
        self.bars.difference_update(LIFTED_BY_A_MOVE)
        self.error = None
        self.target.begin_at(offset)
        self.tally.changes.tell(Change.POSITION)

    def doubt(self) -> None:
        """Ignore the answer to the request that is under way."""
        self.target.outdate()

    def epoch_before(self, offset: int) -> int:
        """The leader epoch to commit `offset` with: the epoch of the record before it, if this lane has read that
        record.
        """
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

    def decoder(
        self,
        records: bytes | memoryview,
        offset: int,
        aborted: Sequence[tuple[int, int]],
        settings: DecodeSettings,
        acknowledge: Callable[[Ledger], Acknowledge],
    ) -> PartitionDecoder:
        """What decodes records that were fetched from `offset`. Their `ack()` calls what `acknowledge` makes of the
        ledger.
        """
        if self._acknowledge is None:
            self._acknowledge = acknowledge(self.ledger)
        return PartitionDecoder(self.tp, records, offset, aborted, settings, self._acknowledge)

    def put(self, piece: PartitionDecoder, epochs: Iterable[tuple[int, int]] = ()) -> None:
        """Append a fetched piece, with the (offset, epoch) runs of its records."""
        self.buffer.put(piece)
        self.tally.turns.setdefault(self)
        self.target.changed()
        self.epochs.learn(epochs)

    def use_up(self) -> None:
        """Remove the first buffered piece, which has nothing left."""
        self.buffer.use_up()
        if self.is_left_out:
            self.target.changed()

    def drop_buffer(self) -> None:
        """Forget the records that were fetched and not delivered, and the answer that is under way."""
        self.buffer.clear()
        self.tally.turns.pop(self, None)
        position = self.position
        self.target.dropped(position)
        if position is not None:
            self.epochs.forget_from(position)
        self.tally.changes.tell(Change.FETCHABLE)

    def count_in(self, tally: LaneTally) -> None:
        """From now on `tally` counts the buffered bytes, and the lane takes its turn in that tally's queue."""
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
        """Whether the lane has something to deliver, or an error to raise."""
        return bool(self.buffer.pieces or self.buffer.ready_count) or self.error is not None

    @property
    def is_held_up(self) -> bool:
        """Whether what is buffered waits for the application: to skip a record that cannot be delivered, to try again
        later with one that failed, or to let the lane go.
        """
        buffer = self.buffer
        if not self.bars.isdisjoint(HOLD_UP):
            return True
        return not buffer.ready_count and bool(buffer.pieces) and buffer.pieces[0].poison_offset is not None

    def poison_end_at(self, offset: int) -> int | None:
        """Where to go on after the record at `offset`, if the lane stands on it and it cannot be delivered."""
        pieces = self.buffer.pieces
        return pieces[0].poison_end if pieces and pieces[0].poison_offset == offset else None

    @property
    def due_error(self) -> AiogroupError | None:
        """The error that is to be raised now, since no record is left to be delivered before it."""
        return None if self.buffer.ready_count or self.buffer.pieces else self.error

    @property
    def buffered_count(self) -> int:
        """The number of offsets that were fetched and not delivered: at least the number of records."""
        return self.target.offset - self.ledger.position

    @property
    def has_enough(self) -> bool:
        """Whether no more is to be fetched: enough is buffered for a merge, or records of other lanes are waited
        for.
        """
        tally = self.tally
        if not (tally.is_narrow or tally.enough_count) or self.position is None:
            return False
        gives_way = tally.is_narrow and (self.is_due or (bool(tally.needed) and self.tp not in tally.needed))
        return gives_way or (tally.enough_count > 0 and self.buffered_count >= tally.enough_count)

    # Errors.

    def fail(self, error: AiogroupError) -> None:
        """Raise this error in the application's requests once the records buffered before it are handed out, until
        `heal`.
        """
        self.error = error
        self.tally.turns.setdefault(self)
        self.tally.changes.tell(Change.READABLE)

    def heal(self) -> None:
        """The records that were asked for have arrived."""
        self.target.heal()
        self.error = None

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Do not fetch the lane for a while, longer each time until a fetch succeeds."""
        self.target.back_off(now_ms, config)
