"""Everything known of one partition while we read it: where we are, what is buffered, what must happen first."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, Final
from uuid import UUID

from aiogroup.config import ConsumerConfig, ResetPolicy
from aiogroup.errors import AiogroupError
from aiogroup.fetching.decode import PartitionDecoder
from aiogroup.fetching.epochs import NO_EPOCH, Epochs
from aiogroup.fetching.truncation import NOBODY, EpochEnd, Leader, Search, confirms, is_news, must_check
from aiogroup.offsets.ledger import Ledger
from aiogroup.records import Record
from aiogroup.structs import TopicPartition

__all__ = ["Partition", "PositionState", "Slice", "Tally"]

UNKNOWN = -1
PREFERRED_REPLICA_MS = 300_000
"""How long a preferred replica is used before the leader is asked again (metadata.max.age in Java)."""


DECIDE_FETCH: Final = frozenset({
    "backoff_until_ms", "changes_count", "fetch_bytes", "fetch_offset", "is_broken", "is_paused", "most_bytes",
    "preferred_replica", "state",
})  # fmt: skip
"""Whoever sets one of these changes whether, where or for what the partition is asked."""


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
_OFFSET: Final = attrgetter("offset")


class Slice:
    """Records that are decoded and not all delivered: those from `index` on are next, then the position is `end`."""

    __slots__ = ("end", "index", "keys", "records", "size_bytes")

    def __init__(self, records: list[Record], end: int, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.records = records
        self.keys: list[int] = []  # for a merge: the times of the first so many records
        self.index = 0
        self.end = end

    def let_go(self) -> None:
        """Of records that are all handed out only the last is kept: it may be wanted again."""
        if self.index > 1 and self.index == len(self.records):
            self.keys = self.keys[-1:] if len(self.keys) == len(self.records) else []
            del self.records[:-1]
            self.index = 1

    def give(self, since: int) -> list[Record]:
        """The records from `since` on that are handed out, in a list that is the receiver's."""
        if since or self.index < len(self.records):
            given = self.records[since : self.index]
            self.let_go()
            return given
        given, self.records = self.records, self.records[-1:]  # not copied: that is three passes over them
        self.keys = self.keys[-1:] if len(self.keys) == len(given) else []
        self.index = 1
        return given

    def cut(self) -> None:
        """Forget what is handed out."""
        del self.records[: self.index]
        del self.keys[: self.index]
        self.index = 0


class Tally:
    """What the partitions of an assignment tell of themselves, so that nobody has to look at all of them."""

    __slots__ = (
        "batch_bytes", "decoded_bytes", "enough_count", "fetched_bytes", "in_flight_bytes", "is_narrow",
        "moved", "needed", "needs_records", "touched", "turns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.touched: dict[TopicPartition, None] = {}
        """Fetched from in another way than when the planner last looked, perhaps."""
        self.moved: dict[TopicPartition, None] = {}
        """Sought away from what was buffered, and not named in a request to their broker since then."""
        self.turns: OrderedDict[Partition, None] = OrderedDict()
        """Those with something to deliver or to tell: whose turn it is first."""
        self.fetched_bytes = 0
        self.decoded_bytes = 0
        """Batches that are decompressed, and slices: what they need beside the answers that they come from."""
        self.in_flight_bytes = 0
        """What brokers were asked for and have not answered."""
        self.batch_bytes = 0
        """The longest of those that began a fetched piece."""
        self.enough_count = 0
        """For a merge, so many buffered records of a partition are enough; 0: there is no merge."""
        self.needs_records = False
        """A merge, or requests that name partitions, wait for some that have no record."""
        self.needed: frozenset[TopicPartition] = frozenset()  # those that are named; empty: any
        self.is_narrow = False
        """It does, and there is no room: only these are fetched."""

    @property
    def held_bytes(self) -> int:
        """Fetched and not delivered, or about to be."""
        return self.fetched_bytes + self.decoded_bytes + self.in_flight_bytes


class Partition:
    """One partition during one uninterrupted ownership; `ownership` is that ownership's number."""

    __slots__ = (
        "__weakref__",
        "backoff_until_ms", "begin_offset", "behind", "behind_bytes", "buffer", "changes_count",
        "committed", "committed_metadata",
        "decoded_bytes", "end_offset", "epochs", "error", "failures_count", "fetch_bytes", "fetch_error",
        "fetch_offset", "fetched_bytes", "former_end", "heard_at_ms", "is_broken", "is_delayed", "is_held",
        "is_leaving", "is_left_out", "is_new", "is_paused", "lanes", "last_stable_offset",
        "leader", "ledger", "most_bytes", "ownership", "preferred_replica", "preferred_until_ms",
        "received_at_ms", "reset_policy", "reset_why", "search", "slice", "starts_count", "state", "tally",
        "topic_id", "tp", "was_reset",
    )  # fmt: skip

    def __init__(
        self, tp: TopicPartition, ownership: int, reset_policy: ResetPolicy, tally: Tally | None = None
    ) -> None:
        self.tp = tp
        self.tally = tally or Tally()
        self.ownership = ownership
        self.reset_policy = reset_policy
        self.reset_why = ""
        self.state = PositionState.COMMITTED
        self.ledger = Ledger(0)
        self.epochs = Epochs()
        self.leader = NOBODY  # by whom the position is checked, or is to be
        self.search = Search(0, 0, NO_EPOCH)  # while it is checked
        self.committed: int | None = None
        self.committed_metadata = ""
        self.was_reset = False
        self.is_broken = False
        self.is_paused = False
        self.is_held = False  # nothing is delivered until the position is committed
        self.is_new = False  # nor until the assigned callback has returned
        self.is_leaving = False  # nor when it is being revoked, or its topic is not subscribed to any more
        self.is_delayed = False  # nor while a record that failed waits until it is given again
        self.is_left_out = False  # the planner asks for no more while so much is buffered
        self.buffer: deque[PartitionDecoder] = deque()
        self.fetched_bytes = self.decoded_bytes = 0
        self.behind_bytes = 0  # of all pieces but the first, which alone changes while it is read
        self.slice: Slice | None = None
        self.fetch_offset = 0
        self.fetch_bytes = 0
        self.starts_count = 0  # how often the position was set: what was in hand before is not what is in hand now
        self.changes_count = 0  # every seek, reset and loss; an answer to an older count is dropped
        self.backoff_until_ms = 0
        self.failures_count = 0
        self.fetch_error = ""  # what the last fetch said, where it was not good
        self.preferred_replica = UNKNOWN
        self.preferred_until_ms = 0
        self.begin_offset: int | None = None
        self.end_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.received_at_ms: int | None = None
        self.heard_at_ms: int | None = None  # where the log ends, by an answer or as no news
        self.error: AiogroupError | None = None
        self.topic_id: UUID | None = None  # of the topic that the position is meant in
        self.former_end = 0  # up to where a former topic of the same name was read, by this consumer
        self.behind: Any = None  # the cursor whose records come before ours, in ordered mode (KIP-333)
        self.most_bytes = 0  # so much waits behind it at most; 0: what is usual
        self.lanes: Any = None  # this is the live lane, and these are all (KIP-333, `runtime/recovery/lanes.py`)

    @property
    def is_open(self) -> bool:
        """Its records may be handed out."""
        is_barred = self.is_paused or self.is_held or self.is_new or self.is_leaving or self.is_delayed
        if is_barred or (self.behind is not None and not self.behind.is_delivered):
            return False
        return self.state is not PositionState.VALIDATING

    # Position.

    @property
    def position(self) -> int | None:
        """The next offset that could be delivered, `None` while it is looked up."""
        return self.ledger.position if self._has_position else None

    @property
    def _has_position(self) -> bool:
        return self.state is _FETCHING or self.state is _VALIDATING

    @property
    def awaits_position(self) -> bool:
        """Records are to be read from it, and where is being looked up or checked."""
        return not (self.is_paused or self.state in (PositionState.FETCHING, PositionState.STUCK))

    def start_at(
        self, offset: int, *, leader_epoch: int = NO_EPOCH, leader: Leader = NOBODY, was_reset: bool = False
    ) -> None:
        """The position is known from now on; what was buffered or in hand is dropped.

        `leader_epoch` is that of the record before it, as far as is known: with one, `leader` must confirm it first.
        """
        self.drop_buffer()
        self.starts_count += 1
        self.ledger.close()  # late acknowledgements are of records that are not in hand any more
        self.ledger = Ledger(offset)
        self.epochs.start(offset, leader_epoch)
        self.leader = leader
        self.fetch_offset = offset
        self.fetch_bytes = 0
        self.was_reset = was_reset
        self.is_held = self.is_delayed = False
        self.is_broken = False
        self._check_position()
        self.error = None
        self.failures_count = 0
        self.backoff_until_ms = 0

    def go_on_at(self, offset: int) -> bool:
        """A seek forwards within what is buffered: what stands at `offset` and behind it stays, and so does a request
        that is under way. False where that cannot be: then `start_at` drops what is left.
        """
        if self.state is not _FETCHING or self.is_broken or not self.ledger.position <= offset <= self.fetch_offset:
            return False
        piece = self.slice
        if piece is not None:
            piece.index = bisect_left(piece.records, offset, piece.index, key=_OFFSET)
            piece.cut()
            if not piece.records:
                self.slice, offset = None, max(offset, piece.end)
        while len(self.buffer) > 1 and self.buffer[1].next_offset <= offset:
            self.use_up()
        if self.buffer and not self.buffer[0].skip_to(offset):
            return False
        self.weigh()
        self.starts_count += 1
        self.ledger.close()
        self.ledger = Ledger(offset)
        self.was_reset = self.is_held = self.is_delayed = False
        self.failures_count = 0
        self.backoff_until_ms = 0
        return True

    def await_reset(self, policy: ResetPolicy) -> None:
        """The position must be looked up by policy."""
        self.drop_buffer()
        self.error = None
        self.reset_policy = policy
        self.state = PositionState.RESET

    def stick(self, error: AiogroupError) -> None:
        """Only a seek helps; the error goes to the application."""
        self.drop_buffer()
        self.error = error
        self.state = PositionState.STUCK
        self.tally.turns.setdefault(self)

    def fail(self, error: AiogroupError) -> None:
        """The application must hear of it when what is buffered before it is handed out, and until it is over."""
        self.error = error
        self.tally.turns.setdefault(self)

    def heal(self) -> None:
        """What is asked for came."""
        self.failures_count = 0
        self.fetch_error = ""
        self.error = None
        if self.fetch_bytes:
            self.fetch_bytes = 0

    def drop_buffer(self) -> None:
        """Forget what was fetched and not delivered, and the answer that is on its way."""
        self.buffer.clear()
        self.behind_bytes = 0
        self.tally.turns.pop(self, None)
        self.slice = None
        self.is_broken = False  # the damaged piece went with the others, and is fetched again
        self.weigh()
        self.changes_count += 1
        if self._has_position:
            self.fetch_offset = self.ledger.position
            self.epochs.forget_from(self.ledger.position)

    def count_in(self, tally: Tally) -> None:
        """From now on this tally counts what is buffered here, and its turns are ours."""
        if tally is self.tally:
            return
        self.tally.turns.pop(self, None)
        self.tally.fetched_bytes -= self.fetched_bytes
        self.tally.decoded_bytes -= self.decoded_bytes
        self.tally = tally
        tally.fetched_bytes += self.fetched_bytes
        tally.decoded_bytes += self.decoded_bytes
        if self.is_due:
            tally.turns.setdefault(self)

    def begin_anew(self, ownership: int, topic_id: UUID) -> None:
        """The topic was deleted and made anew: nothing that is known of the log is true of this one."""
        self.former_end = max(self.former_end, self.ledger.position)
        self.start_at(0)
        self.ownership = ownership
        self.topic_id = topic_id
        self.committed, self.committed_metadata = None, ""
        self.begin_offset = self.end_offset = self.last_stable_offset = None
        self.received_at_ms = self.heard_at_ms = None
        self.fetch_bytes = 0
        self.fetch_error = ""
        self.preferred_replica = UNKNOWN
        self.state = PositionState.COMMITTED

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

    def close(self) -> None:
        """The ownership ended."""
        self.ledger.close()
        self.drop_buffer()

    # Leaders.

    def follow(self, leader: Leader) -> None:
        """The metadata names this leader. What is on its way from another one will not count."""
        if not (self._has_position and is_news(self.leader, leader)):
            return
        self.leader = leader
        self.preferred_replica = UNKNOWN
        self.doubt()
        self.backoff_until_ms = 0

    def doubt(self) -> None:
        """The leader must confirm the position before anything else is fetched or delivered, if it can."""
        if not self._has_position:
            return
        self.changes_count += 1
        self._check_position()

    def _check_position(self) -> None:
        position = self.ledger.position
        self.search = Search(position, position, self.epoch_before(position))
        is_checkable = must_check(self.search.leader_epoch, self.leader)
        self.state = PositionState.VALIDATING if is_checkable else PositionState.FETCHING

    def trust(self) -> None:
        """Go on unchecked: the leader cannot be asked."""
        if self.state is PositionState.VALIDATING:
            self.state = PositionState.FETCHING

    def confirm(self, answer: EpochEnd) -> None:
        """The leader's log holds all that was delivered; what is buffered is kept where it holds that, too."""
        if not confirms(answer, self.epochs.before(self.fetch_offset), self.fetch_offset):
            self.drop_buffer()
        self.state = PositionState.FETCHING
        self.failures_count = 0
        self.backoff_until_ms = 0

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """What was read from `offset` on is not in the log any more: go back to there."""
        self.start_at(offset, leader_epoch=leader_epoch, leader=self.leader, was_reset=True)
        self.committed = None  # it may be the same offset again, of another record
        self.state = PositionState.FETCHING

    # Buffer.

    @property
    def is_due(self) -> bool:
        """Something is left to deliver or to tell."""
        return bool(self.ready_count or self.buffer) or self.error is not None

    @property
    def due_error(self) -> AiogroupError | None:
        """What the application must hear of now: nothing stands before it any more."""
        return None if self.ready_count or self.buffer else self.error

    @property
    def ready_count(self) -> int:
        """Records that are decoded and not handed out."""
        return 0 if self.slice is None else len(self.slice.records) - self.slice.index

    @property
    def buffered_bytes(self) -> int:
        return self.fetched_bytes + self.decoded_bytes

    @property
    def buffered_count(self) -> int:
        """Offsets that were fetched and not delivered; so many records at most."""
        return self.fetch_offset - self.ledger.position

    @property
    def has_enough(self) -> bool:
        """What is buffered is not to become more: for a merge, or since others are waited for."""
        tally = self.tally
        is_barred = tally.is_narrow and (self.is_due or (bool(tally.needed) and self.tp not in tally.needed))
        return self._has_position and (is_barred or self.buffered_count >= tally.enough_count > 0)

    def weigh(self) -> None:
        """What is held has changed: tell the tally."""
        piece = self.slice
        fetched_bytes = decoded_bytes = 0
        if self.buffer:
            fetched_bytes = self.buffer[0].fetched_bytes + self.behind_bytes
            decoded_bytes = self.buffer[0].inflated_bytes
        if piece is not None and piece.index < len(piece.records):
            decoded_bytes += piece.size_bytes
        self.tally.fetched_bytes += fetched_bytes - self.fetched_bytes
        self.tally.decoded_bytes += decoded_bytes - self.decoded_bytes
        self.fetched_bytes, self.decoded_bytes = fetched_bytes, decoded_bytes

    def put(self, decoder: PartitionDecoder, epochs: Iterable[tuple[int, int]] = ()) -> None:
        """Take what was fetched; from these (offset, epoch) on its records have these epochs."""
        if self.buffer:
            self.behind_bytes += decoder.fetched_bytes
        self.buffer.append(decoder)
        self.tally.batch_bytes = max(self.tally.batch_bytes, decoder.first_batch_bytes)
        self.weigh()
        self.tally.turns.setdefault(self)
        self.tally.touched[self.tp] = None
        self.epochs.learn(epochs)

    def use_up(self) -> None:
        """The first buffered piece has nothing left."""
        self.buffer.popleft()
        if self.buffer:
            self.behind_bytes -= self.buffer[0].fetched_bytes
        self.weigh()
        if self.is_left_out:
            self.tally.touched[self.tp] = None

    def epoch_before(self, offset: int) -> int:
        """The leader epoch to commit `offset` with: of the record before it, if that was read from here."""
        return self.epochs.before(offset) if offset <= self.ledger.position else NO_EPOCH

    # Lag.

    def last_offset(self, *, read_committed: bool) -> int | None:
        """The offset up to which can be read, `None` when not known."""
        return self.last_stable_offset if read_committed else self.end_offset

    def lag(self, *, read_committed: bool) -> int | None:
        """Records between position and end, `None` when either is not known (SubscriptionState.partitionLag)."""
        end, position = self.last_stable_offset if read_committed else self.end_offset, self.position
        return None if end is None or position is None else max(0, end - position)

    # Errors.

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Leave the partition alone for a while, longer each time until something works."""
        self.failures_count += 1
        self.backoff_until_ms = now_ms + config.backoff_ms(self.failures_count)


def _tell_when_set(name: str) -> None:
    """The field stays what it is, under another name; the planner hears of it when it is set under its own."""
    slot: MemberDescriptorType = vars(Partition)[name]
    store, hidden = slot.__set__, f"_{name}"

    def change(partition: Partition, value: Any) -> None:  # noqa: ANN401 (any field)
        store(partition, value)
        partition.tally.touched[partition.tp] = None

    setattr(Partition, hidden, slot)
    setattr(Partition, name, property(attrgetter(hidden), change))


# Not left to those who set them: a change that the planner does not hear of stops a partition for good.
for _name in DECIDE_FETCH:
    _tell_when_set(_name)
