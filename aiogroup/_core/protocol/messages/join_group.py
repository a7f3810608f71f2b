"""JoinGroup (11).

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
class JoinGroupResponseMember(Structure):
    """The group members."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    metadata: bytes = wire(BYTES)


@structure
class JoinGroupResponse(Response):
    """The answer to `JoinGroupRequest`."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable=7)
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOLEAN, since=9)
    member_id: str = wire(STRING)
    members: tuple[JoinGroupResponseMember, ...] = wire(array(JoinGroupResponseMember))


@structure
class JoinGroupRequestProtocol(Structure):
    """The list of protocols that the member supports."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@structure
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Asks to be a member; a static one names its `group_instance_id` (KIP-345), a new one no `member_id`. Answered
    when all members have sent it; only the leader sees the members, and with `skip_assignment` it must not assign. The
    last two fields of the request belong to the draft of KIP-345 and are sent only where they are set; other brokers
    ignore them.
    """

    API_KEY = 11
    MIN_VERSION = 2
    MAX_VERSION = 9
    FLEXIBLE_SINCE = 6
    RESPONSE = JoinGroupResponse

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=5, default=None)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, since=8, nullable=8, default=None, ignorable=True)
    registration_timeout_ms: int | None = wire(INT32, since=6, tag=34501, default=None, ignorable=True)
    expansion_timeout_ms: int | None = wire(INT32, since=6, tag=34502, default=None, ignorable=True)
