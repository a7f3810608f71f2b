"""Which node may serve a partition's log, and in which epoch."""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.logs.topics import Partition

__all__ = ["ISOLATION_LEVELS", "Address", "Nodes", "preferred_replica", "why_not"]


class Address(Protocol):
    """Where a node is reached."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def rack(self) -> str | None: ...


ISOLATION_LEVELS = (0, 1)
"""In Kafka a request with another level fails with an exception that has no error code."""


class Nodes(Protocol):
    """The questions of readers about nodes."""

    def get(self, node_id: int) -> Address | None: ...

    def is_up(self, node_id: int) -> bool: ...


def why_not(partition: Partition | None, node_id: int, leader_epoch: int, *, only_leader: bool) -> ErrorCode:
    """Why a node does not serve a partition, or NONE, checked in Kafka's order (ReplicaManager
    .getPartitionOrException, then Partition.getLocalLog).

    Args:
        partition: the partition, `None` if there is none.
        node_id: the node that was asked.
        leader_epoch: the epoch that the client knows; -1: it does not say.
        only_leader: other replicas do not serve it. Since version 11 of Fetch they do (KIP-392).
    """
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if leader_epoch not in (-1, partition.leader_epoch):
        is_old = leader_epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    if only_leader and partition.leader != node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def preferred_replica(partition: Partition, node_id: int, rack: str, nodes: Nodes) -> int:
    """The replica in the reader's rack, if the node that was asked leads and is in another rack; else -1.

    This is ReplicaManager.findPreferredReadReplica with RackAwareReplicaSelector. All replicas hold the same records
    here, so among several in one rack the one with the greatest id is taken.
    """
    if not rack or partition.leader != node_id:
        return -1
    found = -1
    for replica in partition.replicas:
        node = nodes.get(replica)
        if node is not None and node.rack == rack and nodes.is_up(replica):
            if replica == node_id:
                return -1
            found = max(found, replica)
    return found
