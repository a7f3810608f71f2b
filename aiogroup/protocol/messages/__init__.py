"""Kafka's messages, one file per API; `REQUESTS` has every request by its API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiogroup.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup.protocol.messages.fetch import FetchRequest
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup.protocol.messages.join_group import JoinGroupRequest
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.protocol.messages.list_groups import ListGroupsRequest
from aiogroup.protocol.messages.list_offsets import ListOffsetsRequest
from aiogroup.protocol.messages.metadata import MetadataRequest
from aiogroup.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiogroup.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from aiogroup.protocol.schema import Request

REQUESTS: dict[int, type[Request[Any]]] = {
    request.API_KEY: request
    for request in (
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        ApiVersionsRequest,
        OffsetForLeaderEpochRequest,
    )
}
