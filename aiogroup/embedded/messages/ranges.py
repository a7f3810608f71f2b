"""Which requests the broker offers, in which versions: those of Kafka 4.3.1's broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from aiogroup._core.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.list_groups import ListGroupsRequest
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.embedded.messages.cluster import (
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from aiogroup.embedded.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from aiogroup.embedded.messages.groups import DeleteGroupsRequest, OffsetDeleteRequest
from aiogroup.embedded.messages.produce import ProduceRequest
from aiogroup.embedded.messages.producer_ids import InitProducerIdRequest
from aiogroup.embedded.messages.records import DeleteRecordsRequest, DescribeProducersRequest
from aiogroup.embedded.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from aiogroup.embedded.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request

__all__ = ["LATER", "RANGES", "REFUSED_PRODUCE", "REQUESTS", "narrowed"]

REFUSED_PRODUCE = 2
"""The highest version of Produce that Kafka offers but does not serve. It offers Produce from version 0, because
librdkafka does not compress otherwise (ApiKeys, KAFKA-18659), and breaks the connection when a version up to this one
is used.
"""

RANGES: Mapping[type[Request[Any]], tuple[int, int]] = {
    ProduceRequest: (0, 13),
    FetchRequest: (4, 18),
    ListOffsetsRequest: (1, 11),
    MetadataRequest: (0, 13),
    OffsetCommitRequest: (2, 10),
    OffsetFetchRequest: (1, 10),
    FindCoordinatorRequest: (0, 6),
    # aiogroup's consumer begins at version 2; other clients do not.
    JoinGroupRequest: (0, 9),
    HeartbeatRequest: (0, 4),
    LeaveGroupRequest: (0, 5),
    SyncGroupRequest: (0, 5),
    DescribeGroupsRequest: (0, 6),
    ListGroupsRequest: (0, 5),
    ApiVersionsRequest: (0, 4),
    CreateTopicsRequest: (2, 7),
    DeleteTopicsRequest: (1, 6),
    DeleteRecordsRequest: (0, 2),
    InitProducerIdRequest: (0, 5),
    OffsetForLeaderEpochRequest: (2, 4),
    # Only the first protocol of transactions. Later versions belong to the second protocol (KIP-890).
    AddPartitionsToTxnRequest: (0, 3),
    AddOffsetsToTxnRequest: (0, 4),
    EndTxnRequest: (0, 4),
    TxnOffsetCommitRequest: (0, 4),
    DescribeConfigsRequest: (1, 4),
    AlterConfigsRequest: (0, 2),
    DescribeLogDirsRequest: (1, 5),
    CreatePartitionsRequest: (0, 3),
    DeleteGroupsRequest: (0, 2),
    ElectLeadersRequest: (0, 2),
    IncrementalAlterConfigsRequest: (0, 1),
    ListPartitionReassignmentsRequest: (0, 0),
    OffsetDeleteRequest: (0, 0),
    DescribeClusterRequest: (0, 2),
    DescribeProducersRequest: (0, 0),
    DescribeTransactionsRequest: (0, 0),
    # Version 2 filters by an expression of RE2, for which Python has no engine.
    ListTransactionsRequest: (0, 1),
    ListConfigResourcesRequest: (0, 1),
    DescribeTopicPartitionsRequest: (0, 0),
}
"""Lowest and highest version by request, in the order of the API keys, which is that of the ApiVersions answer."""

LATER: Mapping[type[Request[Any]], tuple[int, int]] = {
    ConsumerGroupHeartbeatRequest: (0, 1),
    ConsumerGroupDescribeRequest: (0, 1),
}
"""Requests without a handler yet. When one gets its handler, its line moves to `RANGES`."""

REQUESTS: Mapping[int, type[Request[Any]]] = {request.API_KEY: request for request in (*RANGES, *LATER)}
"""Every request that the broker knows, by its API key."""


WANTED = 'the lowest and the highest version by name, such as {"JoinGroup": (0, 3)}'


def narrowed(
    api_versions: Mapping[str, tuple[int, int]],
    ranges: Mapping[type[Request[Any]], tuple[int, int]] = RANGES,
) -> dict[type[Request[Any]], tuple[int, int]]:
    """The ranges of an older broker: `{"JoinGroup": (0, 3)}`. What is not named stays as it is.

    Raises:
        ValueError: there is no such request, or no such version of it.
    """
    by_name = {request.api_name(): request for request in ranges}
    found = dict(ranges)
    if not isinstance(api_versions, Mapping):
        raise ValueError(f"api_versions={api_versions!r}: {WANTED}")  # noqa: TRY004 (a refusal says it)
    for name, versions in api_versions.items():
        match versions:
            case (int(lowest), int(highest)):
                pass
            case _:
                raise ValueError(f"api_versions, {name}: {versions!r} is no range of versions: {WANTED}")
        request = by_name.get(name)
        if request is None:
            raise ValueError(f"no request {name!r}; there are {', '.join(sorted(by_name))}")
        least, most = ranges[request]
        if not least <= lowest <= highest <= most:
            raise ValueError(f"{name}: {lowest} to {highest} is not within {least} to {most}")
        found[request] = lowest, highest
    return found
