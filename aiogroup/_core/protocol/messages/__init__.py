"""Kafka's messages, one file per API; `REQUESTS` has every request by its API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
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

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request

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
