"""What a simulated broker remembers of its readers' fetches: sessions, as in FetchSession.scala, in a small cache."""

from __future__ import annotations

from aiogroup.protocol.errors import ErrorCode as E
from aiogroup.protocol.messages.fetch import FetchableTopicResponse, FetchResponse

SLOTS = 2
STALE_S = 1.0
"""A session that was not used for so long makes room for another; in Kafka two minutes."""


class Session:
    def __init__(self, session_id):
        self.session_id = session_id
        self.epoch = 1
        self.partitions = {}  # by (topic id, number): what was asked; order is whose turn it is
        self.ends = {}  # what was last told of each
        self.used_at = 0.0


class Sessions:
    """Of one broker."""

    def __init__(self):
        self._sessions = {}
        self._ids_count = 0

    def begin(self, request, now):
        """The fetch that this request is: what to read, and how to answer."""
        named = {(topic.topic_id, each.partition): each for topic in request.topics for each in topic.partitions}
        if request.session_epoch in (0, -1):
            self._sessions.pop(request.session_id, None)
            session = self._opened(now) if request.session_epoch == 0 else None
            if session is not None:
                session.partitions |= named
            return Fetch(E.NONE, named, session, is_full=True)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Fetch(E.FETCH_SESSION_ID_NOT_FOUND, {}, None)
        if session.epoch != request.session_epoch:
            return Fetch(E.INVALID_FETCH_SESSION_EPOCH, {}, None)
        session.epoch, session.used_at = session.epoch + 1, now
        session.partitions |= named
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop((topic.topic_id, number), None)
                session.ends.pop((topic.topic_id, number), None)
        if not session.partitions:
            del self._sessions[session.session_id]
            return Fetch(E.NONE, named, None, is_full=True)
        return Fetch(E.NONE, session.partitions, session)

    def _opened(self, now):
        if len(self._sessions) >= SLOTS:
            oldest = min(self._sessions.values(), key=lambda each: each.used_at)
            if now - oldest.used_at < STALE_S:
                return None
            del self._sessions[oldest.session_id]
        self._ids_count += 1
        session = self._sessions[self._ids_count] = Session(self._ids_count)
        session.used_at = now
        return session


class Fetch:
    """One request, from its arrival to its answer. `partitions` are what to read, by (topic id, number)."""

    def __init__(self, error_code, partitions, session, *, is_full=False):
        self.error_code = error_code
        self.partitions = partitions
        self._session = session
        self._is_full = is_full

    def answer(self, read, names):
        """`read` holds each partition's data; in a session those without news are left out."""
        session = self._session
        topics = []
        for (topic_id, number), data in read.items():
            key = (topic_id, number)
            if session is not None:
                is_news = data.records or data.error_code or session.ends.get(key) != data.high_watermark
                session.ends[key] = -1 if data.error_code else data.high_watermark
                if data.records and key in session.partitions:
                    session.partitions[key] = session.partitions.pop(key)
                if not is_news and not self._is_full:
                    continue
            topics.append(FetchableTopicResponse(names.get(topic_id, ""), topic_id, (data,)))
        session_id = 0 if session is None else session.session_id
        return FetchResponse(error_code=self.error_code, session_id=session_id, responses=tuple(topics))
