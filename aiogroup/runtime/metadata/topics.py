"""What the brokers say of the topics that we are to read: that one may not be read, or is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from aiogroup.cluster import Cluster
from aiogroup.errors import AiogroupError, InvalidTopicError, TopicAuthorizationError
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.runtime.context import Context
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.telemetry import events

__all__ = ["Topics"]

REFUSED_TOPIC: Final[Mapping[int, Callable[[str], AiogroupError]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: lambda topic: TopicAuthorizationError([topic]),
    ErrorCode.INVALID_TOPIC_EXCEPTION: lambda topic: InvalidTopicError(f"the broker refuses the topic name {topic!r}"),
}
MISSING_TOLD_MS: Final = 2_000
"""A topic that was made a moment ago is not known to every broker yet. A missing one is looked for every second."""


class Topics:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._refused: dict[str, int] = {}
        self._missing_since_ms: dict[str, int] = {}
        self._told: Set[str] = frozenset()

    def look(self, topics: frozenset[str], cluster: Cluster) -> None:
        """After each refresh of the metadata: what became so is told, once until it changes."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        doubtful = {name for name in topics if name in cluster.errors or cluster.lacks(name)}
        errors = {name: cluster.errors.get(name, unknown) for name in doubtful}
        self._tell_refused({name: code for name, code in errors.items() if code in REFUSED_TOPIC})
        self._tell_missing({name: code for name, code in errors.items() if code not in REFUSED_TOPIC})

    @property
    def missing(self) -> Set[str]:
        """Topics that were looked for and not found, also not by whoever else asked meanwhile."""
        return self._missing_since_ms.keys() - self._context.link.cluster.topics.keys()

    @property
    def gone(self) -> Set[str]:
        """Topics that are not there, and that not only because one broker is behind the others."""
        return {name for name in self._told if self._context.link.cluster.lacks(name)}

    def _tell_refused(self, refused: dict[str, int]) -> None:
        for name, code in refused.items():
            if self._refused.get(name) != code:
                self._context.inbox.put(REFUSED_TOPIC[code](name))
        self._refused = refused

    def _tell_missing(self, missing: Mapping[str, int]) -> None:
        now = now_ms()
        self._missing_since_ms = {name: self._missing_since_ms.get(name, now) for name in missing}
        late = {name for name, since_ms in self._missing_since_ms.items() if now - since_ms >= MISSING_TOLD_MS}
        for name in sorted(late - self._told):
            self._context.tell(events.TopicMissing(name, lookup(missing[name]).name))
        self._told = late
