"""The application's subscription: topics, a pattern, or partitions that it assigns to itself; one of the three."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from aiogroup._core.cluster import Cluster
from aiogroup.config import check_topic_name
from aiogroup.errors import ConfigError, IllegalStateError
from aiogroup.listener import check_listener
from aiogroup.structs import TopicPartition

__all__ = ["Subscription", "check_partition", "check_partitions"]


def check_partition(tp: object, call: str) -> TopicPartition:
    """Return the argument of `call` if it is a partition.

    Raises:
        TypeError, ValueError, InvalidTopicError: it is not.
    """
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"{call}: a TopicPartition(topic, number) is needed, not {tp!r}")
    check_topic_name(tp.topic)
    if not isinstance(tp.partition, int) or isinstance(tp.partition, bool) or tp.partition < 0:
        raise ValueError(f"{call}: {tp}: a partition is a number from 0 on")
    return tp


def check_partitions(given: object, call: str) -> list[TopicPartition]:
    """Return the argument of `call` if it is a list of partitions.

    A single TopicPartition and a text can be iterated too, but neither is meant as a list.

    Raises:
        TypeError, ValueError, InvalidTopicError: it is not a list of partitions.
    """
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise TypeError(f"{call}: a list of TopicPartition(topic, number) is needed, not {given!r}")
    return [check_partition(tp, call) for tp in given]


@dataclass(slots=True, eq=False, repr=False)
class Subscription:
    """What the application has subscribed to, or assigned itself."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    listener: object = None
    matched: frozenset[str] = field(default=frozenset(), init=False)
    _is_looked_through: bool = field(default=False, init=False)  # all topics were compared with this pattern

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
        """The subscribed topics: the given ones, or those that match the pattern now."""
        return self.matched if self.pattern is not None else self.topics

    def wanted(self) -> frozenset[str] | re.Pattern[str]:
        """The topics, or the pattern, that the metadata must cover."""
        if self.pattern is not None:
            return self.pattern
        return self.topics or frozenset(tp.topic for tp in self.assigned)

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listener: object) -> bool:
        """Read topics, or every topic that a pattern matches from its beginning (`re.match`).

        Returns:
            Whether this is another subscription than before, or the same with another listener.

        Raises:
            IllegalStateError: partitions were assigned with assign().
            ConfigError, InvalidTopicError, TypeError: the topics, the pattern or the listener is not valid.
        """
        if self.is_manual:
            raise IllegalStateError("partitions were assigned with assign(): unsubscribe() before subscribe()")
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
        if (names, compiled) == (self.topics, self.pattern) and listener is self.listener:
            return False
        self.topics, self.pattern, self.listener, self.matched = names, compiled, listener, frozenset()
        self._is_looked_through = False
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group that assigns them.

        Raises:
            IllegalStateError: topics are subscribed.
            TypeError, ValueError, InvalidTopicError: it is not a list of partitions.
        """
        if self.is_by_topic:
            raise IllegalStateError("topics are subscribed: unsubscribe() before assign()")
        self.assigned = frozenset(check_partitions(partitions, "assign"))

    def clear(self) -> None:
        self.topics, self.pattern, self.assigned, self.matched = frozenset(), None, frozenset(), frozenset()
        self._is_looked_through = False

    def match(self, cluster: Cluster, *, exclude_internal: bool, keep: frozenset[str] = frozenset()) -> None:
        """Find the topics that match the pattern.

        Former matches in `keep` stay even if the cluster does not name them.
        """
        if self.pattern is not None:
            self.matched = (keep & self.matched) - cluster.topics.keys() | frozenset(
                name
                for name, info in cluster.topics.items()
                if self.pattern.match(name) and not (info.is_internal and exclude_internal)
            )

    def match_again(self, cluster: Cluster, *, exclude_internal: bool, gone: Set[str]) -> frozenset[str]:
        """Match the pattern after a refresh of the metadata. Topics that matched stay unless they are `gone`.

        Returns:
            The topics that match now and did not when all topics were last compared with this pattern.
        """
        before, was_looked_through = self.names(), self._is_looked_through
        self.match(cluster, exclude_internal=exclude_internal, keep=before - gone)
        if cluster.is_of_all:
            self._is_looked_through = True
        return self.names() - before if was_looked_through else frozenset()
