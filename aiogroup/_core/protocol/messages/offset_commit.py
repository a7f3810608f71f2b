"""OffsetCommit (8): stores offsets of a group. Topics are named by name up to version 9, by id since version 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.messages.topics import need_ids, need_names
from aiogroup._core.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID16,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)

if TYPE_CHECKING:
    from uuid import UUID

FIRST_BY_ID = 10


@structure
class OffsetCommitResponsePartition(Structure):
    """The result for one partition's offset."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class OffsetCommitResponseTopic(Structure):
    """One topic: `name` up to version 9, `topic_id` since 10."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(array(OffsetCommitResponsePartition))


@structure
class OffsetCommitResponse(Response):
    """One error code per partition; an error of the group is repeated on all of them."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(array(OffsetCommitResponseTopic))


@structure
class OffsetCommitRequestPartition(Structure):
    """The next offset to read in one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable=0)


@structure
class OffsetCommitRequestTopic(Structure):
    """One topic: `name` is sent up to version 9, `topic_id` since 10; set both if both are known."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(array(OffsetCommitRequestPartition))


@structure
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Stores offsets as a member of a generation, or with -1 and empty ids in a group without members."""

    API_KEY = 8
    MIN_VERSION = 2
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 8
    RESPONSE = OffsetCommitResponse

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = wire(STRING, since=1, ignorable=True)
    group_instance_id: str | None = wire(STRING, since=7, nullable=7, default=None)
    retention_time_ms: int = wire(INT64, since=2, until=4, default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(array(OffsetCommitRequestTopic))

    def lower(self, version: int) -> Structure:
        if version >= FIRST_BY_ID:
            need_ids("OffsetCommitRequest", version, FIRST_BY_ID, (topic.topic_id for topic in self.topics))
        else:
            need_names("OffsetCommitRequest", version, FIRST_BY_ID, (topic.name for topic in self.topics))
        return self
