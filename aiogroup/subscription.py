"""What the application wants to read: topics, a pattern, or partitions it names itself. One of the three at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from aiogroup.cluster import Cluster
from aiogroup.config import check_topic_name
from aiogroup.errors import ConfigError, IllegalStateError
from aiogroup.listener import check_listener
from aiogroup.structs import TopicPartition

__all__ = ["Subscription", "check_partition", "check_partitions"]


def check_partition(tp: object, call: str) -> TopicPartition:
    """Return what was given to `call` when it names a partition.

    Raises:
        TypeError, ValueError, InvalidTopicError: it does not.
    """
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"{call}: a TopicPartition(topic, number) is needed, not {tp!r}")
    check_topic_name(tp.topic)
    if not isinstance(tp.partition, int) or isinstance(tp.partition, bool) or tp.partition < 0:
        raise ValueError(f"{call}: {tp}: a partition is a number from 0 on")
    return tp


def check_partitions(given: object, call: str) -> list[TopicPartition]:
    """The same for several. A TopicPartition alone is a tuple, and a text has letters: neither is meant as a list.

    Raises:
        TypeError, ValueError, InvalidTopicError: not partitions.
    """
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise TypeError(f"{call}: a list of TopicPartition(topic, number) is needed, not {given!r}")
    return [check_partition(tp, call) for tp in given]


@dataclass(slots=True)
class Subscription:
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    listener: object = None
    matched: frozenset[str] = field(default=frozenset(), init=False)
    _is_looked_through: bool = field(default=False, init=False)  # all topics were, for this pattern

    @property
    def is_manual(self) -> bool:
        return bool(self.assigned)

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.assigned or self.pattern is not None)

    @property
    def is_by_topic(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def names(self) -> frozenset[str]:
        """The topics meant now: the given ones, or those that match the pattern."""
        return self.matched if self.pattern is not None else self.topics

    def wanted(self) -> frozenset[str] | re.Pattern[str]:
        """What the metadata must cover."""
        if self.pattern is not None:
            return self.pattern
        return self.topics or frozenset(tp.topic for tp in self.assigned)

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listener: object) -> None:
        """Read topics, or every topic that a pattern matches from its beginning (`re.match`).

        Raises:
            IllegalStateError: partitions were assigned by hand.
            ConfigError, InvalidTopicError, TypeError: not topics, not a pattern, not a listener.
        """
        if self.is_manual:
            raise IllegalStateError("partitions were assigned by hand: unsubscribe() before subscribe()")
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics, not the text {topics!r}")
        names = frozenset(check_topic_name(topic) for topic in topics)
        if bool(names) == (pattern is not None):
            raise TypeError("subscribe takes topics or a pattern: one of the two")
        check_listener(listener)
        try:
            compiled = re.compile(pattern) if pattern is not None else None
        except re.error as error:
            raise ConfigError(f"pattern {pattern!r} is no regular expression: {error}") from error
        self.topics, self.pattern, self.listener, self.matched = names, compiled, listener, frozenset()
        self._is_looked_through = False

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group deciding.

        Raises:
            IllegalStateError: topics are subscribed.
            TypeError, ValueError, InvalidTopicError: not partitions.
        """
        if self.is_by_topic:
            raise IllegalStateError("topics are subscribed: unsubscribe() before assign()")
        self.assigned = frozenset(check_partitions(partitions, "assign"))

    def clear(self) -> None:
        self.topics, self.pattern, self.assigned, self.matched = frozenset(), None, frozenset(), frozenset()
        self._is_looked_through = False

    def match(self, cluster: Cluster, *, exclude_internal: bool, keep: frozenset[str] = frozenset()) -> None:
        """Look which topics of the cluster the pattern matches; those to `keep` may be missing from it."""
        if self.pattern is not None:
            self.matched = (keep & self.matched) - cluster.topics.keys() | frozenset(
                name
                for name, info in cluster.topics.items()
                if self.pattern.match(name) and not (info.is_internal and exclude_internal)
            )

    def match_anew(self, cluster: Cluster, *, exclude_internal: bool, gone: Set[str]) -> frozenset[str]:
        """The metadata was refreshed; topics that matched stay so unless they are `gone`.

        Returns: the topics that were made since all topics were last looked through for this pattern.
        """
        before, was_looked_through = self.names(), self._is_looked_through
        self.match(cluster, exclude_internal=exclude_internal, keep=before - gone)
        if cluster.is_of_all:
            self._is_looked_through = True
        return self.names() - before if was_looked_through else frozenset()
