"""DescribeGroups (15).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    BYTES,
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class DescribedGroupMember(Structure):
    """The group members."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, nullable=4, default=None, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@structure
class DescribedGroup(Structure):
    """Each described group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, nullable=6, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: tuple[DescribedGroupMember, ...] = wire(array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, since=3, default=-2147483648)


@structure
class DescribeGroupsResponse(Response):
    """The answer to `DescribeGroupsRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup))


@structure
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Asks the coordinator of these groups about them; another broker answers 16 for each. A missing group is in state
    `Dead` up to version 5, and has error 69 since version 6 (KIP-1043).
    """

    API_KEY = 15
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 5
    RESPONSE = DescribeGroupsResponse

    groups: tuple[str, ...] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOLEAN, since=3)
