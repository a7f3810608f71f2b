"""The partitions that one broker is asked for, request by request, in a session that both sides remember (KIP-227).

A full request names every partition and may open a session. From then on a request names the partitions that changed,
and the answer names those with news; the others are as they were. So the session is the plan: whoever changes a
partition says so here (`want`, `drop`), and the next request carries only the differences, however many partitions
there are.

The broker reads the partitions in its own order, and moves those whose records it has sent to the end. A full request
replaces the broker's order by ours, in which such partitions stand at the end, too.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from aiogroup._core.fetching.lane import Lane
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.compiler import maker
from aiogroup._core.protocol.constants import NO_HIGH_WATERMARK, NO_REPLICA
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["Asked", "FetchSession", "SessionRequest", "epoch_after", "request_for", "without_session"]

NO_SESSION: Final = 0
OPENING: Final = 0
"""The epoch that asks for a new session, and closes the one whose id is given (FetchMetadata.INITIAL_EPOCH)."""
NEVER: Final = -1
"""The epoch of a request that opens no session, and closes the one whose id is given (FetchMetadata.FINAL_EPOCH)."""
MAX_EPOCH: Final = 2**31 - 1

# At the head each record costs a request: these take the values of all fields in order, which costs a third.
_make_request = maker(FetchRequest)
_make_topic = maker(FetchTopic)
_make_partition = maker(FetchPartition)


def epoch_after(epoch: int) -> int:
    """The epoch of the next request. It never returns to 0, which opens a session."""
    return epoch % MAX_EPOCH + 1


class Asked(NamedTuple):
    """What a request asks for one lane; `changes_count` is the lane's at that time."""

    lane: Lane
    changes_count: int
    topic_id: UUID
    leader_epoch: int
    fetch_offset: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """One request: `partitions` are the new and changed ones or, if `is_full`, all; `forgotten` are those that leave,
    with the topic id that the broker knows them by.

    `has_ids`: every topic in it has an id. Otherwise topics must be named, in version 12 or older.
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
    """A request for these partitions alone, outside of the session; its own request goes on."""
    has_ids = all(each.topic_id != ZERO_UUID for each in partitions.values())
    return SessionRequest(NO_SESSION, NEVER, partitions, {}, has_ids)


class FetchSession:
    """The session with one broker. One request at a time: `begin`, then `answered` or `lost`."""

    def __init__(self) -> None:
        self.wanted: dict[TopicPartition, Asked] = {}
        """The partitions to ask for, in the order of a full request: the one that changed last (for example because its
        records arrived) is last.
        """
        self.held: dict[TopicPartition, Asked] = {}
        """What the broker knows since the last request; its answer is read with this."""
        self._session_id = NO_SESSION
        self._epoch = OPENING
        self._has_ids = True
        self._without_id: set[TopicPartition] = set()
        self.names: dict[UUID, str] = {}
        """The topics by the ids that they were asked for by."""
        self._changed: dict[TopicPartition, None] = {}
        self._missed: set[TopicPartition] = set()

    def want(self, tp: TopicPartition, asked: Asked) -> None:
        """Ask for this from now on."""
        former = self.wanted.get(tp)
        if former == asked:
            return
        if former is not None:
            del self.wanted[tp]
        self.wanted[tp] = asked
        self._changed[tp] = None
        if former is not None and former.topic_id is asked.topic_id:
            return
        self._without_id.discard(tp)
        if asked.topic_id == ZERO_UUID:
            self._without_id.add(tp)
        else:
            self.names[asked.topic_id] = tp.topic

    def drop(self, tp: TopicPartition) -> None:
        """Ask for it no more."""
        if self.wanted.pop(tp, None) is not None:
            self._changed[tp] = None
            self._without_id.discard(tp)

    def miss(self, tp: TopicPartition) -> None:
        """The answer's data for this partition was not used, and the broker will not send it again by itself: name the
        partition again.
        """
        self._missed.add(tp)

    def begin(self) -> SessionRequest:
        """The next request."""
        has_ids, request = not self._without_id, None
        if self._epoch != OPENING and has_ids is self._has_ids and self._missed.isdisjoint(self.wanted):
            request = self._difference(has_ids)
        if request is None:
            request = self._full(has_ids)
        self._changed.clear()
        self._missed.clear()
        return request

    def _full(self, has_ids: bool) -> SessionRequest:
        self._epoch = OPENING
        self._has_ids = has_ids
        self.names = {each.topic_id: tp.topic for tp, each in self.wanted.items()}
        self.held = dict(self.wanted)
        return SessionRequest(self._session_id, OPENING, self.held, {}, has_ids)

    def _difference(self, has_ids: bool) -> SessionRequest | None:
        """What changed; `None` if a full request is needed: a broker adds partitions before it forgets others, so one
        cannot leave and come back in the same request.
        """
        partitions, forgotten = {}, {}
        for tp in self._changed:
            wanted, held = self.wanted.get(tp), self.held.pop(tp, None)
            if wanted is not None:
                if held is not None and wanted.lane is not held.lane:
                    return None
                if held is not None and wanted.topic_id is not held.topic_id and wanted.topic_id != held.topic_id:
                    return None
                self.held[tp] = wanted
                if held is None or wanted[2:] != held[2:]:
                    partitions[tp] = wanted
            elif held is not None:
                forgotten[tp] = held.topic_id
        return SessionRequest(self._session_id, self._epoch, partitions, forgotten, has_ids)

    def answered(self, error_code: int, session_id: int, named: Collection[TopicPartition]) -> bool:
        """Note what the answer says about the session, and which partitions it names. Returns whether it is open
        (FetchSessionHandler.handleResponse).
        """
        epoch, self._epoch = self._epoch, OPENING
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or (session_id == NO_SESSION and not error_code):
            self._session_id = NO_SESSION  # the session was evicted, or the broker gives none or is older than sessions
        elif not error_code:  # after another error, a full request with the id closes the broker's session
            self._session_id = session_id
            if all(map(self.held.__contains__, named)) and (epoch != OPENING or len(named) == len(self.held)):
                self._epoch = epoch_after(epoch)
        return self._epoch != OPENING

    def lost(self) -> None:
        """No answer came, so it is not known whether the broker got the request."""
        self._epoch = OPENING

    def end(self) -> SessionRequest | None:
        """The last request, which closes the session; `None` if no session id is known."""
        if self._session_id == NO_SESSION:
            return None
        last = SessionRequest(self._session_id, NEVER, {}, {}, self._has_ids)
        self._session_id, self._epoch = NO_SESSION, OPENING
        return last

    @property
    def is_open(self) -> bool:
        """Whether the next request names the differences only."""
        return self._epoch != OPENING


def request_for(begun: SessionRequest, config: ConsumerConfig, *, max_bytes: int, max_wait_ms: int) -> FetchRequest:
    """The Fetch request to send."""
    if len(begun.partitions) == 1:  # at the head, where records come one by one
        ((tp, asked),) = begun.partitions.items()
        topics: tuple[FetchTopic, ...] = (_make_topic(tp.topic, asked.topic_id, (_partition(tp, asked),)),)
    else:
        topics = _topics(begun.partitions)
    request: FetchRequest = _make_request(
        None, -1, NO_REPLICA, max_wait_ms, config.fetch_min_bytes, max_bytes, int(config.read_committed),
        begun.session_id, begun.session_epoch, topics,
        _forgotten(begun.forgotten) if begun.forgotten else (), config.client_rack or "",
    )  # fmt: skip
    return request


def _topics(partitions: dict[TopicPartition, Asked]) -> tuple[FetchTopic, ...]:
    """Only neighbours are grouped: the broker fills its answer in this order (FetchRequest.forConsumer)."""
    grouped = groupby(partitions.items(), key=lambda each: (each[0].topic, each[1].topic_id))
    return tuple(
        FetchTopic(topic, topic_id, tuple(_partition(tp, asked) for tp, asked in group))
        for (topic, topic_id), group in grouped
    )


def _partition(tp: TopicPartition, asked: Asked) -> FetchPartition:
    partition: FetchPartition = _make_partition(
        tp.partition, asked.leader_epoch, asked.fetch_offset, -1, -1, asked.max_bytes, ZERO_UUID, NO_HIGH_WATERMARK
    )
    return partition


def _forgotten(partitions: dict[TopicPartition, UUID]) -> tuple[ForgottenTopic, ...]:
    grouped = groupby(sorted(partitions.items()), key=lambda each: (each[0].topic, each[1]))
    return tuple(
        ForgottenTopic(topic, topic_id, tuple(tp.partition for tp, _ in group)) for (topic, topic_id), group in grouped
    )
