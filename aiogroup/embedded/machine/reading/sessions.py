"""Fetch sessions of one node (KIP-227): what a session asks for, its last answer, and who makes room for whom.

This is Kafka's FetchSession.scala with one difference: Kafka divides its slots among eight shards of the cache, so that
with fewer than eight slots there is no session at all. Here all sessions of a node share all slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar
from uuid import UUID

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import FETCH_BY_ID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest

__all__ = ["Plan", "Session", "Sessions", "Told", "Wanted"]

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 0x7FFF_FFFF

Key = tuple[UUID | str, int]
"""A partition in a session: by topic id since version 13, by name before."""


class Wanted:
    """One partition that a reader asks for. A session keeps it from request to request."""

    __slots__ = ("ask", "high_watermark", "index", "log_start_offset", "topic", "topic_id")

    def __init__(self, topic: str | None, topic_id: UUID, ask: FetchPartition) -> None:
        self.topic = topic
        """The topic's name. `None`: no topic has this id; the session looks for it again with each request."""
        self.topic_id = topic_id
        self.index = ask.partition
        self.ask = ask
        # The values in the last answer.
        self.high_watermark = -1
        self.log_start_offset = -1

    @property
    def key(self) -> Key:
        return (self.topic or "" if self.topic_id == ZERO_UUID else self.topic_id), self.index

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it may be about the topic with this id. Before version 13 requests have no ids, so every topic of the
        name fits.
        """
        return self.topic_id in (ZERO_UUID, topic_id)


class Told(Protocol):
    """The values for a partition in an answer."""

    wanted: Wanted
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    size_bytes: int
    """The size of its records."""
    is_always_news: bool
    """Whether it has a preferred replica or a divergence, which are always sent."""


T = TypeVar("T", bound=Told)


class Session:
    """One reader's session. Its partitions are in the order in which they are read."""

    __slots__ = (
        "created_at_ms",
        "epoch",
        "is_evictable",
        "is_privileged",
        "partitions",
        "session_id",
        "size_count",
        "used_at_ms",
        "uses_ids",
    )

    def __init__(self, session_id: int, *, is_privileged: bool, uses_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.uses_ids = uses_ids
        self.created_at_ms = self.used_at_ms = now_ms
        self.epoch = 1
        self.partitions: dict[Key, Wanted] = {}
        self.size_count = 0
        """The partition count at the last use. Smaller sessions are evicted first."""
        self.is_evictable = False
        """Whether it was old enough at its last use to make room for a larger session."""

    def update(self, named: dict[Key, Wanted], forgotten: Iterable[Key]) -> None:
        """Add and change the partitions that a request names. Partitions that it forgets are removed, even if it names
        them too.
        """
        partitions = self.partitions
        for key, wanted in named.items():
            known = partitions.setdefault(key, wanted)
            known.ask = wanted.ask
        for key in forgotten:
            partitions.pop(key, None)


class Plan:
    """What one request reads and its answer holds. This class is for a fetch outside of any session."""

    def __init__(self, wanted: Iterable[Wanted], error: ErrorCode = ErrorCode.NONE) -> None:
        self.wanted = tuple(wanted)
        self.error = error

    def settle(self, reads: list[T], _now_ms: int) -> tuple[ErrorCode, int, list[T]]:
        """The error and the id of the session to answer with, and which partitions the answer holds."""
        return self.error, NO_SESSION, reads


class _FullPlan(Plan):
    """A request that names all its partitions, and begins a session with the partitions of its answer."""

    def __init__(self, wanted: Iterable[Wanted], begin: Callable[[list[Any], int], int]) -> None:
        super().__init__(wanted)
        self._begin = begin

    def settle(self, reads: list[T], now_ms: int) -> tuple[ErrorCode, int, list[T]]:
        return ErrorCode.NONE, self._begin(reads, now_ms), reads


class _IncrementalPlan(Plan):
    """A request within a session: the answer leaves out partitions without news."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.partitions.values())
        self._session = session
        self._epoch = session.epoch

    def settle(self, reads: list[T], _now_ms: int) -> tuple[ErrorCode, int, list[T]]:
        session = self._session
        if session.epoch != self._epoch:
            # Another request of the session came while this one waited.
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, []
        partitions = session.partitions
        news = []
        for each in reads:
            wanted = each.wanted
            if (
                each.size_bytes
                or wanted.high_watermark != each.high_watermark
                or wanted.log_start_offset != each.log_start_offset
                or each.error
                or each.is_always_news
            ):
                news.append(each)
                # After an error the kept value is -1: when the error is gone, the partition counts as news.
                wanted.high_watermark = -1 if each.error else each.high_watermark
                wanted.log_start_offset = each.log_start_offset
                if each.size_bytes:
                    # Partitions whose records were sent are read last next time, so that no partition starves.
                    key = wanted.key
                    partitions[key] = partitions.pop(key)
        return ErrorCode.NONE, session.session_id, news


class Sessions:
    """The sessions of one node.

    Args:
        new_id: draws their ids.
        slots_count: the greatest number of sessions; 0: none.
        age_ms: a session that was not used for longer makes room for any other.
        name_of: a topic's name by its id, `None` if there is none.
    """

    def __init__(
        self, new_id: Callable[[], int], slots_count: int, age_ms: int, name_of: Callable[[UUID], str | None]
    ) -> None:
        self._new_id = new_id
        self._slots_count = slots_count
        self._age_ms = age_ms
        self._name_of = name_of
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def plan(self, request: FetchRequest, version: int, now_ms: int, *, is_follower: bool = False) -> Plan:
        """The plan for a request, as in FetchManager.newContext.

        Args:
            request: the request.
            version: its version; topics are named by id since version 13.
            now_ms: the instant.
            is_follower: whether its session is privileged. The machine serves no followers; the rule is Kafka's.
        """
        by_id = version >= FETCH_BY_ID
        named = self._named(request, by_id=by_id)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return Plan(named.values())
            return _FullPlan(
                named.values(), lambda reads, at_ms: self._begin(reads, at_ms, is_privileged=is_follower, by_id=by_id)
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return Plan((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return Plan((), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids is not by_id:
            return Plan((), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(named, _forgotten(request, by_id=by_id))
        if not session.partitions:
            del self._sessions[session.session_id]
            return Plan(named.values())
        self._touch(session, now_ms)
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        if by_id:
            for wanted in session.partitions.values():
                if wanted.topic is None:
                    wanted.topic = self._name_of(wanted.topic_id)
        return _IncrementalPlan(session)

    def _named(self, request: FetchRequest, *, by_id: bool) -> dict[Key, Wanted]:
        """The partitions that a request names. If it names one twice, the first gives the place, and the last gives the
        rest.
        """
        named: dict[Key, Wanted] = {}
        for topic in request.topics:
            name = self._name_of(topic.topic_id) if by_id else topic.topic
            topic_id = topic.topic_id if by_id else ZERO_UUID
            first: UUID | str = topic_id if by_id else topic.topic
            for ask in topic.partitions:
                named[first, ask.partition] = Wanted(name, topic_id, ask)
        return named

    def _begin(self, reads: list[T], now_ms: int, *, is_privileged: bool, by_id: bool) -> int:
        """The id of a new session, or 0 if there is no room for one (FetchSessionCacheShard.maybeCreateSession)."""
        if len(self._sessions) >= self._slots_count and not self._make_room((is_privileged, len(reads), 0), now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, is_privileged=is_privileged, uses_ids=by_id, now_ms=now_ms)
        for each in reads:
            wanted = each.wanted
            wanted.high_watermark, wanted.log_start_offset = each.high_watermark, each.log_start_offset
            session.partitions[wanted.key] = wanted
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _make_room(self, newcomer: tuple[bool, int, int], now_ms: int) -> bool:
        """Evict a session (FetchSessionCacheShard.tryEvict): one that was not used for long; otherwise the
        lowest-ranking one that the newcomer may evict, if the newcomer outranks it. Returns whether a session was
        evicted.
        """
        if not self._sessions:
            return False
        stalest = min(self._sessions.values(), key=lambda each: (each.used_at_ms, each.session_id))
        if now_ms - stalest.used_at_ms > self._age_ms:
            del self._sessions[stalest.session_id]
            return True
        is_privileged = newcomer[0]
        ranks = [
            (each.is_privileged, each.size_count, each.session_id)
            for each in self._sessions.values()
            if each.is_evictable or (is_privileged and not each.is_privileged)
        ]
        if not ranks or newcomer < min(ranks):
            return False
        del self._sessions[min(ranks)[2]]
        return True

    def _touch(self, session: Session, now_ms: int) -> None:
        session.used_at_ms = now_ms
        session.size_count = len(session.partitions)
        session.is_evictable = now_ms - session.created_at_ms > self._age_ms


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterable[Key]:
    for topic in request.forgotten_topics_data:
        first: UUID | str = topic.topic_id if by_id else topic.topic
        for index in topic.partitions:
            yield first, index
