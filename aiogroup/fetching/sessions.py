"""What one broker is asked for, request by request, in a session that both sides remember (KIP-227).

A full request names every partition and may open a session. From then on a request names those that changed, and the
answer those with news: what neither names is as it was. So the session is the plan: whoever changes a partition says
so here (`want`, `drop`), and the next request carries the differences, however many partitions there are.

The broker reads partitions in its own order and moves those it has sent records of to the end; a full request brings
our order, which moves them likewise.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from aiogroup.config import ConsumerConfig
from aiogroup.fetching.lane import Lane
from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.protocol.errors import ErrorCode
from aiogroup.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

__all__ = ["Asked", "FetchSession", "SessionRequest", "epoch_after", "request_for", "without_session"]

NO_SESSION: Final = 0
OPENING: Final = 0
"""The epoch that asks for a new session, and closes the one whose id is given (FetchMetadata.INITIAL_EPOCH)."""
NEVER: Final = -1
"""The epoch of a request that opens no session and touches none (FetchMetadata.FINAL_EPOCH)."""
MAX_EPOCH: Final = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """0 only opens a session."""
    return epoch % MAX_EPOCH + 1


class Asked(NamedTuple):
    """What is asked of one partition, and for whom: `changes_count` is that of `partition` when it was asked."""

    partition: Lane
    changes_count: int
    topic_id: UUID
    leader_epoch: int
    fetch_offset: int
    max_bytes: int

    def is_same_log(self, other: Asked) -> bool:
        return self.partition is other.partition and self.topic_id == other.topic_id


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """`partitions` are new, changed, or (`is_full`) all; `forgotten` leave, with the topic id they were known by.

    `has_ids`: every topic in it has an id. Otherwise they must go by their names, in version 12 or older.
    """

    session_id: int
    session_epoch: int
    partitions: dict[TopicPartition, Asked]
    forgotten: dict[TopicPartition, UUID]
    has_ids: bool

    @property
    def is_full(self) -> bool:
        return self.session_epoch == OPENING


def without_session(partitions: dict[TopicPartition, Asked]) -> SessionRequest:
    """For these alone; what a session has under way goes on."""
    has_ids = all(each.topic_id != ZERO_UUID for each in partitions.values())
    return SessionRequest(NO_SESSION, NEVER, partitions, {}, has_ids)


class FetchSession:
    """One broker's. One request at a time: `begin`, then `answered` or `lost`."""

    def __init__(self) -> None:
        self.wanted: dict[TopicPartition, Asked] = {}
        """In the order of a full request: what changed last, as by records that came, is last."""
        self.held: dict[TopicPartition, Asked] = {}
        """What the broker knows by the last request: what its answer means."""
        self._session_id = NO_SESSION
        self._epoch = OPENING
        self._has_ids = True
        self._without_id: set[TopicPartition] = set()
        self._names: dict[UUID, str] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._missed: set[TopicPartition] = set()

    def want(self, tp: TopicPartition, asked: Asked) -> None:
        """Ask for this from now on."""
        if self.wanted.get(tp) == asked:
            return
        self.drop(tp)
        self.wanted[tp] = asked
        self._changed[tp] = None
        if asked.topic_id == ZERO_UUID:
            self._without_id.add(tp)
        else:
            self._names[asked.topic_id] = tp.topic

    def drop(self, tp: TopicPartition) -> None:
        """Ask for it no more."""
        if self.wanted.pop(tp, None) is not None:
            self._changed[tp] = None
            self._without_id.discard(tp)

    def miss(self, tp: TopicPartition) -> None:
        """What an answer told of this partition was not taken in. The broker will not tell it again by itself."""
        self._missed.add(tp)

    def name_of(self, topic_id: UUID) -> str:
        """The topic's name, "" when it was never asked for by this id."""
        return self._names.get(topic_id, "")

    def begin(self) -> SessionRequest:
        """The next request."""
        has_ids = not self._without_id
        if has_ids is not self._has_ids or self._must_open():
            self._epoch = OPENING
        request = self._difference(has_ids) if self.is_open else self._full(has_ids)
        self._changed.clear()
        self._missed.clear()
        return request

    def _must_open(self) -> bool:
        """A broker adds what is named before it forgets: a partition cannot leave and come in one request."""
        for tp in self._changed:
            wanted, held = self.wanted.get(tp), self.held.get(tp)
            if wanted is not None and held is not None and not wanted.is_same_log(held):
                return True
        return any(tp in self.wanted for tp in self._missed)

    def _full(self, has_ids: bool) -> SessionRequest:
        self._has_ids = has_ids
        self._names = {each.topic_id: tp.topic for tp, each in self.wanted.items()}
        self.held = dict(self.wanted)
        return SessionRequest(self._session_id, OPENING, self.held, {}, has_ids)

    def _difference(self, has_ids: bool) -> SessionRequest:
        partitions, forgotten = {}, {}
        for tp in self._changed:
            wanted, held = self.wanted.get(tp), self.held.pop(tp, None)
            if wanted is not None:
                self.held[tp] = wanted
                if held is None or wanted[2:] != held[2:]:
                    partitions[tp] = wanted
            elif held is not None:
                forgotten[tp] = held.topic_id
        return SessionRequest(self._session_id, self._epoch, partitions, forgotten, has_ids)

    def answered(self, error_code: int, session_id: int, named: Collection[TopicPartition]) -> None:
        """What the answer says of the session, and which partitions it names (FetchSessionHandler.handleResponse)."""
        epoch, self._epoch = self._epoch, OPENING
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or (session_id == NO_SESSION and not error_code):
            self._session_id = NO_SESSION  # evicted, or it gives none, or it is older than sessions
        elif not error_code:  # after another error a full request with the id closes what the broker may still have
            self._session_id = session_id
            if all(tp in self.held for tp in named) and (epoch != OPENING or len(named) == len(self.held)):
                self._epoch = epoch_after(epoch)

    def lost(self) -> None:
        """No answer: nobody knows whether the broker got the request."""
        self._epoch = OPENING

    @property
    def is_open(self) -> bool:
        """The next request names the differences only."""
        return self._epoch != OPENING


def request_for(begun: SessionRequest, config: ConsumerConfig, *, max_bytes: int, max_wait_ms: int) -> FetchRequest:
    """What goes to the broker."""
    # Neighbours only: the order is what the broker fills its answer by (FetchRequest.forConsumer).
    asked = groupby(begun.partitions.items(), key=lambda each: (each[0].topic, each[1].topic_id))
    forgotten = groupby(sorted(begun.forgotten.items()), key=lambda each: (each[0].topic, each[1]))
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(config.read_committed),
        session_id=begun.session_id,
        session_epoch=begun.session_epoch,
        topics=tuple(
            FetchTopic(
                topic,
                topic_id,
                tuple(
                    FetchPartition(
                        partition=tp.partition,
                        current_leader_epoch=each.leader_epoch,
                        fetch_offset=each.fetch_offset,
                        partition_max_bytes=each.max_bytes,
                    )
                    for tp, each in group
                ),
            )
            for (topic, topic_id), group in asked
        ),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic, topic_id, tuple(tp.partition for tp, _ in group))
            for (topic, topic_id), group in forgotten
        ),
        rack_id=config.client_rack or "",
    )
