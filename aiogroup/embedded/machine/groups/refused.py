"""Answers to a group's requests that hold only an error code, in the fields where Kafka puts it."""

from __future__ import annotations

from typing import Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._core.protocol.schema import Request, Response

__all__ = ["UNKNOWN_OFFSET", "refused", "refused_group"]

UNKNOWN_OFFSET = -1
GROUP_ERROR_SINCE = 2
"""Before this version of OffsetFetch a group's error is repeated at each of its partitions."""


def refused(request: Request[Any], code: ErrorCode, _version: int) -> Response:
    """The answer to a group's request that holds only this error code."""
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=None)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # A coordinator that loads answers a heartbeat with NONE (GroupCoordinatorService.heartbeat).
            is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        topic.name,
                        topic.topic_id,
                        tuple(OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions),
                    )
                    for topic in request.topics
                )
            )
    raise TypeError(f"{request.api_name()} is no request of a group")


def refused_group(asked: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """One group of an OffsetFetch that is refused (OffsetFetchResponse.groupError)."""
    if version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponseGroup(asked.group_id, (), code)
    topics = tuple(
        OffsetFetchResponseTopic(
            topic.name,
            topic.topic_id,
            tuple(OffsetFetchResponsePartition(each, UNKNOWN_OFFSET, -1, "", code) for each in topic.partition_indexes),
        )
        for topic in asked.topics or ()
    )
    return OffsetFetchResponseGroup(asked.group_id, topics, code)
