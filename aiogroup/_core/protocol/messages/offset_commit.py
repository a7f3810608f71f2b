"""OffsetCommit (8).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


@structure
class OffsetCommitResponsePartition(Structure):
    """The responses for each partition in the topic."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class OffsetCommitResponseTopic(Structure):
    """The responses for each topic."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(array(OffsetCommitResponsePartition))


@structure
class OffsetCommitResponse(Response):
    """The answer to `OffsetCommitRequest`."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(array(OffsetCommitResponseTopic))


@structure
class OffsetCommitRequestPartition(Structure):
    """Each partition to commit offsets for."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable=0)


@structure
class OffsetCommitRequestTopic(Structure):
    """The topics to commit offsets for."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(array(OffsetCommitRequestPartition))


@structure
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Stores offsets as a member of a generation, or with -1 and empty ids in a group without members. Topics are named
    by id since version 10: set both if both are known. An error of the group is repeated on all partitions.
    """

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
