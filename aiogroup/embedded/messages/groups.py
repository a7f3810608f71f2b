"""What admin clients ask of groups: DeleteGroups (42), OffsetDelete (47)."""

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
    """What became of one group."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@structure
class DeleteGroupsResponse(Response):
    """What became of each group."""

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
    """What became of one partition's offset."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@structure
class OffsetDeleteResponseTopic(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(array(OffsetDeleteResponsePartition))


@structure
class OffsetDeleteResponse(Response):
    """What became of each offset; `error_code` is the group's."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32, ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(array(OffsetDeleteResponseTopic))


@structure
class OffsetDeleteRequestPartition(Structure):
    """One partition."""

    partition_index: int = wire(INT32)


@structure
class OffsetDeleteRequestTopic(Structure):
    """One topic."""

    name: str = wire(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(array(OffsetDeleteRequestPartition))


@structure
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Forgets what a group committed for partitions of topics to which none of its members is subscribed (KIP-496)."""

    API_KEY = 47
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = LAST
    RESPONSE = OffsetDeleteResponse

    group_id: str = wire(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(array(OffsetDeleteRequestTopic))
