"""Topics and partitions: ids, leaders, epochs, configuration, and the requests that wait at a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from aiogroup.embedded.machine.logs.log import Log

__all__ = ["Partition", "Topic", "Topics", "Waiter", "refusal_of_name"]

MAX_NAME_CHARS = 249
NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def refusal_of_name(name: str, topics: Topics | None = None) -> str | None:
    """Why no topic may have this name (INVALID_TOPIC_EXCEPTION); `None`: the name is legal, though it may be in use.

    This is Kafka's Topic.validate. With `topics` it includes the check that `a.b` and `a_b` do not both exist.
    """
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_CHARS:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_CHARS}"
    if not NAME_CHARS.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    if topics is not None and (other := topics.colliding(name)) is not None:
        return f"Topic '{name}' collides with existing topic: {other}"
    return None


class Waiter(Protocol):
    """A request that waits for records of a partition."""

    def on_append(self, partition: Partition, size_bytes: int, now_ms: int) -> None:
        """Records were appended, or became readable."""

    def on_change(self, partition: Partition, now_ms: int) -> None:
        """The leader changed, the log was truncated, or the topic is gone."""


@dataclass(slots=True, eq=False)
class Partition:
    """One partition. All its replicas share one log: a replica is a number in Metadata."""

    topic: Topic
    index: int
    leader: int
    """The leader's node id; -1 if there is none."""
    replicas: tuple[int, ...]
    log: Log
    leader_epoch: int = 0
    waiters: dict[int, Waiter] = field(default_factory=dict)
    """The waiting requests by number, in the order in which they came."""

    def elect(self, leader: int, now_ms: int) -> None:
        """Start a new epoch with another leader, or with the same one again; -1: no leader. Kafka's controller counts
        an epoch for that too (PartitionRegistration.merge), but nobody writes in it.
        """
        self.leader = leader
        self.leader_epoch += 1
        if leader >= 0:
            self.log.begin_epoch(self.leader_epoch)
        self.changed(now_ms)

    def appended(self, size_bytes: int, now_ms: int) -> None:
        """Tell the waiters. The caller has appended to the log."""
        for waiter in list(self.waiters.values()):
            waiter.on_append(self, size_bytes, now_ms)

    def changed(self, now_ms: int) -> None:
        """Tell the waiters that the leader changed, the log was truncated, or the topic is gone."""
        for waiter in list(self.waiters.values()):
            waiter.on_change(self, now_ms)


@dataclass(slots=True, eq=False)
class Topic:
    """One topic. A topic of the same name that is made later has another `topic_id`."""

    name: str
    topic_id: UUID
    config: dict[str, str] = field(default_factory=dict)
    """What was set for this topic, by Kafka's names; see `settings.py` for the defaults."""
    partitions: list[Partition] = field(default_factory=list)
    is_internal: bool = False
    place: int = 0
    """The place of its first partition's leader among the nodes. Topics start at the nodes in turn, so that no node
    leads all of them. Kafka starts at random (StripedReplicaPlacer).
    """


class Topics:
    """All topics of a cluster, by name and by id.

    Args:
        new_id: makes topic ids.
        make_log: makes the log of a new partition.
        replicas_of: the replicas of a new partition; the first is its leader. `replicas_of(index, factor)`.
    """

    def __init__(
        self,
        new_id: Callable[[], UUID],
        make_log: Callable[[], Log],
        replicas_of: Callable[[int, int], tuple[int, ...]],
    ) -> None:
        self.new_id = new_id
        self._make_log = make_log
        self._replicas_of = replicas_of
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._colliding: dict[str, str] = {}
        """Names with a dot or an underscore, by their form with only underscores."""
        self.on_deleted: list[Callable[[Topic, int], None]] = []
        """Called as `(topic, now_ms)` after a topic was deleted; the coordinator forgets its offsets."""

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def colliding(self, name: str) -> str | None:
        """The existing topic whose metrics would have the same names. A topic collides with itself too."""
        if "." not in name and "_" not in name:
            return None
        return self._colliding.get(name.replace(".", "_"))

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def create(
        self,
        name: str,
        partitions_count: int,
        now_ms: int,
        *,
        replication_factor: int = 1,
        assignments: Sequence[tuple[int, ...]] | None = None,
        config: Mapping[str, str] | None = None,
        is_internal: bool = False,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Create a topic. The caller has checked that the name is legal and free.

        Args:
            name: its name.
            partitions_count: how many partitions it has.
            now_ms: now.
            replication_factor: how many replicas each has, placed by `replicas_of`.
            assignments: the replicas of each partition, in place of `replicas_of`.
            config: the topic's own settings.
            is_internal: whether clients cannot write to it.
            topic_id: its id; by default a new one.
        """
        place = sum(not each.is_internal for each in self)
        topic = Topic(name, topic_id or self.new_id(), dict(config or {}), is_internal=is_internal, place=place)
        self.put(topic)
        self.add_partitions(
            topic, partitions_count, now_ms, replication_factor=replication_factor, assignments=assignments
        )
        return topic

    def put(self, topic: Topic) -> None:
        """Add an existing topic, unchanged."""
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        if "." in topic.name or "_" in topic.name:
            self._colliding[topic.name.replace(".", "_")] = topic.name

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        _now_ms: int,
        *,
        replication_factor: int = 1,
        assignments: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        """Add `count` partitions to those that the topic has."""
        for number in range(count):
            index = len(topic.partitions)
            if assignments is None:
                replicas = self._replicas_of(topic.place + index, replication_factor)
            else:
                replicas = assignments[number]
            partition = Partition(topic, index, replicas[0], replicas, self._make_log())
            partition.log.begin_epoch(0)
            topic.partitions.append(partition)

    def delete(self, topic: Topic, now_ms: int) -> None:
        """Delete a topic with its records. Requests that wait at its partitions are woken."""
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        self._colliding.pop(topic.name.replace(".", "_"), None)
        for partition in topic.partitions:
            partition.changed(now_ms)
            partition.log.forget()
        for tell in self.on_deleted:
            tell(topic, now_ms)
