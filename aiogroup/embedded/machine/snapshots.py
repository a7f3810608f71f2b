"""Saves and restores the state that outlives a cluster's processes: topics, logs, what groups have stored, and what
administrators have set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.groups.log import GroupLog
from aiogroup.embedded.machine.internal_topics import OFFSETS, TRANSACTIONS
from aiogroup.embedded.machine.logs.log import Budget
from aiogroup.embedded.machine.logs.topics import Partition, Topic
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.settings import ConfigSource
from aiogroup.embedded.machine.transactions.states import TransactionalId

if TYPE_CHECKING:
    from aiogroup.embedded.machine.cluster import Cluster

__all__ = ["Snapshot", "restore", "take"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The state that `Broker.snapshot` has saved. It never changes, and can be restored many times."""

    size_bytes: int
    """The size of all batches."""
    _topics: tuple[Topic, ...]
    _groups: tuple[tuple[str, GroupLog], ...]
    _transactional_ids: tuple[TransactionalId, ...]
    _settings: tuple[tuple[ConfigSource, dict[str, str]], ...]
    _form: tuple[str, int]
    """The kind of static membership, and the number of coordinator partitions."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._topics)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(group_id for group_id, _ in self._groups)


def take(cluster: Cluster) -> Snapshot:
    """Save the present state. Batches are shared, because they never change.

    Raises:
        BrokerRefusal: a transaction is under way.
    """
    budget = Budget(cluster.budget.max_bytes)
    transactional_ids = cluster.transactions.kept()
    for topic in cluster.topics:
        for each in topic.partitions:
            if each.log.last_stable_offset < each.log.end_offset:
                raise BrokerRefusal(f"a transaction is under way in {topic.name}-{each.index}: wait for its end")
    # Kafka's own topics are created again with the next search for a coordinator.
    topics = tuple(_copied(topic, budget) for topic in cluster.topics if topic.name not in (OFFSETS, TRANSACTIONS))
    groups = tuple((group_id, log.copy()) for seat in cluster.coordinators for group_id, log in seat.log.items())
    settings = tuple((source, dict(texts)) for source, texts in cluster.settings.changed.items())
    return Snapshot(budget.used_bytes, topics, groups, transactional_ids, settings, _form_of(cluster))


def restore(cluster: Cluster, snapshot: Snapshot, now_ms: int) -> None:
    """Replace all topics and groups by the saved ones. Every connection breaks, as when brokers are restarted.

    Raises:
        BrokerRefusal: the snapshot is of a cluster with other nodes or another form of static membership, or does not
            fit into `max_bytes`. Nothing has changed then.
    """
    if snapshot.size_bytes > cluster.budget.max_bytes:
        raise BrokerRefusal(f"the snapshot has {snapshot.size_bytes} bytes, more than max_bytes")
    for node_id in _nodes_of(snapshot):
        if cluster.nodes.get(node_id) is None:
            raise BrokerRefusal(f"the snapshot needs a node {node_id}: make the broker with nodes={node_id} or more")
    (form, partitions_count), own = snapshot._form, _form_of(cluster)
    if form != own[0]:
        raise BrokerRefusal(
            f"the snapshot is of a broker with static_membership={form!r}, and this one has {own[0]!r}: "
            "each keeps names in another place"
        )
    if form == "draft" and partitions_count != own[1]:
        raise BrokerRefusal(
            f"the snapshot has its names in {partitions_count} partitions: make the broker with "
            f'properties={{"offsets.topic.num.partitions": "{partitions_count}"}}'
        )
    cluster.disconnect(None)
    for node in cluster.nodes:
        cluster.fetching.forget(node.node_id)
    for source, texts in snapshot._settings:
        cluster.settings.change(source, texts)
    for topic in list(cluster.topics):
        cluster.topics.delete(topic, now_ms)
    for topic in snapshot._topics:
        copied = _copied(topic, cluster.budget)
        cluster.topics.put(copied)
        for each in copied.partitions:
            if not cluster.nodes.is_up(each.leader):
                each.elect(next(iter(cluster.nodes.live(each.replicas)), -1), now_ms)
    cluster.transactions.put_back(snapshot._transactional_ids)
    cluster.coordinators.replace_logs({group_id: log.copy() for group_id, log in snapshot._groups}, now_ms)


def _form_of(cluster: Cluster) -> tuple[str, int]:
    return cluster.static_membership, cluster.settings.coordinator_partitions


def _nodes_of(snapshot: Snapshot) -> Iterator[int]:
    for topic in snapshot._topics:
        for partition in topic.partitions:
            yield from partition.replicas


def _copied(topic: Topic, budget: Budget) -> Topic:
    copied = Topic(topic.name, topic.topic_id, dict(topic.config), is_internal=topic.is_internal, place=topic.place)
    copied.partitions += (
        Partition(copied, each.index, each.leader, each.replicas, each.log.copy(budget), each.leader_epoch)
        for each in topic.partitions
    )
    return copied
