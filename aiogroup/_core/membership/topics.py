"""What the application must learn of its topics: that one may not be read, or does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from aiogroup._core.cluster import Cluster
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.values import dataclass
from aiogroup.errors import AiogroupError, InvalidTopicError, TopicAuthorizationError

__all__ = ["TopicNews", "Topics"]

REFUSED_TOPIC: Final[Mapping[int, Callable[[str], AiogroupError]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: lambda topic: TopicAuthorizationError([topic]),
    ErrorCode.INVALID_TOPIC_EXCEPTION: lambda topic: InvalidTopicError(f"the broker refuses the topic name {topic!r}"),
}
MISSING_MS: Final = 2_000
"""A topic is called missing after this time: not every broker knows a new one at once. It is looked up every second."""
REFUSED_AGAIN_MS: Final = 5_000
"""The error of a refused topic is raised again after this time, so that nobody waits in silence for its records."""


@dataclass(frozen=True, slots=True)
class TopicNews:
    """News for the application: errors of topics that may not be read, names and error codes of topics that are missing
    or that it has just heard to be refused.
    """

    refused: tuple[AiogroupError, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


class Topics:
    """Gives each piece of news once, until it changes; that a topic is refused again and again."""

    def __init__(self) -> None:
        self._refused: dict[str, int] = {}
        self._refused_at_ms: dict[str, int] = {}  # when that was told last
        self._missing_since_ms: dict[str, int] = {}
        self._missing_long: Set[str] = frozenset()

    def news_in(self, topics: frozenset[str], cluster: Cluster, now_ms: int) -> TopicNews:
        """The news in this cluster's metadata; to be called after each refresh."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        doubtful = {name for name in topics if name in cluster.errors or cluster.lacks(name)}
        errors = {name: cluster.errors.get(name, unknown) for name in doubtful}
        refused = {name: code for name, code in errors.items() if code in REFUSED_TOPIC}
        newly = tuple((name, lookup(code).name) for name, code in refused.items() if self._refused.get(name) != code)
        missing = self._look_at_missing({name: errors[name] for name in errors.keys() - refused.keys()}, now_ms)
        return TopicNews(self._look_at_refused(refused, now_ms), (*newly, *missing))

    def forbidden(self) -> Set[str]:
        """Topics that brokers do not even describe to us."""
        return {name for name, code in self._refused.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    def missing(self, cluster: Cluster) -> Set[str]:
        """Topics that were looked for and not found, and that no other answer has brought meanwhile."""
        return self._missing_since_ms.keys() - cluster.topics.keys()

    def gone(self, cluster: Cluster) -> Set[str]:
        """Topics that have been missing for `MISSING_MS`, and not only because one broker lags behind the others."""
        return {name for name in self._missing_long if cluster.lacks(name)}

    def _look_at_refused(self, refused: dict[str, int], now_ms: int) -> tuple[AiogroupError, ...]:
        before, told_at_ms = self._refused, self._refused_at_ms
        due = [
            name
            for name, code in refused.items()
            if before.get(name) != code or now_ms - told_at_ms[name] >= REFUSED_AGAIN_MS
        ]
        self._refused = refused
        self._refused_at_ms = {name: now_ms if name in due else told_at_ms[name] for name in refused}
        return tuple(REFUSED_TOPIC[refused[name]](name) for name in due)

    def _look_at_missing(self, missing: Mapping[str, int], now_ms: int) -> tuple[tuple[str, str], ...]:
        self._missing_since_ms = {name: self._missing_since_ms.get(name, now_ms) for name in missing}
        late = {name for name, since_ms in self._missing_since_ms.items() if now_ms - since_ms >= MISSING_MS}
        before, self._missing_long = self._missing_long, late
        return tuple((name, lookup(missing[name]).name) for name in sorted(late - before))
