"""Where error codes can be asked for: for each API, what the codes in its answer are about."""

from __future__ import annotations

from typing import NamedTuple

from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.refusals import BrokerRefusal

__all__ = ["look_at_site"]


class Site(NamedTuple):
    """What an API's codes are about, and whether the API does anything that an answer could deny."""

    named: frozenset[str]
    has_effect: bool = True


_PARTITIONS = frozenset({"topic", "partition"})
_MEMBERS = frozenset({"group", "member"})
_GROUPS = frozenset({"group"})
_TOPICS = frozenset({"topic"})
_NOTHING = frozenset[str]()
_SITES = {
    "Produce": Site(_PARTITIONS),
    "Fetch": Site(_PARTITIONS),
    "ListOffsets": Site(_PARTITIONS),
    "OffsetForLeaderEpoch": Site(_PARTITIONS),
    "DeleteRecords": Site(_PARTITIONS),
    "DescribeProducers": Site(_PARTITIONS),
    "Metadata": Site(_PARTITIONS),
    "OffsetCommit": Site(_PARTITIONS | _MEMBERS),
    "OffsetFetch": Site(_PARTITIONS | _MEMBERS),
    "JoinGroup": Site(_MEMBERS),
    "SyncGroup": Site(_MEMBERS),
    "Heartbeat": Site(_MEMBERS),
    "LeaveGroup": Site(_MEMBERS),
    "FindCoordinator": Site(_GROUPS, has_effect=False),
    "DescribeGroups": Site(_GROUPS, has_effect=False),
    "ListGroups": Site(_NOTHING, has_effect=False),
    "ApiVersions": Site(_NOTHING, has_effect=False),
    "DescribeLogDirs": Site(_NOTHING),
    "InitProducerId": Site(_NOTHING),
    "CreateTopics": Site(_TOPICS),
    "DeleteTopics": Site(_TOPICS),
    "CreatePartitions": Site(_TOPICS),
    "AlterConfigs": Site(_TOPICS),
    "IncrementalAlterConfigs": Site(_TOPICS),
    "DescribeConfigs": Site(_TOPICS, has_effect=False),
    "ListConfigResources": Site(_NOTHING, has_effect=False),
    "DescribeCluster": Site(_NOTHING, has_effect=False),
    "DescribeTopicPartitions": Site(_TOPICS, has_effect=False),
    "ListPartitionReassignments": Site(_NOTHING, has_effect=False),
    "ElectLeaders": Site(_PARTITIONS),
    "DeleteGroups": Site(_GROUPS),
    "OffsetDelete": Site(_PARTITIONS | _GROUPS),
    "AddPartitionsToTxn": Site(_PARTITIONS),
    "AddOffsetsToTxn": Site(_GROUPS),
    "TxnOffsetCommit": Site(_PARTITIONS | _MEMBERS),
    "EndTxn": Site(_NOTHING),
    "DescribeTransactions": Site(_NOTHING, has_effect=False),
    "ListTransactions": Site(_NOTHING, has_effect=False),
}
"""Every API that the embedded broker serves."""


def look_at_site(api: str, place: Place, *, after: bool) -> None:
    """Refuse a fault that could never match: a Heartbeat has no topic, and a Fetch has no group.

    Raises:
        BrokerRefusal: the message says what the API's codes are about.
    """
    site = _SITES[api]
    given = [name for name in ("topic", "partition", "group", "member") if getattr(place, name) is not None]
    if wrong := [name for name in given if name not in site.named]:
        about = f"its codes are about {' and '.join(sorted(site.named))}" if site.named else "it names nothing of these"
        raise BrokerRefusal(f"{api} has no {' or '.join(wrong)}: {about}; `when` can look at anything in a request")
    if after and not site.has_effect:
        raise BrokerRefusal(f"{api} changes nothing that its answer could deny: leave `after` out")
