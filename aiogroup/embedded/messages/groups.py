"""DeleteGroups (42), OffsetDelete (47).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    INT16,
    INT32,
    LAST,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class DeletableGroupResult(Structure):
    """The deletion results."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@structure
class DeleteGroupsResponse(Response):
    """The answer to `DeleteGroupsRequest`."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[DeletableGroupResult, ...] = wire(array(DeletableGroupResult))


@structure
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Forgets groups that have no members, with their offsets."""

    API_KEY = 42
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2
    RESPONSE = DeleteGroupsResponse

    groups_names: tuple[str, ...] = wire(array(STRING))


@structure
class OffsetDeleteResponsePartition(Structure):
    """The responses for each partition in the topic."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class OffsetDeleteResponseTopic(Structure):
    """The responses for each topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(array(OffsetDeleteResponsePartition))


@structure
class OffsetDeleteResponse(Response):
    """The answer to `OffsetDeleteRequest`."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(array(OffsetDeleteResponseTopic))


@structure
class OffsetDeleteRequestPartition(Structure):
    """Each partition to delete offsets for."""

    partition_index: int = wire(INT32)


@structure
class OffsetDeleteRequestTopic(Structure):
    """The topics to delete offsets for."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(array(OffsetDeleteRequestPartition))


@structure
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Forgets what a group committed for topics to which none of its members is subscribed (KIP-496); the answer's
    `error_code` is the group's.
    """

    API_KEY = 47
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = LAST
    RESPONSE = OffsetDeleteResponse

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(array(OffsetDeleteRequestTopic))
