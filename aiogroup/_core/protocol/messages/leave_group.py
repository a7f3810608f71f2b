"""LeaveGroup (13).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import INT16, INT32, STRING, Request, Response, Structure, array, structure, wire


@structure
class MemberResponse(Structure):
    """List of leaving member responses."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=0)
    error_code: int = wire(INT16)


@structure
class LeaveGroupResponse(Response):
    """The answer to `LeaveGroupRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    members: tuple[MemberResponse, ...] = wire(array(MemberResponse), since=3)


@structure
class MemberIdentity(Structure):
    """List of leaving member identities."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=0, default=None)
    reason: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)


@structure
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Takes `members` out of the group, by id, or a static one by its instance id alone; up to version 2 there must be
    exactly one, without an instance id, and the answer names no members.
    """

    API_KEY = 13
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4
    RESPONSE = LeaveGroupResponse

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2)
    members: tuple[MemberIdentity, ...] = wire(array(MemberIdentity), since=3)
